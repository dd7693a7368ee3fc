"""Guards, collectives, trainers and engines that a project names in its settings."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from script_helpers import call, script

from dslint.core.fact import known
from dslint.engine.run import check_paths, check_text
from dslint.model.context import Context, Vocabulary, is_named
from dslint.model.script.ranks.rankset import Ranks
from dslint.settings import make_settings

OWN = Vocabulary(
    guards=("mylib.dist.is_chief", "chief_only"),
    collectives=("mylib.dist.sync_all", "share"),
    trainers=("mylib.train.Teacher",),
    engines=("mylib.build", "make_engine"),
)


def ranks(code: str, name: str) -> Ranks | None:
    ctx = script(code, Context(vocabulary=OWN))
    guard = ctx.guard(call(ctx, name))
    return guard.ranks if guard is not None else None


@pytest.mark.parametrize(
    ("imported", "test", "expected"),
    [
        ("from mylib.dist import is_chief as chief", "chief()", Ranks.MAIN),
        ("import mylib.dist as d", "not d.is_chief()", Ranks.OTHERS),
        ("from .dist import is_chief", "is_chief()", Ranks.MAIN),
        ("from other.dist import is_chief", "is_chief()", None),
        ("", "is_chief()", None),  # a dotted name is that object, and nobody knows what this one is
        ("", "self.chief_only", Ranks.MAIN),
    ],
)
def test_a_guard_of_the_project_is_a_main_process_test(imported: str, test: str, expected: Ranks | None) -> None:
    assert ranks(f"{imported}\ndef f(self):\n    if {test}:\n        work()\n", "work") is expected


def test_a_guard_of_the_project_decorates() -> None:
    code = "from mylib.hooks import chief_only\n@chief_only\ndef f():\n    work()\n"
    assert ranks(code, "work") is Ranks.MAIN
    assert ranks(code.replace("@chief_only", "@chief_only()"), "work") is Ranks.MAIN
    assert ranks(code.replace("@chief_only", "@other"), "work") is None


def test_collectives_of_the_project() -> None:
    ctx = script(
        "from mylib.dist import sync_all as s\nfrom other import sync_all\ns()\nself.comm.share(x)\nsync_all()\n",
        Context(vocabulary=OWN),
    )
    names = {n: ctx.summaries.collective(call(ctx, n)) for n in ("s", "share", "sync_all")}
    assert {n: c.key if c else None for n, c in names.items()} == {"s": "sync_all", "share": "share", "sync_all": None}


def test_trainers_and_engines_of_the_project() -> None:
    code = """\
    import mylib
    from mylib.train import Teacher

    class Mine(Teacher):
        pass

    def f(given: Teacher):
        mine = Mine()
        engine, optimizer, *_ = mylib.build(model)
        other = self.tools.make_engine(model)
        plain = mylib.other(model)
        use(mine, engine, optimizer, other, plain, given)
    """
    ctx = script(code, Context(vocabulary=OWN))
    kinds = [ctx.kind(arg.value) for arg in call(ctx, "use").args]
    assert kinds == ["trainer", "engine", "ds_optimizer", "engine", "", "trainer"]


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
    for names, expected in [({}, []), (NAMES, [("DSL201", 5)]), ({}, []), (NAMES, [("DSL201", 5)])]:
        settings = make_settings({"names": names, "cache-dir": tmp_path / "cache", "world-size": 4})
        found = check_paths(["train.py"], settings).findings
        assert [(f.code, f.location.region.line) for f in found] == expected


def test_own_names_hold_in_scripts_that_a_launch_command_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "run.sh").write_text("torchrun --nproc-per-node 4 train.py\n")
    found = check_paths(["."], make_settings({"names": NAMES, "cache": False})).findings
    assert "DSL201" in [f.code for f in found]


def test_a_text_is_judged_with_the_names_of_its_settings() -> None:
    assert check_text("a.py", textwrap.dedent(SCRIPT)) == []
    assert [f.code for f in check_text("a.py", SCRIPT, settings=make_settings({"names": NAMES}))] == ["DSL201"]


def test_contexts_with_names_differ_for_the_cache() -> None:
    assert repr(Context(vocabulary=OWN, world_size=known(2))) != repr(Context(world_size=known(2)))
