"""Which case of an engine experiment a finding is about, and what the oracles say; no rank is started."""

from __future__ import annotations

from typing import Any

import pytest
from script_helpers import findings

from dslint.core.fact import known
from dslint.model.context import Context
from dslint.probe.experiment import Subject
from dslint.probe.experiments import batch_not_divisible, uneven_loop
from dslint.probe.parts.compare import distance, diverged, off_course
from dslint.probe.registry import of_finding
from dslint.rules.script import dsl201_collective_under_rank_guard as guard
from dslint.rules.script import dsl202_conditional_collective_under_rank_guard as sharded
from dslint.rules.script import dsl207_uneven_loop_with_collective as loop
from dslint.rules.script import dsl270_batch_size_not_divisible as divided

_HEAD = "import deepspeed\nimport torch.distributed as dist\n"
_ENGINE = _HEAD + "engine, _, _, _ = deepspeed.initialize(model=model, config=CONFIG)\n"


def _probed(rule: object, code: str, stage: int | None = None, world: int | None = None) -> tuple[str, dict[str, Any]]:
    context = Context(
        **({"zero_stage": known(stage)} if stage is not None else {}),
        **({"world_size": known(world)} if world is not None else {}),
    )
    (finding,) = findings(rule, code, context)
    found = of_finding(Subject(finding, code))
    assert found is not None
    entry, case = found
    return f"{entry.experiment.name}/{case.name}", dict(case.params)


@pytest.mark.parametrize(
    ("call", "stage", "case"),
    [
        ("engine.save_checkpoint('out')", None, "engine-call-under-rank-guard/save_checkpoint-z2"),
        ("engine.save_checkpoint('out')", 1, "engine-call-under-rank-guard/save_checkpoint-z1"),
        ("engine.save_checkpoint('out')", 3, "engine-call-under-rank-guard/save_checkpoint-z3"),
        ("engine.step()", 0, "engine-call-under-rank-guard/step-z0"),
        ("engine.save_16bit_model('out')", 3, "engine-call-under-rank-guard/save_16bit_model-z3"),
        ("engine(batch)", 3, "zero3-forward-on-one-rank/forward-z3"),
    ],
)
def test_a_guarded_engine_call_is_probed_as_it_is_written(call: str, stage: int | None, case: str) -> None:
    # What is collective for partitioned parameters only has a rule of its own.
    rule = sharded if case.startswith(("zero3", "engine-call-under-rank-guard/save_16bit")) else guard
    name, params = _probed(rule, _ENGINE + f"if dist.get_rank() == 0:\n    {call}\n", stage)
    assert name == case
    assert params["stage"] == (2 if stage is None else stage)


def test_a_stage_without_a_case_of_its_own_is_put_into_the_first_case() -> None:
    name, params = _probed(guard, _ENGINE + "if dist.get_rank() == 0:\n    engine.step()\n", stage=1)
    assert (name, params["stage"]) == ("engine-call-under-rank-guard/step-z2", 1)


_LOOP = _ENGINE + "for i in range(dist.get_rank(), {n}, dist.get_world_size()):\n    {body}\n"


@pytest.mark.parametrize(
    ("body", "stage", "case"),
    [
        ("engine(data[i])", 3, "forward-z3"),
        ("engine.backward(data[i])", 2, "train-z2"),
        ("engine.step()", 3, "train-z3"),
        ("dist.all_gather_object(out, i)", None, "gather-each-item"),
    ],
)
def test_an_uneven_loop_is_probed_with_its_call_and_numbers(body: str, stage: int | None, case: str) -> None:
    name, params = _probed(loop, _LOOP.format(n=11, body=body), stage, world=4)
    assert name == f"uneven-loop/{case}"
    assert (params["items"], params["world"]) == (11, 4)


def test_the_backward_of_a_ddp_model_has_another_experiment() -> None:
    code = (
        "import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel\n"
        "model = DistributedDataParallel(net)\nfor i in range(dist.get_rank(), 5, dist.get_world_size()):\n"
        "    model(data[i]).backward()\n"
    )
    assert _probed(loop, code, world=2)[0].startswith("uneven-ddp-batches/")


def test_an_unknown_number_of_items_leaves_the_example_numbers() -> None:
    name, params = _probed(loop, _LOOP.format(n="len(data)", body="engine(data[i])"), stage=3)
    assert (name, params["items"], params["world"]) == ("uneven-loop/forward-z3", 5, 2)


@pytest.mark.parametrize(
    ("cut", "size", "stage", "case"),
    [
        ("rows[dist.get_rank() :: dist.get_world_size()]", 6, 3, "dealt-z3"),
        ("rows[dist.get_rank() :: dist.get_world_size()]", 6, 2, "dealt-replicated"),
        ("len(rows) // dist.get_world_size()", 6, 3, "floor-z3"),
        ("len(rows) // dist.get_world_size()", 3, 3, "floor-below-world"),
    ],
)
def test_a_divided_batch_is_probed_as_it_is_cut(cut: str, size: int, stage: int, case: str) -> None:
    name, params = _probed(divided, _HEAD + f"rows = {list(range(size))}\nmine = {cut}\n", stage, world=4)
    assert name == f"batch-not-divisible/{case}"
    assert (params["size"], params["world"]) == (size, 4)


class _Rank:
    def __init__(self, world: int, params: dict[str, int]) -> None:
        self.world, self.params = world, params


@pytest.mark.parametrize(
    ("items", "stated", "world", "here"), [(5, 2, 2, 5), (11, 4, 2, 5), (8, 4, 2, 4), (100, 8, 2, 7)]
)
def test_numbers_for_many_ranks_are_scaled_to_those_of_the_arm(items: int, stated: int, world: int, here: int) -> None:
    rank: Any = _Rank(world, {"items": items, "size": items, "world": stated})
    assert uneven_loop.scaled(rank, rank.params["items"]) == here
    assert batch_not_divisible.scaled(rank, rank.params["size"]) == here


def test_rows_that_no_rank_has_are_counted() -> None:
    whole = [{"rows": [0, 1, 2]}, {"rows": [3, 4, 4]}]
    assert batch_not_divisible.wrong(whole, whole) is None
    assert batch_not_divisible.wrong([{"rows": [0, 1]}, {"rows": [2, 3]}], whole) == "1 row of 5 is seen by no rank"
    uneven = [{"rows": [0, 2, 4]}, {"rows": [1, 3]}]
    assert batch_not_divisible.wrong(uneven, whole) == "the ranks run unequally often: 3, 2 times"


def test_weights_are_compared_over_ranks_and_with_the_reference() -> None:
    same, other = [{"weights": [1.0, 2.0]}] * 2, [{"weights": [1.0, 2.0]}, {"weights": [1.0, 2.5]}]
    assert diverged(same) is None
    assert diverged(other) == "the weights of rank 1 differ from those of rank 0 by 0.5"
    assert off_course(same, same) is None
    assert off_course(other, same) == "the weights of rank 1 end 0.5 away from those of the correct run"
    assert distance([1.0], [1.0, 2.0]) == distance([float("nan")], [1.0]) == float("inf")
