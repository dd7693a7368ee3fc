"""Guards, collectives, trainers and engines that a project names in its settings."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from script_helpers import findings

from dslint.core.fact import known
from dslint.core.source import SourceFile
from dslint.engine.run import check_paths, check_text
from dslint.model.context import Context
from dslint.python.beliefs import Beliefs
from dslint.python.vocabulary import Vocabulary, is_named
from dslint.rules.script import dsl201_collective_under_rank_guard as dsl201
from dslint.settings import make_settings

OWN = Vocabulary(
    guards=("mylib.dist.is_chief", "chief_only"),
    collectives=("mylib.dist.sync_all", "share"),
    trainers=("mylib.train.Teacher",),
    engines=("mylib.build", "make_engine"),
)


DIST = "import torch.distributed as dist\n"


def comes(code: str) -> frozenset[int]:
    """Return which of four ranks call `work()`."""
    source = SourceFile("a.py", DIST + code)
    tree = ast.parse(source.text)
    (call,) = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "work"]
    return Beliefs(source, tree, own=OWN).ranks(call)


MAIN, OTHERS, ALL = frozenset((0,)), frozenset((1, 2, 3)), frozenset(range(4))


@pytest.mark.parametrize(
    ("imported", "test", "expected"),
    [
        ("from mylib.dist import is_chief as chief", "chief()", MAIN),
        ("import mylib.dist as d", "not d.is_chief()", OTHERS),
        ("from .dist import is_chief", "is_chief()", MAIN),
        ("from other.dist import is_chief", "is_chief()", ALL),
        ("", "is_chief()", ALL),  # a dotted name is that object, and nobody knows what this one is
        ("", "self.chief_only", MAIN),
        ("", "self.chief_only()", MAIN),
        ("from mylib.dist import is_chief", "is_chief", MAIN),
    ],
)
def test_a_guard_of_the_project_is_a_main_process_test(imported: str, test: str, expected: frozenset[int]) -> None:
    assert comes(f"{imported}\ndef f(self):\n    if {test}:\n        work()\n") == expected


def test_a_guard_of_the_project_decorates() -> None:
    code = "from mylib.hooks import chief_only\n@chief_only\ndef f():\n    work()\n"
    assert comes(code) == MAIN
    assert comes(code.replace("@chief_only", "@chief_only()")) == MAIN
    assert comes(code.replace("@chief_only", "@other")) == ALL


def test_a_guard_that_the_project_defines_is_not_looked_into() -> None:
    code = "def chief_only(function):\n    return register(function)\n@chief_only\ndef f():\n    work()\n"
    assert comes(code) == MAIN
    code = "class Job:\n    @property\n    def chief_only(self):\n        return native.ask()\n"
    code += "def f(job: Job):\n    if job.chief_only:\n        work()\n"
    assert comes(code) == MAIN


def lonely(code: str, **context: object) -> list[int]:
    """Return the lines with calls that only some ranks make."""
    found = findings(dsl201, DIST + code, Context(vocabulary=OWN, **context))  # type: ignore[arg-type]
    return [finding.location.region.line - 1 for finding in found]


def test_collectives_of_the_project() -> None:
    imports = "from mylib.dist import sync_all as s\nfrom other import sync_all\n"
    code = "def f(rank, self, x):\n    if rank == 0:\n        print(x)\n        {}\n"
    assert lonely(imports + code.format("s()")) == [6]
    assert lonely(imports + code.format("self.comm.share(x)")) == [6]
    assert lonely(imports + code.format("sync_all()")) == []


@pytest.mark.parametrize(
    "call",
    [
        "Mine(x).evaluate()",
        "given.evaluate()",
        "Home(x).evaluate()",
        "mylib.build(x)[0].save_checkpoint('out')",
        "self.tools.make_engine(x).save_checkpoint('out')",
        "engine.save_checkpoint('out')",
    ],
)
def test_trainers_and_engines_of_the_project(call: str) -> None:
    code = f"""\
import mylib
from mylib.train import Teacher
from home import Home

class Mine(Teacher):
    pass

def f(self, x, rank, given: Teacher):
    engine, optimizer, *_ = mylib.build(x)
    if rank == 0:
        print(x)
        {call}
"""
    assert lonely(code) == ([12] if "Home" not in call and "[0]" not in call else [])


def test_a_class_of_the_project_is_a_trainer() -> None:
    code = "class Coach:\n    pass\ndef f(x, rank):\n    if rank == 0:\n        print(x)\n        Coach(x).evaluate()\n"
    own = Vocabulary(trainers=("Coach",))
    assert findings(dsl201, DIST + code, Context(vocabulary=own))
    assert findings(dsl201, DIST + code) == []


@pytest.mark.parametrize(
    ("full", "word", "expected"),
    [
        ("a.b.c", "a.b.c", True),
        ("a.b.c", "c", True),
        ("a.b.c", "b.c", False),
        ("..b.c", "a.b.c", True),
        (".bb.c", "a.b.c", False),
        ("c", "a.b.c", False),
    ],
)
def test_names_are_compared_whole(full: str, word: str, expected: bool) -> None:
    assert is_named(full, (word,)) is expected


def test_bytes_are_searched_for_whole_names() -> None:
    assert OWN.stands_in(b"if d.is_chief():")
    assert not OWN.stands_in(b"if d.is_chiefs(): sharep()")
    assert not Vocabulary().stands_in(b"anything")


NAMES = {"guards": ["is_chief"], "collectives": ["sync_metrics"]}
# Nothing in it is a word that the rules know, so that only the settings can let it through all first looks.
SCRIPT = """\
from .tools import is_chief, sync_metrics

def finish(metrics):
    if is_chief():
        sync_metrics(metrics)
"""


def test_a_file_with_own_names_only_reaches_the_rules_and_the_cache_keeps_both_answers_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "tools.py").write_text("from elsewhere import *\n")
    for names, expected in [({}, []), (NAMES, [("DSL201", 5)]), ({}, []), (NAMES, [("DSL201", 5)])]:
        settings = make_settings({"names": names, "cache-dir": tmp_path / "cache", "world-size": 4})
        found = check_paths(["train.py"], settings).findings
        assert [(f.code, f.location.region.line) for f in found] == expected


def test_own_names_hold_in_scripts_that_a_launch_command_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "tools.py").write_text("from elsewhere import *\n")
    (tmp_path / "run.sh").write_text("torchrun --nproc-per-node 4 train.py\n")
    found = check_paths(["."], make_settings({"names": NAMES, "cache": False})).findings
    assert "DSL201" in [f.code for f in found]


def test_a_text_is_judged_with_the_names_of_its_settings() -> None:
    assert check_text("a.py", textwrap.dedent(SCRIPT)) == []
    assert [f.code for f in check_text("a.py", SCRIPT, settings=make_settings({"names": NAMES}))] == ["DSL201"]


def test_contexts_with_names_differ_for_the_cache() -> None:
    assert repr(Context(vocabulary=OWN, world_size=known(2))) != repr(Context(world_size=known(2)))
