"""Which JSON and YAML files are DeepSpeed's or accelerate's business, and which are left alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dslint.core.source import SourceFile
from dslint.model.deepspeed.detect import (
    is_accelerate_config,
    is_deepspeed_config,
    is_template,
    may_be_accelerate_config,
    may_be_deepspeed_config,
)
from dslint.parse.jsondoc import parse_json


def recognised(name: str, content: Any) -> bool:
    text = content if isinstance(content, str) else json.dumps(content, indent=2)
    found = is_deepspeed_config(name, parse_json(SourceFile(name, text)).data)
    # The byte test may only spare parses, never lose a config; it is what knows Jinja statements.
    assert may_be_deepspeed_config(name, text.encode()) or not found or "{%" in text
    return found and may_be_deepspeed_config(name, text.encode())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ds_config.json", {"train_batch_size": 8}),
        ("zero2.json", {"zero_optimization": {"stage": 2}}),
        ("settings.json", {"zero_optimization": {"stage": 2}}),
        ("x.json", {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam", "params": {}}}),
        ("x.json", {"fp16": {"enabled": True}, "bf16": {"enabled": False}, "gradient_clipping": 1.0}),
        ("x.json", {"zero_optimisation": {"stage": 3, "overlap_comm": True}}),
        ("x.json", {"zero_optimizaton": {"stage": 3}, "train_batch_size": 32}),
        ("x.json", {"train_micro_batch_size": 4, "gradient_accumulation_step": 2, "fp16": {"enabled": True}}),
        ("x.json", {"zero": {"stage": 3, "overlap_comm": True}, "train_batch_size": 4}),
        ("x.json", {"Zero_Optimization": {"stage": 1}}),
        ("zero3.json", {"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}, "train_batch_size": "auto"}),
        ("ds.hjson", "# comment\ntrain_batch_size: 8\nsteps_per_print: 10\n"),
        ("ds_config.jsonc", '{"train_batch_size": 8, // eight\n}'),
        ("ds_config", '{"train_batch_size": 8, "fp16": {"enabled": true}}'),
        ("ds_config.json", '{"train_batch_size": 8, "fp16": {"enabled": true}'),
        ("ds_config.json", ""),
        ("ds_config.json", "[" * 10_000),
        ("deepspeed_config.json", {"train_batch_size": 8, "wandb": {"enabled": True, "project": "MY_PROJECT"}}),
        ("x.json", {"_comment": "for 8 GPUs", "zero_optimization": {"stage": 2, "offload_param": None}}),
    ],
)
def test_a_deepspeed_config_is_recognised(name: str, content: Any) -> None:
    assert recognised(name, content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("package.json", {"name": "x", "scripts": {"build": "tsc"}, "dependencies": {"optimizer": "1"}}),
        ("config.json", {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16"}),
        ("config.json", {"model_type": "qwen", "bf16": True, "fp16": False, "num_hidden_layers": 32}),
        ("tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer", "model_max_length": 2048}),
        (
            "tune.json",
            {
                "num-layers": 12,
                "hidden-size": 768,
                "pipe-parallel-size": 1,
                "zero_optimization": {"stage": [0, 1]},
                "fp16": {"enabled": True},
                "optimizer": {"type": "Adam", "params": {"lr": 0.1}},
                "steps_per_print": 10,
                "wall_clock_breakdown": True,
            },
        ),
        ("trainer_state.json", {"train_batch_size": 4, "log_history": [], "global_step": 10, "epoch": 1.0}),
        ("args.json", {"per_device_train_batch_size": 4, "bf16": True, "fp16": False, "deepspeed": "z.json"}),
        (
            "config.json",
            {
                "optimizer": {"type": "Adam", "params": {"lr": 1}},
                "scheduler": {"type": "StepLR", "params": {}},
                "model": {},
                "train_batch_size": 3,
            },
        ),
        ("z0_gas1_tmbspg1.json", {"name": "z0", "ds_config": {"train_batch_size": 4}, "num_gpus": 1, "exp_id": 3}),
        ("test_input.json", {"input": {"gradient_accumulation_steps": 4, "fp16": False, "optimizer": "adamw"}}),
        ("a.json", {"distributed_type": "DEEPSPEED", "deepspeed_config": {"gradient_accumulation_steps": 1}}),
        ("data.json", '[{"fp16": 1, "zero_optimization": {"stage": 2}}]'),
        ("ds_config.py", '{"train_batch_size": 8}'),
        ("ds_config.json.template", '{"train_batch_size": 8}'),
        ("zero_shot_results.json", {"accuracy": 0.5, "train_batch_size_seen": 3}),
        ("anything.json", "null"),
        ("bert.json", {"train_batch_size": 32, "gradient_accumulation_steps": 1, "model": {}, "data": {}, "seed": 1}),
    ],
)
def test_another_json_file_is_left_alone(name: str, content: Any) -> None:
    assert not recognised(name, content)


@pytest.mark.parametrize(
    "member",
    [
        '"train_batch_size": CONFIG_BATCH_SIZE',
        '"train_batch_size": GB_SIZE',
        '"train_batch_size": ${BATCH}',
        '"train_batch_size": "${BATCH}"',
        '"train_batch_size": {{ batch }}',
        '"gradient_clipping": "<CLIP>"',
        '"optimizer": {"type": "AdamW", "params": {"lr": LR}}',
        '"zero_allow_untested_optimizer": __FLAG__',
        '{% if fp16 %}\n"steps_per_print": 1\n{% endif %}\n"train_batch_size": 8',
    ],
)
def test_a_template_is_not_judged(member: str) -> None:
    text = '{"zero_optimization": {"stage": 2},\n' + member + "\n}"
    assert not recognised("ds_config.json", text)


@pytest.mark.parametrize(
    "data",
    [
        {"train_batch_size": "auto", "optimizer": {"type": "SGD"}, "tensorboard": {"job_name": "RUN_1"}},
        {"aio": {"path": "${NVME_DIR}/x"}, "communication_data_type": "fp32"},
        {"_comment": "SET_ME", "wandb": {"project": "A_B", "group": "<mine and yours", "team": "T_1"}},
    ],
)
def test_names_in_capitals_are_no_placeholders(data: Any) -> None:
    assert not is_template(data)


@pytest.mark.parametrize(
    "data",
    [
        {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "debug": False},
        {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3}},
        {"distributed_type": "MULTI_GPU", "num_processes": 8},
        {"distributed_type": False, "num_processes": 1, "mixed_precision": "no"},
        {"deepspeed_config": {"deepspeed_config_file": "z.json"}, "num_processes": 8, "main_process_port": 1},
        {"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "fsdp_config": {}, "num_processes": 2},
        {"num_processes": 4, "num_machines": 1, "machine_rank": 0, "distributed_type": "DEEPSPED"},
    ],
)
def test_an_accelerate_config_is_recognised(data: Any) -> None:
    assert is_accelerate_config("default_config.yaml", data)
    assert may_be_accelerate_config("default_config.yaml", json.dumps(data).encode())


@pytest.mark.parametrize(
    "data",
    [
        {"jobs": {"test": {"runs-on": "ubuntu"}}, "on": "push"},
        {"deepspeed": "ds.json", "bf16": True, "per_device_train_batch_size": 1},
        {"distributed_type": "ring", "name": "x"},
        {"num_processes": 4, "timeout": 3, "mixed_precision": "bf16"},
        {"deepspeed_config": "z.json", "model": "m"},
        {"num_processes": "{{ n }}", "distributed_type": "DEEPSPEED", "compute_environment": "LOCAL_MACHINE"},
        ["compute_environment", "distributed_type"],
        None,
    ],
)
def test_another_yaml_file_is_left_alone(data: Any) -> None:
    assert not is_accelerate_config("x.yaml", data)


KEYS = ["zero_optimization", "train_batch_size", "fp16", "optimizer", "scheduler", "type", "x", "_c", "model_type"]
ACCELERATE = ["compute_environment", "distributed_type", "deepspeed_config", "num_processes"]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from([*KEYS, *ACCELERATE])


@settings(deadline=None)
@given(
    st.dictionaries(keys, values), st.sampled_from(["ds_config.json", "x.json", "zero3.json", "a/b.hjson", "c.yaml"])
)
@example({"optimizer": {"type": {}, "params": 1}, "fp16": {"enabled": []}}, "x.json")
@example({"compute_environment": {}, "distributed_type": [1]}, "c.yaml")
def test_any_data_gets_an_answer_and_the_byte_test_never_loses_a_config(data: Any, name: str) -> None:
    raw = json.dumps(data).encode()
    assert may_be_deepspeed_config(name, raw) or not is_deepspeed_config(name, data)
    assert may_be_accelerate_config(name, raw) or not is_accelerate_config(name, data)


def test_a_data_file_of_megabytes_is_not_parsed() -> None:
    raw = b'{"fp16": 1, "x": "' + b"x" * 1_000_000 + b'"}'
    assert not may_be_deepspeed_config("data.json", raw)
    assert may_be_deepspeed_config("ds_config.json", raw)
