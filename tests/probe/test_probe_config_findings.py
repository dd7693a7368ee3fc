"""Which case of an experiment a finding about a config or a memory limit is about, and what the oracles say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from script_helpers import findings

from dslint.core.finding import Finding
from dslint.core.source import SourceFile
from dslint.model.context import Context, VersionFact
from dslint.parse.jsondoc import parse_json
from dslint.probe.experiment import Subject
from dslint.probe.experiments import (
    checkpoint_tag_per_rank,
    client_optimizer_step,
    clip_grad_norm_bypassed,
    memory_fraction,
    overlap_comm_race,
    zero3_parameter_outside_gather,
    zero3_weights_not_saved,
    zero_gradient_norm,
)
from dslint.probe.registry import of_finding
from dslint.rules.config import dsl160_overlap_comm_old_version as overlap
from dslint.rules.config import dsl161_z3_gather_missing as gather
from dslint.rules.script import dsl258_memory_fraction_literal as memory

_KEY = "stage3_gather_16bit_weights_on_model_save"


def _chosen(finding: Finding) -> tuple[str, dict[str, Any]] | None:
    found = of_finding(Subject(finding))
    return None if found is None else (f"{found[0].experiment.name}/{found[1].name}", dict(found[1].params))


def _config_finding(rule: Any, zero: dict[str, Any]) -> Finding:
    text = json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero})
    (finding,) = rule.check(parse_json(SourceFile("ds.json", text)), Context(deepspeed=VersionFact("==0.13.0")))
    return finding  # type: ignore[no-any-return]


@pytest.mark.parametrize(("switch", "case"), [({}, "missing"), ({_KEY: False}, "false")])
def test_the_switch_is_probed_as_the_config_has_it(switch: dict[str, Any], case: str) -> None:
    found = _chosen(_config_finding(gather, {"stage": 3, **switch}))
    assert found == (f"zero3-weights-not-saved/{case}", {"stage": 3, "gather": switch.get(_KEY)})


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_race_is_probed_at_the_stage_of_the_config(stage: int) -> None:
    found = _chosen(_config_finding(overlap, {"stage": stage, "overlap_comm": True}))
    assert found is not None
    assert (found[0], found[1]["stage"]) == (f"overlap-comm-race/z{stage}", stage)


_TORCH = "import torch\nimport torch.distributed as dist\n"


@pytest.mark.parametrize(
    ("code", "case"),
    [
        ("torch.cuda.set_per_process_memory_fraction(1, 0)", "integer"),
        ("torch.cuda.set_per_process_memory_fraction(1.5, 0)", "above-1"),
        ("torch.cuda.set_per_process_memory_fraction(0.8)\ntorch.cuda.set_device(1)", "before-set-device"),
        (
            "torch.cuda.set_device(dist.get_rank())\ntorch.cuda.set_per_process_memory_fraction(0.8, 0)",
            "device-0",
        ),
    ],
)
def test_a_memory_limit_is_probed_with_its_value(code: str, case: str) -> None:
    (finding,) = findings(memory, _TORCH + code)
    found = _chosen(finding)
    assert found is not None
    assert found[0] == f"memory-fraction/{case}"
    assert found[1]["fraction"] == finding.fact("fraction")


def test_a_small_share_has_no_experiment() -> None:
    code = (
        "import deepspeed, torch\nconfig = {'zero_optimization': {'stage': 3}}\ntorch.cuda.set_device(0)\n"
        "torch.cuda.set_per_process_memory_fraction(0.3, 0)\n"
        "deepspeed.initialize(model=torch.nn.Linear(2, 2), config=config)\n"
    )
    (finding,) = findings(memory, code)
    assert finding.fact("mistake") == "small-share"
    assert _chosen(finding) is None


def test_a_file_with_other_shapes_or_no_file_is_wrong() -> None:
    wrong, whole = zero3_weights_not_saved.wrong, [{"said": True, "shapes": {"w": [2, 2]}}]
    assert wrong(whole, whole) is None
    assert wrong([{"said": False, "shapes": {}}], whole) == "`save_16bit_model` returns False and writes no file"
    assert wrong([{"said": True, "shapes": {"w": [0]}}], whole) == "the file holds tensors of other shapes"


@pytest.mark.parametrize(
    ("norm", "is_wrong"), [(1.0, False), (1.01, False), (2.0, True), (0.0, True), (float("nan"), True)]
)
def test_a_norm_off_the_reference_is_wrong(norm: float, is_wrong: bool) -> None:
    found = overlap_comm_race.wrong([{"norms": [norm]}], [{"norms": [1.0]}])
    assert (found is not None) is is_wrong
    step = {"weights": [1.0]}
    assert (zero_gradient_norm.wrong([{"norm": norm, **step}], [{"norm": 1.0, **step}]) is None) is (norm == 1.0)


def test_an_optimizer_behind_the_engine_is_told_by_weights_or_count() -> None:
    wrong = client_optimizer_step.wrong
    good = [{"weights": [2.0], "start": [1.0], "steps": 2}]
    assert wrong(good, good) is None
    assert wrong([{"weights": [1.0], "start": [1.0], "steps": 2}], good) == "the weights never moved"
    assert wrong([{"weights": [2.0], "start": [1.0], "steps": 0}], good) == "the engine counts 0 steps instead of 2"
    assert "away from" in str(wrong([{"weights": [3.0], "start": [1.0], "steps": 2}], good))


def test_other_oracles_speak_of_what_they_compare() -> None:
    assert memory_fraction.wrong([{"limit": 0.9}, {"limit": 1.0}], [{"limit": 0.9}] * 2) == (
        "the GPU of rank 1 is not limited: its fraction is 1"
    )
    spread, one = [{"files": [["a"], ["b", "c"]]}], [{"files": [["a", "b", "c"]]}]
    assert checkpoint_tag_per_rank.wrong(one, one) is None
    assert checkpoint_tag_per_rank.wrong(spread, one) == (
        "the checkpoint is spread over 2 folders: 1 of 3 files; 2 of 3 files"
    )
    touched = [{"value": [0.0], "weights": [1.0]}]
    assert zero3_parameter_outside_gather.wrong(touched, touched) is None
    assert "reads [0.0]" in str(zero3_parameter_outside_gather.wrong(touched, [{"value": [2.0], "weights": [1.0]}]))
    clipped = [{"weights": [1.0], "norms": []}]
    assert clip_grad_norm_bypassed.wrong(clipped, clipped) is None
    assert "returns the norm 0 and" in str(clip_grad_norm_bypassed.wrong([{"weights": [2.0], "norms": [0.0]}], clipped))
