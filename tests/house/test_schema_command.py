"""``dslint schema``: a schema under the name of the release that was asked for, valid and usable as it is printed."""

from __future__ import annotations

import json

import pytest
from command import dslint
from jsonschema import Draft7Validator

BF16 = {"train_batch_size": 8, "bf16": {"enabled": True, "loss_scale": 0}}
ZENFLOW = {"train_batch_size": 8, "zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}}}
AMP = {"train_batch_size": 8, "amp": {"enabled": False}}


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((), "urn:dslint:deepspeed-config:0.19.8"),
        (("--version", "0.16"), "urn:dslint:deepspeed-config:0.16.9"),
        (("--version", "0.16.x"), "urn:dslint:deepspeed-config:0.16.9"),
        (("--version", "v0.16.3"), "urn:dslint:deepspeed-config:0.16.3"),
        (("--version", "==0.10.3"), "urn:dslint:deepspeed-config:0.10.3"),
    ],
)
def test_the_schema_of_a_release_bears_its_name(arguments: tuple[str, ...], name: str) -> None:
    done = dslint("schema", "deepspeed", *arguments)
    assert done.code == 0
    schema = json.loads(done.out)
    Draft7Validator.check_schema(schema)
    assert schema["$id"] == name
    assert schema["title"] == f"DeepSpeed {name.rpartition(':')[2]} configuration"


@pytest.mark.parametrize(
    ("version", "config", "valid"),
    [
        ("0.19.8", AMP, False), ("0.19.7", AMP, True), ("0.12", AMP, True),
        ("0.17.1", BF16, False),
        ("0.17.5", ZENFLOW, True), ("0.17.4", ZENFLOW, False),
    ],
)  # fmt: skip
def test_the_printed_schema_judges_as_its_release(version: str, config: dict[str, object], valid: bool) -> None:
    schema = json.loads(dslint("schema", "deepspeed", "--version", version).out)
    assert Draft7Validator(schema).is_valid(config) is valid


def test_accelerate_and_dslint_have_one_schema_each() -> None:
    accelerate = json.loads(dslint("schema", "accelerate").out)
    Draft7Validator.check_schema(accelerate)
    config = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 8}
    assert Draft7Validator(accelerate).is_valid(config)
    assert not Draft7Validator(accelerate).is_valid({**config, "num_process": 8})
    settings = json.loads(dslint("schema", "dslint").out)
    assert not Draft7Validator(settings).is_valid({"no-such-setting": 1})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("deepspeed", "--version", "0.16.10"), "did you mean `0.16.9`?"),
        (("deepspeed", "--version", "0.8.3"), "did you mean `0.9.0`?"),
        (("deepspeed", "--version", "1.0"), "did you mean `0.19.8`?"),
        (("deepspeed", "--version", "latest"), "no schema for DeepSpeed `latest`"),
        (("deepspeed", "--version", ""), "no schema for DeepSpeed ``"),
        (("accelerate", "--version", "1.0"), "has one schema"),
        (("transformers",), "invalid choice"),
    ],
)
def test_what_has_no_schema_is_one_line_and_code_2(arguments: tuple[str, ...], said: str) -> None:
    done = dslint("schema", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert said in done.err
    assert done.err.count("\n") == 1
