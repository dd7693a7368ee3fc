"""Precision and feature rules beyond their examples: versions, readers, and what the real DeepSpeed said."""

from __future__ import annotations

from typing import Any

import pytest
from test_config_rules import levels, run

ZERO: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("is_bf16", [False, True])
@pytest.mark.parametrize(
    ("dtype", "refused"),
    [
        ("fp64", True),
        ("auto", True),
        (16, True),
        ("fp32", None),
        ("float", None),
        ("bf16", None),
        ("fp16", None),
        (None, False),
    ],
)
def test_grad_accum_dtype_as_the_engine_of_0_19_8_judged_it(
    stage: int, is_bf16: bool, dtype: Any, refused: bool | None
) -> None:
    config = {
        "bf16": {"enabled": is_bf16},
        "zero_optimization": {"stage": stage},
        "data_types": {"grad_accum_dtype": dtype},
    }
    if refused is None:  # a known format: without ZeRO it must be that of the model
        model = "bf16" if is_bf16 else "fp32"
        refused = stage == 0 and {"float": "fp32"}.get(dtype, dtype) != model
    assert levels(run(config, "DSL148", consumer="deepspeed")) == (["error"] if refused else [])


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("enabled", [False, True])
def test_master_weights_as_the_engine_of_0_19_8_judged_them(stage: int, enabled: bool) -> None:
    section = {"enabled": enabled, "bf16_master_weights_and_grads": True}
    config = {**ZERO, "optimizer": {"type": "Adam"}, "bf16": section, "zero_optimization": {"stage": stage}}
    assert levels(run(config, "DSL147")) == ["error"]
    section["bf16_optimizer_states"] = True
    assert levels(run(config, "DSL147")) == (["error"] if stage == 0 else [])
    config["zero_optimization"] = {"stage": stage, "offload_optimizer": {"device": "cpu"}}
    del section["bf16_optimizer_states"]
    assert levels(run(config, "DSL147")) == (["error"] if stage == 0 else [])


def test_a_release_without_the_switches_of_bf16_says_so_elsewhere() -> None:
    config = {**ZERO, "bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}
    assert run(config, "DSL147", version="==0.17.6") == []


def test_the_old_name_of_bf16_is_not_read_beside_the_new_one() -> None:
    config = {"fp16": {"enabled": True}, "bf16": {"enabled": False}, "bfloat16": {"enabled": True}}
    assert run(config, "DSL140") == []
    assert levels(run(config, "DSL141")) == ["warning"]


def test_param_dtype_is_not_read_before_0_19_2() -> None:
    config = {**ZERO, "data_types": {"param_dtype": "bf16"}}
    assert levels(run(config, "DSL149")) == ["error"]
    assert run(config, "DSL149", version="==0.19.1") == []


def test_deepcompile_knows_its_conflicts_since_0_19_4() -> None:
    config = {"zero_optimization": {"stage": 3}, "compile": {"deepcompile": True, "offload_opt_states": True}}
    config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}  # type: ignore[index]
    assert levels(run(config, "DSL139")) == ["warning"]
    assert run(config, "DSL139", version="==0.18.9") == []


def test_curriculum_learning_counts_even_where_data_efficiency_is_off() -> None:
    sampling = {"enabled": False, "curriculum_learning": {"enabled": True}}
    assert levels(run({"data_efficiency": {"enabled": False, "data_sampling": sampling}}, "DSL177")) == ["error"]
    sampling["curriculum_learning"]["curriculum_metrics"] = {}  # type: ignore[index]
    assert run({"data_efficiency": {"enabled": False, "data_sampling": sampling}}, "DSL177") == []


@pytest.mark.parametrize(
    ("version", "enabled", "stage", "refused"),
    [
        ("0.16.9", False, 0, False), ("0.16.9", True, 0, True), ("0.16.9", True, 1, True), ("0.16.9", True, 2, False),
        ("0.17.6", False, 1, True), ("0.17.6", False, 2, False), ("0.19.8", False, 1, False),
        ("0.19.8", False, 0, True),
    ],
)  # fmt: skip
def test_stages_for_master_weights_of_fp16_by_release(version: str, enabled: bool, stage: int, refused: bool) -> None:
    zero = {"stage": stage, "offload_optimizer": {"device": "cpu"}}
    config = {**ZERO, "fp16": {"enabled": enabled, "fp16_master_weights_and_grads": True}, "zero_optimization": zero}
    assert levels(run(config, "DSL147", version=f"=={version}")) == (["error"] if refused else [])
