"""Words, variables and folders of launches in scripts that start here and now, against bash that really runs them."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.started import read_started
from dslint.model.workspace import Workspace

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")
TOOL = """\
#!{python} -S
import json, os, sys
with open({seen!r}, "a") as file:
    print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]), file=file)
"""
SCRIPTS = (
    "torchrun --nproc_per_node $N t.py",
    "torchrun --nproc_per_node ${N:-8} t.py ${A:-a b} ${B-c} ${C:+d} ${E:+d}${E+e} ${E:-f}",
    'torchrun t.py "$@" $# "$*" ${1:-x} ${2:-y} ${3:-z}',
    'shift; torchrun t.py "$@" $1',
    "set -- a b; torchrun t.py $2 $#",
    'while [ $# -gt 0 ]; do case $1 in --n) N=$2; shift 2;; *) REST="$REST $1"; shift;; esac; done\n'
    "torchrun --nproc_per_node $N t.py $REST",
    "if [ -z \"$A\" ]; then torchrun empty.py; else torchrun full.py; fi",
    "if [ -n \"$N\" ] && [ $N -gt 2 ]; then torchrun many.py; else torchrun few.py; fi",
    "if [ -z $A ]; then torchrun one.py; else torchrun other.py; fi",
    "if [ -n $A ]; then torchrun one.py; else torchrun other.py; fi",
    "if [ $A ]; then torchrun one.py; else torchrun other.py; fi",
    "[[ -v N ]] && torchrun set.py; [[ -v A ]] && torchrun unset.py; true",
    "if [[ $A == x* || $N == ? ]]; then torchrun yes.py; else torchrun no.py; fi",
    "if [[ -z $A && -n $HOME ]]; then torchrun yes.py; else torchrun no.py; fi",
    "if (( N > 2 )); then torchrun many.py; else torchrun few.py; fi",
    "if (( A )); then torchrun many.py; else torchrun few.py; fi",
    "[ -f here.sh ] && source here.sh; torchrun t.py $FROM",
    "[ -d sub ] && cd sub; torchrun t.py",
    "cd sub && bash ../inner.sh 5",
    "F=3 bash inner.sh 7 x; ./inner.sh 8",
    "export F=4; sh inner.sh $N",
    "F=4; bash inner.sh $N",
    "source here.sh; . ./here.sh; torchrun t.py $FROM $A",
    "cd ~ && torchrun t.py ~/x ~ \"~\" $HOME",
    "GPUS=(0 1 2); torchrun --nproc_per_node ${#GPUS[@]} t.py ${GPUS[@]} ${GPUS[1]}",
    "for f in a b; do torchrun t.py $f $A; done",
    "run() { torchrun --nproc_per_node $1 t.py $A; }; run 4; run ${N}",
    "export A=5 B; B=6; torchrun t.py; unset A; torchrun u.py",
    "A=7 torchrun t.py; torchrun u.py",
    "env -u N A=1 torchrun t.py; env -i PATH=$PATH torchrun u.py",
    "bash -c 'torchrun t.py $N $HOME'; eval \"torchrun t.py $N $A\"",
    "CMD=\"torchrun t.py $N\"; $CMD $A",
    ": ${A:=3}\n: ${N:=9}\ntorchrun t.py $A $N",
    "N=$((N + 1)); let M=N*2; torchrun t.py $N $M $((A + 1))",
    "torchrun t.py $(echo $N) `echo $A` $(basename /a/b.json .json) $(dirname $0)",
    "case $N in 4) torchrun four.py;; *) torchrun other.py;; esac; case $A in '') torchrun none.py;; esac",
    "torchrun t.py ${N#4} ${HOME##*/} ${LONG%.*} ${LONG/a/b} ${LONG^^} ${#LONG} ${LONG:1:3}",
    "cd \"$(dirname \"$0\")\"/sub; torchrun t.py $(basename $PWD)",
    "test -e sub && torchrun t.py; test \"$N\" = 4 && torchrun four.py",
    "exit_early() { [ -z \"$A\" ] && return 1; torchrun late.py; }; exit_early || torchrun t.py",
    "[ -n \"$A\" ] || { torchrun t.py; exit 0; }\ntorchrun never.py",
    "torchrun t.py \\\n  --a $A \\\n  --n $N\n",
    "pushd sub >/dev/null; torchrun t.py; popd >/dev/null; torchrun u.py",
    "(cd sub; torchrun t.py); torchrun u.py",
    "read -r X <<< \"$N 7\"; torchrun t.py $X",
    "printf -v X '%02d' $N; torchrun t.py $X",
)  # fmt: skip
ARGUMENTS = ("one", "two words", "--n", "3")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    top = tmp_path / "project"
    (top / "sub").mkdir(parents=True)
    (top / "here.sh").write_text("FROM=${FROM:-there}\nA=$A$N\n")
    (top / "inner.sh").write_text("#!/bin/bash\ntorchrun --nproc_per_node $1 t.py ${F:-none} ${2:-nothing} $A\n")
    (top / "inner.sh").chmod(0o755)
    tool = tmp_path / "bin" / "torchrun"
    tool.parent.mkdir()
    tool.write_text(TOOL.format(python=sys.executable, seen=str(tmp_path / "seen")))
    tool.chmod(0o755)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(top)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": f"{folder}/home", "N": "4", "E": "", "LONG": "banana.txt"}


def really(folder: Path, env: Mapping[str, str]) -> list[list[Any]]:
    """What bash has started: words, folder, environment."""
    subprocess.run(["bash", "run.sh", *ARGUMENTS], env=dict(env), capture_output=True, timeout=30)
    seen = folder / "seen"
    found = [json.loads(line) for line in seen.read_text().splitlines()] if seen.exists() else []
    seen.unlink(missing_ok=True)
    return found


def read(env: Mapping[str, str]) -> list[LaunchCommand]:
    docs = read_started(["bash", "run.sh", *ARGUMENTS], env, Workspace(Path(), {}, is_start=True))
    return [command for doc in docs for command in doc.commands]


def matches(command: LaunchCommand, started: list[Any]) -> bool:
    """All that the reader knows of a launch is so; what it does not know may be anything."""
    words, cwd, environ = started
    own = [word.text for word in command.argv[1:]]
    if not any(word.text is None and word.spreads for word in command.argv) and None not in own and own != words:
        return False
    if None in own and len(own) == len(words) and any(a not in (None, b) for a, b in zip(own, words, strict=True)):
        return False
    if command.cwd.is_known and os.path.realpath(command.cwd.get()) != os.path.realpath(cwd):
        return False
    known = {name: fact.get() for name, fact in command.env.items() if name and fact.is_known}
    return all(environ.get(name) == text for name, text in known.items() if "_" not in (name[:1], name))


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_is_read_is_what_bash_starts(script: str, folder: Path) -> None:
    Path("run.sh").write_text(script + "\n")
    env = environment(folder)
    started, commands = really(folder, env), read(env)
    certain = [command for command in commands if not command.conditions]
    for command in certain:
        assert any(matches(command, one) for one in started), ([w.text for w in command.argv], started)
    for one in started:
        assert any(matches(command, one) for command in commands), one[0]
    unread = [word.raw for command in certain for word in command.argv if word.text is None]
    assert unread == [], "nothing in these scripts is unknown where they start"


def test_random_scripts_are_read_as_bash_runs_them(folder: Path, full: bool) -> None:
    chance, env = random.Random(7), environment(folder)
    # Behind these nothing is sure: they end the script, run any text, or move to a folder that may not be there.
    parts = [part for part in SCRIPTS if not re.search(r"\b(?:exit|eval|cd|pushd)\b", part)]
    for _ in range(400 if full else 40):
        script = "\n".join(chance.sample(parts, 3))
        Path("run.sh").write_text(script + "\n")
        started, commands = really(folder, env), read(env)
        for one in started:
            assert any(matches(command, one) for command in commands), (script, one[0])
