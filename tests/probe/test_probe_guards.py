"""Every collective that DSL201 knows leads to an experiment that makes this call, or the one it consists of."""

from __future__ import annotations

import pytest

from dslint.core.source import Location, Region, Span
from dslint.probe.experiment import Subject
from dslint.probe.outcome import Verdict
from dslint.probe.registry import of_finding
from dslint.rules.script.dsl201_collective_under_rank_guard import META

# The calls that wait, by the library to which they belong.
KNOWN = {
    "accelerate": (
        "backward barrier broadcast broadcast_object_list check_trigger gather gather_for_metrics "
        "gather_object pad_across_processes prepare reduce synchronize_rng_state synchronize_rng_states"
    ),
    "colossalai": ("barrier"),
    "composer": ("all_gather all_gather_object all_reduce barrier broadcast broadcast_object_list"),
    "engine": ("safe_get_full_fp32_param safe_get_full_grad safe_get_full_optimizer_state"),
    "fabric": ("all_gather all_reduce barrier broadcast load rank_zero_first save"),
    "fsdp": (
        "clip_grad_norm_ forward full_optim_state_dict full_tensor generate get_model_state_dict "
        "get_optimizer_state_dict get_state_dict load_state_dict optim_state_dict "
        "scatter_full_optim_state_dict set_model_state_dict set_optimizer_state_dict set_state_dict "
        "sharded_optim_state_dict state_dict summon_full_params"
    ),
    "lightning": ("all_gather barrier broadcast fit save_checkpoint test validate"),
    "megatron": ("initialize_model_parallel load_checkpoint save_checkpoint"),
    "mmengine": (
        "all_gather all_gather_object all_reduce all_reduce_dict all_reduce_params barrier broadcast "
        "broadcast_object_list collect_results collect_results_cpu collect_results_gpu gather gather_object "
        "process_hf_dataset sync_random_seed"
    ),
    "openrlhf": ("all_gather all_reduce save_ckpt save_model"),
    "torch": (
        "DistributedDataParallel _all_gather_base all_gather all_gather_coalesced all_gather_into_tensor "
        "all_gather_object all_reduce all_reduce_coalesced all_to_all all_to_all_single barrier broadcast "
        "broadcast_object_list checkpoint.async_save checkpoint.load checkpoint.save "
        "checkpoint.save_state_dict gather gather_object new_group reduce reduce_scatter "
        "reduce_scatter_tensor scatter scatter_object_list"
    ),
    "trainer": (
        "_nested_gather barrier distributed_broadcast_scalars distributed_concat evaluate evaluation_loop "
        "predict prediction_loop train training_step"
    ),
}
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


CALLS = [(family, name) for family, names in KNOWN.items() for name in names.split()]


@pytest.mark.parametrize(("family", "name"), CALLS)
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
