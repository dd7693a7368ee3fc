"""Scripts that have more ways to run than anybody can list: read in bounded time, and what was cut is said."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from dslint.core.source import SourceFile
from dslint.model.launch.document import LaunchDoc, read_launch_docs
from dslint.model.shell.flow.choices import MAX_WORLDS, TOO_MANY
from dslint.model.workspace import Workspace

# Seconds of processor time; each takes a tenth of it at most on a slow core, and one doubling too many takes ages.
BOUND = 3.0


def read(text: str, others: Mapping[str, str] | None = None) -> LaunchDoc:
    began = time.process_time()
    workspace = Workspace(overrides={"run.sh": text, **(others or {})})
    docs = read_launch_docs(SourceFile("run.sh", text), "shell", workspace)
    assert time.process_time() - began < BOUND
    return docs[0]


def sequential_ifs() -> str:
    tests = "".join(f'if [ -f f{n} ]; then A{n}="--x{n} 1"; else A{n}="--x{n} 2"; fi\n' for n in range(40))
    return tests + "torchrun train.py " + " ".join(f"$A{n}" for n in range(40)) + "\n"


def nested_ifs() -> str:
    heads = "".join(f"if [ -f f{n} ]; then A=a{n}; B{n}=1\n" for n in range(40))
    return heads + "fi\n" * 40 + "torchrun train.py --a $A " + " ".join(f"--b{n} $B{n}" for n in range(40)) + "\n"


def cases() -> str:
    text = "".join(f"case $C{n} in a) X{n}=1;; b) X{n}=2;; *) X{n}=3;; esac\n" for n in range(30))
    return text + "torchrun train.py " + " ".join(f"--x{n} $X{n}" for n in range(30)) + "\n"


def loops() -> str:
    heads = "".join(f"for v{n} in 1 2 3 4 5 6 7 8 9; do\n" for n in range(9))
    return heads + "torchrun train.py " + " ".join(f"$v{n}" for n in range(9)) + "\n" + "done\n" * 9


def eval_in_loops() -> str:
    heads = "".join(f"for v{n} in 1 2 3 4 5 6 7 8 9; do\n" for n in range(5))
    body = 'C="torchrun train.py --a $v0 --b $v4"\neval "$C"\neval "$C --c $(cat x)"\n'
    return heads + body + "done\n" * 5


def chained() -> str:
    text = "".join(f'if [ -f f{n} ]; then A="$A --x{n} 1"; else A="$A --y{n} 2"; fi\n' for n in range(40))
    return 'A=""\n' + text + "torchrun train.py $A\n"


def shifted_arguments() -> str:
    """What installers of autotools do with their arguments: each turn takes one off or puts one back."""
    options = "".join(f"  -{c}) O{c}=$2; shift;;\n" for c in "abcdefghij")
    return (
        f"while test $# -ne 0; do\n  case $1 in\n{options}  -z) Z=true;;\n  *) break;;\n  esac\n  shift\ndone\n"
        'for arg\ndo\n  if test -n "$LAST"; then set x "$@" "$LAST"; shift; fi\n  shift\n  LAST=$arg\n'
        "  case $LAST in -*) LAST=./$LAST;; esac\ndone\n"
        "torchrun train.py --last $LAST --a $Oa --all $@\n"
    )


@pytest.mark.parametrize("make", [sequential_ifs, nested_ifs, cases, chained], ids=lambda m: m.__name__)
def test_a_command_has_a_bounded_number_of_alternatives(make: Callable[[], str]) -> None:
    doc = read(make())
    assert 1 <= len(doc.commands) <= MAX_WORLDS
    cut = [word for command in doc.commands for word in command.words if word.text is None]
    assert cut
    assert any(TOO_MANY in word.why for word in cut)


@pytest.mark.parametrize("make", [loops, eval_in_loops], ids=lambda m: m.__name__)
def test_loops_in_loops_are_read_a_bounded_number_of_times(make: Callable[[], str]) -> None:
    doc = read(make())
    assert 1 <= len(doc.commands) < 1000
    assert any(word.text is None and word.why for command in doc.commands for word in command.words)


def test_scripts_that_call_each_other_end() -> None:
    names = [f"s{n}.sh" for n in range(6)]
    calls = "".join(f"bash {name} $1 2\nbash {name} 3 $2\n" for name in names)
    others = dict.fromkeys(names, f"torchrun train.py --a $1 --b $2\n{calls}")
    doc = read("torchrun train.py --a 1\n" + calls.replace("$1", "7").replace("$2", "8"), others)
    assert len(doc.commands) == 1
    assert 1 <= len(doc.called) <= 100


def test_arguments_that_turns_of_a_loop_shift_are_read_in_bounded_time() -> None:
    assert len(read(shifted_arguments()).commands) >= 1
