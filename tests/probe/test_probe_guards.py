"""Every collective that DSL201 knows leads to an experiment that makes this call, or the one it consists of."""

from __future__ import annotations

import pytest

from dslint.core.source import Location, Region, Span
from dslint.model.script.collective.frameworks import FUNCTIONS
from dslint.model.script.collective.vocabulary import (
    ACCELERATE_FUNCTIONS,
    ACCELERATOR,
    BARRIERS,
    CHECKPOINT_FUNCTIONS,
    FSDP_METHODS,
    FSDP_STATIC,
    GROUP_POSITION,
    MMENGINE,
    STATE_DICT_FUNCTIONS,
    TRAINER,
)
from dslint.probe.experiment import Subject
from dslint.probe.outcome import Verdict
from dslint.probe.registry import of_finding
from dslint.rules.script.dsl201_collective_under_rank_guard import META

TORCH = {*GROUP_POSITION, "DistributedDataParallel", *(f"checkpoint.{name}" for name in CHECKPOINT_FUNCTIONS)}
KNOWN = [
    *(("torch", name) for name in TORCH - BARRIERS),
    *(("mmengine", name) for name in MMENGINE - BARRIERS),
    *(("accelerate", name) for name in ACCELERATE_FUNCTIONS - BARRIERS),
    *(("accelerate", name) for name, stage3 in ACCELERATOR.items() if not stage3 and name not in BARRIERS),
    *(("trainer", name) for name, stage3 in TRAINER.items() if not stage3),
    *((family, "barrier") for family in ("torch", "mmengine", "accelerate", "fabric", "lightning", "composer")),
    *((family, "barrier") for family in ("colossalai", "trainer")),
    *(("fsdp", name) for name in (FSDP_METHODS | FSDP_STATIC | STATE_DICT_FUNCTIONS | {"full_tensor"})),
    *(("fabric", name) for name in ("save", "load", "all_gather", "all_reduce", "broadcast", "rank_zero_first")),
    *(("lightning", name) for name in ("fit", "validate", "test", "save_checkpoint", "all_gather", "broadcast")),
    *(("openrlhf", name) for name in ("all_reduce", "all_gather", "save_model", "save_ckpt")),
    *((family, name) for family, names in FUNCTIONS.values() if family != "torchtune" for name in names - BARRIERS),
]
FILES = {
    "torch": "collective_under_rank_guard",
    "mmengine": "collective_under_rank_guard",
    "accelerate": "accelerate_call_under_guard",
    "trainer": "trainer_call_under_guard",
    "fsdp": "sharded_model_under_rank_guard",
    "engine": "engine_call_under_rank_guard",
}


def _subject(family: str, name: str) -> Subject:
    facts = {"family": family, "collective": name}
    return Subject(META.finding(Location("train.py", Span(0, 1), Region(1, 1, 1, 2)), "message", facts=facts))


@pytest.mark.parametrize(("family", "name"), sorted(set(KNOWN)))
def test_a_call_behind_a_guard_has_a_case(family: str, name: str) -> None:
    found = of_finding(_subject(family, name))
    assert found is not None
    entry, case = found
    assert entry.stem in (FILES.get(family, "collective_under_rank_guard"), "collective_under_rank_guard")
    assert case.verdict is Verdict.CONFIRMED


@pytest.mark.parametrize(
    ("family", "name", "params"),
    [
        ("torch", "gather", {"op": "gather", "then": ""}),
        ("torch", "all_to_all", {"op": "all_to_all", "then": ""}),
        ("mmengine", "collect_results", {"op": "all_gather_object", "then": ""}),
        ("accelerate", "gather", {"call": "gather"}),
        ("trainer", "train", {"call": "train"}),
    ],
)
def test_the_arm_makes_the_call_of_the_finding(family: str, name: str, params: dict[str, str]) -> None:
    found = of_finding(_subject(family, name))
    assert found is not None
    assert found[1].params == params


def test_a_call_that_nobody_knows_has_none() -> None:
    assert of_finding(_subject("torch", "exchange")) is None
