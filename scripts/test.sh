#!/usr/bin/env bash
# Installs dslint with everything its tests need into a virtual environment, and runs all tests:
# ruff, mypy, unit and property tests, the real bash, DeepSpeed, flake8 and pre-commit.
# VENV names the environment (default: .venv, made when it is missing).
set -euo pipefail
cd "$(dirname "$0")/.."
VENV=${VENV:-.venv}
[ -x "$VENV/bin/python" ] || python3 -m venv "$VENV"
install() { "$VENV/bin/pip" install -q --disable-pip-version-check --no-compile "$@"; }
# Byte code is made on all cores, and beside pip, which would do it on one. What is left out compiles when it is loaded.
compile() {
  "$VENV/bin/python" -m compileall -q "$@" -x 'transformers/models/(?!auto/|llama/|__init__)' \
    "$VENV"/lib/python3*/site-packages >/dev/null 2>&1 || true
}
# torch first: DeepSpeed's build script imports it, and the pinned version keeps out a larger build.
install "torch==2.13.0" setuptools wheel
compile & compiling=$!
DS_BUILD_OPS=0 install --no-build-isolation "deepspeed==0.19.8"
install -e '.[test]'
wait "$compiling"
compile -j 2
# By file: what a module prepares for its tests is made once. The longest come first (tests/conftest.py). Three on two
# cores: many tests wait for processes that they have started.
PATH="$PWD/$VENV/bin:$VENV/bin:$PATH" exec "$VENV/bin/python" -m pytest -n "${JOBS:-3}" --dist loadfile --no-loadscope-reorder "$@"
