"""Under which ZeRO stages a place may be reached."""

from __future__ import annotations

import builtins
import symtable
import textwrap

import pytest
from script_helpers import asked

from dslint.rules.zero.stages import StageHere

HEAD = "import deepspeed\nimport torch.distributed as dist\nfrom accelerate.utils import DistributedType\n"
HEAD += "from transformers.integrations import is_deepspeed_zero3_enabled\n"
KNOWN = {"deepspeed", "dist", "DistributedType", "is_deepspeed_zero3_enabled"}
STAGE3 = "config = {'train_batch_size': 8, 'zero_optimization': {'stage': 3}}\n"


def here(code: str) -> StageHere:
    """Return the stages at the barrier of a function whose parameters are all names that nothing binds."""
    code += "f()\n" if code.startswith("def f():") else ""
    body = textwrap.indent(code.replace("mark()", "dist.barrier()"), "    ")
    table = symtable.symtable(f"def f():\n{body}", "a.py", "exec").get_children()[0]
    free = sorted({name for name in table.get_globals() if not hasattr(builtins, name)} - KNOWN)
    run = asked(f"{HEAD}def main({', '.join(free)}):\n{body}")
    return run.stages.at(next(found for found in run.happenings("barrier")))


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
