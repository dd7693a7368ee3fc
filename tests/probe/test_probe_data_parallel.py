"""What the oracles of the experiments on plain data parallelism say, and which numbers they take from a finding."""

from __future__ import annotations

import pytest
from script_helpers import findings

from dslint.core.fact import known
from dslint.model.context import Context
from dslint.probe.experiment import Subject
from dslint.probe.experiments import (
    backward_past_accelerator,
    collectives_in_other_order,
    exception_swallowed_on_one_rank,
    gather_of_unequal_shapes,
    loader_not_prepared,
    local_rank_without_type,
    sampler_epoch_missing,
)
from dslint.probe.registry import of_finding
from dslint.rules.script import dsl207_uneven_loop_with_collective

LOOP = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

model = DistributedDataParallel(torch.nn.Linear(4, 1))
for index in range(dist.get_rank(), %s, dist.get_world_size()):
    loss = model(batches[index]).sum()
    loss.backward()
"""


@pytest.mark.parametrize(
    ("items", "world", "params"),
    [("9", 4, {"items": 9, "world": 4}), ("count", 4, {"items": 7, "world": 2}), ("9", None, {"items": 7, "world": 2})],
)
def test_a_ddp_loop_is_run_with_its_numbers(items: str, world: int | None, params: dict[str, int]) -> None:
    context = Context(world_size=known(world)) if world else None
    (finding,) = findings(dsl207_uneven_loop_with_collective, LOOP % items, context)
    found = of_finding(Subject(finding))
    assert found is not None
    assert (found[0].experiment.name, dict(found[1].params)) == ("uneven-ddp-batches", params)


def test_sums_of_another_metric() -> None:
    reference = [{"loss": [1.0], "tokens": [8192.0]}] * 2
    assert collectives_in_other_order.wrong(reference, reference) is None
    mixed = [{"loss": [4096.5], "tokens": [4096.5]}] * 2
    assert collectives_in_other_order.wrong(mixed, reference) == "on rank 0 the sum of loss is [4096.5], not [1.0]"


def test_sums_of_another_record() -> None:
    reference = [{"0": 2.0, "1": 10.0}] * 2
    skipped = [{"0": 2.0}, {"0": 2.0, "1": 10.0}]
    assert exception_swallowed_on_one_rank.wrong(skipped, reference) is None
    shifted = [{"0": 2.0}, {"0": 2.0, "1": 110.0}]
    said = exception_swallowed_on_one_rank.wrong(shifted, reference)
    assert said == "on rank 1 the sum of record 1 is 110, not 10"


def test_numbers_that_nobody_sent() -> None:
    reference = [[1.0, 0.0, 2.0]] * 2
    assert gather_of_unequal_shapes.wrong([[1.0, 2.0], [1.0, 2.0]], reference) is None
    said = gather_of_unequal_shapes.wrong([[1.0, 2.0], [1.0, 2e-41]], reference)
    assert said == "rank 1 gets numbers that nobody sent, such as 2e-41"
    assert gather_of_unequal_shapes.wrong([[1.0], [1.0, 2.0]], reference) == "rank 0 gets 1 numbers, rank 1 gets 2"


def test_items_that_every_rank_sees() -> None:
    assert loader_not_prepared.wrong([[0, 2], [1, 3]], [[0, 2], [1, 3]]) is None
    # A set of samples that does not come out even is filled up, also in the fixed arm.
    assert loader_not_prepared.wrong([[0, 2], [1, 0]], [[0, 2], [1, 0]]) is None
    said = loader_not_prepared.wrong([[0, 1], [0, 1]], [[0], [1]])
    assert said == "item 0 is seen by 2 ranks: 2 items a rank instead of 1"


def test_epochs_that_are_alike() -> None:
    told = [[[0, 1], [1, 0]]]
    assert sampler_epoch_missing.wrong(told, told) is None
    assert sampler_epoch_missing.wrong([[[0, 1]]], told) is None
    assert sampler_epoch_missing.wrong([[[0, 1], [0, 1]]], told) == "on rank 0 the order of all 2 epochs is the same"
    # Where no order changes when the sampler knows the epoch, nothing is lost.
    assert sampler_epoch_missing.wrong([[[0, 1], [0, 1]]], [[[0, 1], [0, 1]]]) is None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([True, False], None),
        ([False, False], "no rank is the main one"),
        ([True, True], "2 ranks are the main one"),
    ],
)
def test_one_rank_is_the_main_one(values: list[bool], said: str | None) -> None:
    assert local_rank_without_type.wrong(values, []) == said


def test_gradients_that_are_too_large() -> None:
    assert backward_past_accelerator.wrong([[3.0, 4.0]], [[3.0, 4.0]]) is None
    said = backward_past_accelerator.wrong([[12.0, 16.0]], [[3.0, 4.0]])
    assert said == "the gradients are 4 times as large as they should be"
