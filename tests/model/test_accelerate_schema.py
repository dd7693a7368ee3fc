"""The committed schema of accelerate configs: up to date with its generator, right about what accelerate reads."""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib.metadata import files, version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft7Validator

from dslint.model.accelerate.names import is_known, names, newest, releases_of
from dslint.model.context import VersionFact

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "schemas" / "accelerate.schema.json").read_text("utf-8"))
HISTORY = json.loads((ROOT / "schemas" / "accelerate.history.json").read_text("utf-8"))

FILE: dict[str, Any] = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "DEEPSPEED",
    "deepspeed_config": {"zero_stage": 3, "zero3_save_16bit_model": True, "offload_param_device": "none"},
    "mixed_precision": "bf16",
    "num_processes": 8,
    "gpu_ids": None,
    "fsdp_config": {},
}


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    path = ROOT / "scripts" / "generate_accelerate_schema.py"
    spec = importlib.util.spec_from_file_location("generate_accelerate_schema", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def installed() -> Path:
    found = next(f for f in files("accelerate") or () if f.as_posix() == "accelerate/__init__.py")
    return Path(str(found.locate())).parent


def test_the_schema_is_what_the_generator_makes_of_the_installed_release(generator: ModuleType) -> None:
    if version("accelerate") != newest():
        pytest.skip(f"the schema is of accelerate {newest()}")
    release = generator.read(installed())
    assert generator.schema(release, newest()) == SCHEMA
    for table, found in release.names().items():
        assert set(found) == set(names(table)), table


def test_the_history_has_releases_in_order_and_sound_spans(generator: ModuleType) -> None:
    releases = HISTORY["releases"]
    assert releases == sorted(releases, key=generator.number)
    for table in ("keys", "sagemaker_keys", "arguments", "distributed_types", "precisions", "launchers"):
        for name, span in HISTORY[table].items():
            assert set(span) <= {None, *releases}, name
            assert len(span) < 2 or generator.number(span[0] or "0.0.0") < generator.number(span[1]), name


def errors(data: Any) -> list[str]:
    return ["/".join(map(str, e.absolute_path)) for e in Draft7Validator(SCHEMA).iter_errors(data)]


def test_a_file_that_accelerate_reads_is_valid() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert errors(FILE) == []
    sagemaker = {"compute_environment": "AMAZON_SAGEMAKER", "distributed_type": False, "ec2_instance_type": "ml.p3"}
    assert errors(sagemaker) == []


@pytest.mark.parametrize(
    "change",
    [
        {"num_procesess": 8},
        {"distributed_type": "deepspeed"},
        {"mixed_precision": "fp32"},
        {"mixed_precision": False},
        {"gpu_ids": 3},
        {"deepspeed_config": {"zero_stge": 3}},
        {"deepspeed_config": {"zero_stage": "two"}},
        {"deepspeed_config": {"deepspeed_multinode_launcher": "torchrun"}},
    ],
    ids=json.dumps,
)
def test_a_mistake_is_marked(change: dict[str, Any]) -> None:
    assert errors({**FILE, **change})


@pytest.mark.parametrize(
    ("table", "name", "specifier", "known"),
    [
        ("keys", "num_processes", "==0.20.0", True),
        ("keys", "parallelism_config", "==1.9.0", False),
        ("keys", "parallelism_config", "==1.10.0", True),
        ("keys", "parallelism_config", ">=1.0", True),
        ("keys", "parallelism_config", "<1.10", False),
        ("keys", "parallelism_config", "", True),
        ("keys", "ipex_config", "==1.12.0", True),
        ("keys", "ipex_config", ">=1.13", False),
        ("keys", "num_procesess", "", False),
        ("arguments", "deepspeed_moe_layer_cls_names", "==0.29.0", False),
        ("distributed_types", "TPU", "==1.0.0", False),
        ("launchers", "nossh", ">=1.6,<2", True),
    ],
)
def test_a_name_is_unknown_only_when_no_release_in_use_knows_it(
    table: str, name: str, specifier: str, known: bool
) -> None:
    assert is_known(table, name, VersionFact(specifier)) is known


def test_the_releases_of_a_name() -> None:
    assert releases_of("keys", "tp_config") == ("1.4.0", "1.7.0")
    assert releases_of("keys", "num_processes") == (None, None)
    assert releases_of("keys", "no_such_key") is None
