"""The ZeRO stage that a node of a script runs under, and the stage of a script that names its config."""

from __future__ import annotations

import textwrap
from pathlib import Path

import libcst as cst
import pytest

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import SourceFile
from dslint.engine.run import check_paths
from dslint.model.context import Context
from dslint.model.script.zero.zero3 import StageHere
from dslint.parse.python import ScriptDoc, parse_script
from dslint.rules.scriptcontext import ScriptContext
from dslint.settings.table import Settings

STAGE3 = "config = {'train_batch_size': 8, 'zero_optimization': {'stage': 3}}\n"


def here(code: str, context: Context | None = None) -> StageHere:
    """The stages at the call of ``mark``."""
    doc = parse_script(SourceFile("train.py", textwrap.dedent(code)))
    assert isinstance(doc, ScriptDoc)
    ctx = ScriptContext(doc, context or Context())
    for node in ctx.tree.order:
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "mark":
            return ctx.zero.at(node)
    raise AssertionError("no mark")


@pytest.mark.parametrize(
    ("test", "possible"),
    [
        ("args.zero_stage == 3", {3}),
        ("args.zero_stage != 3", {0, 1, 2}),
        ("args.zero_stage >= 2 and not is_deepspeed_zero3_enabled()", {2}),
        ("engine.zero_optimization_stage() in (1, 2)", {1, 2}),
        ("int(args.zero_stage) < 3 or zero_stage == 3", {0, 1, 2, 3}),
        ("ds_config['zero_optimization']['stage'] == 3", {3}),
        ("getattr(args, 'zero_stage', 0) == 3", {3}),
        ("hasattr(param, 'ds_id')", {3}),
        ("not hasattr(param, 'ds_tensor')", {0, 1, 2}),
        ("args.deepspeed is None", {0}),
        ("accelerator.distributed_type != DistributedType.DEEPSPEED", {0}),
        ("accelerator.distributed_type == DistributedType.DEEPSPEED", {0, 1, 2, 3}),
        ("args.zero_stage", {1, 2, 3}),
        ("self.is_zero3", {3}),
        ("step % 2 == 0", {0, 1, 2, 3}),
        ("trainer.is_world_process_zero()", {0, 1, 2, 3}),
    ],
)
def test_a_branch_narrows_the_stages(test: str, possible: set[int]) -> None:
    found = here(f"if {test}:\n    mark()\n")
    assert (found.possible, found.is_open) == (possible, False)


@pytest.mark.parametrize("test", ["args.stage == 2", "args.zero3_save and x", "shards > 1", "a.zero_stage == b"])
def test_a_test_that_is_not_understood_leaves_everything_open(test: str) -> None:
    found = here(f"import deepspeed\n{STAGE3}if {test}:\n    mark()\n")
    assert found.is_open
    assert not found.is_among(3)


def test_the_other_branch_an_early_exit_and_a_variable() -> None:
    assert here("if zero_stage == 3:\n    pass\nelse:\n    mark()\n").possible == {0, 1, 2}
    assert here("def f():\n    if is_deepspeed_zero3_enabled():\n        return\n    mark()\n").possible == {0, 1, 2}
    both = "        if a:\n            return\n        else:\n            raise ValueError\n"
    assert here(f"def f():\n    if is_deepspeed_zero3_enabled():\n{both}    mark()\n").possible == {0, 1, 2}
    assert here("def f():\n    if args.zero_stage == 3:\n        raise ValueError\n    mark()\n").possible == {0, 1, 2}
    assert here("zero3 = is_deepspeed_zero3_enabled()\nx = mark() if zero3 else None\n").is_among(3)
    assert here("zero3 = args.zero_stage == 3\nx = zero3 and mark()\n").is_among(3)
    assert here("while args.zero_stage == 3:\n    pass\nelse:\n    mark()\n").possible == {0, 1, 2, 3}


def test_the_callers_of_a_function_say_its_stage() -> None:
    code = """
    def save():
        mark()

    def main(args):
        if args.zero_stage == 3:
            save()
    """
    assert here(code).is_among(3)
    assert not here(textwrap.dedent(code) + "    save()\n").is_among(3)


def test_a_branch_that_the_stated_stage_never_enters() -> None:
    found = here(f"import deepspeed\n{STAGE3}if zero_stage < 3:\n    mark()\n")
    assert not found.possible
    assert not found.is_among(3)
    assert not found.may_be(3)


@pytest.mark.parametrize(
    ("code", "stage"),
    [
        (STAGE3, 3),
        ("def make(stage):\n    return {'train_batch_size': 8, 'zero_optimization': {'stage': stage}}\n", None),
        ("p.add_argument('--zero_stage', type=int, default=3)\n", 3),
        ("p.add_argument('--zero_stage', type=int, default=0)\n" + STAGE3, None),
        ("if z == 3:\n    ctx = deepspeed.zero.Init()\n", 3),
        ("if args.zero_stage == 3:\n    ctx = deepspeed.zero.Init()\n", None),
        ("deepspeed.zero.Init(enabled=x)\n", None),
    ],
)
def test_what_a_file_states(code: str, stage: int | None) -> None:
    assert here(f"import deepspeed\n{code}mark()\n").stage == stage


@pytest.mark.parametrize(
    ("passed", "stage"), [(known("3"), 3), (known("2"), 2), (unknown("the runs differ"), None), (known("x"), None)]
)
def test_a_command_passes_the_stage(passed: Fact[str], stage: int | None) -> None:
    code = "import deepspeed\np.add_argument('--zero_stage', type=int, default=0)\nmark()\n"
    assert here(code, Context(arguments={"zero_stage": passed})).stage == stage


def test_a_function_that_makes_configs_of_two_stages_states_none() -> None:
    code = """
    import deepspeed

    def config(stage):
        return {"train_batch_size": 8, "zero_optimization": {"stage": stage}}

    def one(model):
        deepspeed.initialize(model=model, config=config(3))

    def two(model):
        deepspeed.initialize(model=model, config=config(2))
        mark()
    """
    assert here(code).stage is None


def test_nothing_is_certain_where_a_test_expects_the_failure() -> None:
    assert not here(f"import deepspeed\n{STAGE3}with pytest.raises(ValueError):\n    mark()\n").is_among(3)


def test_a_script_without_a_command_has_the_stage_of_the_config_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import deepspeed\n\nengine, *_ = deepspeed.initialize(model=model, config='ds.json')\n"
        "with engine.no_sync():\n    pass\n"
    )
    for stage, expected in ((2, ["DSL246"]), (1, [])):
        (tmp_path / "ds.json").write_text(
            f'{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": {stage}}}}}'
        )
        assert [f.code for f in check_paths(["."], Settings()).findings if f.code.startswith("DSL2")] == expected
