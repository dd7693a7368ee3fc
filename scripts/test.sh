#!/usr/bin/env bash
# Installs dslint with everything its tests need into a virtual environment, and runs all tests:
# ruff, mypy, unit and property tests, the real bash, DeepSpeed, flake8 and pre-commit.
# VENV names the environment (default: .venv, made when it is missing).
set -euo pipefail
cd "$(dirname "$0")/.."
VENV=${VENV:-.venv}
[ -x "$VENV/bin/python" ] || python3 -m venv "$VENV"
# torch first: DeepSpeed's build script imports it, and the pinned version keeps out a larger build.
"$VENV/bin/pip" install -q --disable-pip-version-check "torch==2.13.0" setuptools wheel
DS_BUILD_OPS=0 "$VENV/bin/pip" install -q --disable-pip-version-check --no-build-isolation "deepspeed==0.19.8"
"$VENV/bin/pip" install -q --disable-pip-version-check -e '.[test]'
# By file: what a module prepares for its tests is made once. The longest come first (tests/conftest.py).
PATH="$PWD/$VENV/bin:$VENV/bin:$PATH" exec "$VENV/bin/python" -m pytest -n "${JOBS:-2}" --dist loadfile --no-loadscope-reorder "$@"
