"""The committed schema: valid, up to date with its generator, and right about configs that DeepSpeed accepts."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from jsonschema import Draft7Validator

from dslint.core.source import SourceFile
from dslint.model.context import VersionFact
from dslint.model.deepspeed.history import is_newer_than, known_since, strict_since
from dslint.model.deepspeed.keys import home_of, misspelled, renamed
from dslint.model.deepspeed.releases import RELEASES
from dslint.model.deepspeed.schema import NEWEST, load_data, load_schema, point_of, schema_at, violations
from dslint.model.deepspeed.suggest import closest, slips
from dslint.parse.jsondoc import parse_json

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "schemas" / "deepspeed" / f"{NEWEST}.schema.json"
GENERATOR = ROOT / "scripts" / "generate_deepspeed_schema.py"

ZENFLOW = "/zero_optimization/zenflow"

GOOD: dict[str, dict[str, Any]] = {
    "plain DeepSpeed": {
        "train_batch_size": 16,
        "gradient_accumulation_steps": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 3e-7}},
        "scheduler": {
            "type": "WarmupLR",
            "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-3, "warmup_num_steps": 1000},
        },
        "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 16, "min_loss_scale": 1},
        "gradient_clipping": 1.0,
        "steps_per_print": 100,
        "wall_clock_breakdown": False,
    },
    "transformers with ZeRO-3 offload": {
        "fp16": {"enabled": "auto", "loss_scale": 0, "hysteresis": 2},
        "bf16": {"enabled": "auto"},
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
        },
        "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_num_steps": "auto"}},
        "zero_optimization": {
            "stage": 3,
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
            "offload_param": {"device": "nvme", "nvme_path": "/local", "buffer_count": 5, "max_in_cpu": 1e9},
            "overlap_comm": True,
            "sub_group_size": 1e9,
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_gather_16bit_weights_on_model_save": True,
        },
        "gradient_clipping": "auto",
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
    },
    "monitors and profilers": {
        "$schema": "https://example.org/ds.schema.json",
        "_comment": ["for one node"],
        "train_micro_batch_size_per_gpu": 2,
        "tensorboard": {"enabled": True, "output_path": "logs/", "job_name": "a"},
        "wandb": {"enabled": True, "team": None, "project": "p"},
        "comms_logger": {"enabled": True, "prof_ops": ["all_reduce"]},
        "flops_profiler": {"enabled": True, "profile_step": 1, "output_file": None},
        "aio": {"block_size": 1048576, "intra_op_parallelism": 1},
        "timers": {"throughput": {"enabled": True}},
        "activation_checkpointing": {"partition_activations": True, "number_checkpoints": None},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "bf16",
        "checkpoint": {"tag_validation": "Ignore", "writer": {"type": "fast"}},
    },
}


def run_generator(source: Path, output: Path, *more: str) -> None:
    command = [sys.executable, str(GENERATOR), str(source), "--output", str(output), *more]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)


def test_the_schema_is_valid_draft_7() -> None:
    Draft7Validator.check_schema(json.loads(SCHEMA.read_text("utf-8")))


@pytest.mark.parametrize("config", GOOD.values(), ids=list(GOOD))
def test_configs_as_in_the_documentation_are_valid(config: dict[str, Any]) -> None:
    assert [e.message for e in Draft7Validator(load_schema()).iter_errors(config)] == []
    assert violations(parse_json(SourceFile("ds.json", json.dumps(config)))) == ()


def test_every_key_has_a_description_or_a_removal_note() -> None:
    bare: list[str] = []

    def walk(node: object, path: str) -> None:
        if isinstance(node, list):
            for inner in node:
                walk(inner, path)
        if not isinstance(node, dict):
            return
        for key, inner in node.get("properties", {}).items():
            if not inner.get("description"):
                bare.append(f"{path}/{key}")
            walk(inner, f"{path}/{key}")
        for keyword in ("anyOf", "oneOf", "items", "additionalProperties", "patternProperties"):
            walk(node.get(keyword), path)

    walk(load_schema(), "")
    assert bare == []


def test_each_schema_has_a_name_of_its_own_that_is_an_absolute_uri() -> None:
    files = list((ROOT / "schemas").rglob("*.schema.json"))
    names = [json.loads(path.read_text("utf-8")).get("$id", "") for path in files]
    assert len(set(names)) == len(files) >= 2
    assert all(urlparse(name).scheme for name in names), names


def test_defaults_in_the_schema_are_valid_by_the_schema() -> None:
    wrong: list[str] = []

    def walk(schema: dict[str, Any], path: str) -> None:
        for key, inner in schema.get("properties", {}).items():
            if "default" in inner and inner["default"] is not None:
                own = Draft7Validator({**inner, "definitions": load_schema()["definitions"]})
                wrong.extend(f"{path}/{key}: {e.message}" for e in own.iter_errors(inner["default"]))
            walk(inner, f"{path}/{key}")

    walk(load_schema(), "")
    assert wrong == []


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_the_generator_gives_the_committed_schema_from_the_installed_deepspeed(tmp_path: Path) -> None:
    if version("deepspeed") != NEWEST:
        pytest.skip(f"another release than {NEWEST} is installed")
    spec = importlib.util.find_spec("deepspeed")
    assert spec is not None
    assert spec.origin is not None
    run_generator(Path(spec.origin).parent, tmp_path / "schema.json", "--version", NEWEST)
    assert (tmp_path / "schema.json").read_bytes() == SCHEMA.read_bytes()


TREES = Path(os.environ.get("DSLINT_DEEPSPEED_TREES", "/nonexistent"))
RELEASED = {
    match[1]: path for path in TREES.glob("deepspeed-*") if (match := re.match(r"deepspeed-([\d.]+\d)", path.name))
}


@pytest.mark.skipif(
    not RELEASED, reason="DSLINT_DEEPSPEED_TREES names no folder with deepspeed-<version> trees or sdists"
)
@pytest.mark.parametrize("release", sorted(RELEASED))
def test_the_generator_gives_the_committed_schema_from_a_released_source(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte where the release has a file, in what is accepted where an older one describes it."""
    run_generator(RELEASED[release], tmp_path / "schema.json", "--version", release)
    text, point = (tmp_path / "schema.json").read_text("utf-8"), point_of(release)
    committed = (SCHEMA.parent / f"{point}.schema.json").read_text("utf-8")
    if point == release:
        assert text == committed
    monkeypatch.syspath_prepend(str(GENERATOR.parent))
    without_words = importlib.import_module("generate_deepspeed_history").without_words
    assert without_words(json.loads(text)) == without_words(json.loads(committed))


def test_made_up_releases_give_a_schema_and_a_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that comes, a top-level key that comes, a key that is refused, a default that changes."""
    monkeypatch.syspath_prepend(str(GENERATOR.parent))
    schemas = importlib.import_module("generate_deepspeed_history")
    base = "class DeepSpeedConfigModel: ...\nclass DeepSpeedZeroConfig(DeepSpeedConfigModel):\n    stage: int = 0\n"
    reads = (
        "def read(param_dict):\n    get_scalar_param(param_dict, 'gradient_clipping', {})\nA = 'zero_optimization'\n"
    )
    first = {"runtime/zero/config.py": base, "runtime/config.py": reads.format(0.0) + "B = 'amp'\n"}
    second = {
        "runtime/zero/config.py": f"{base}    fresh: bool = False\n",
        "runtime/config.py": reads.format(1.0) + "B = 'log_level'\n_REMOVED_TOP_LEVEL_CONFIG_KEYS = {'amp': 'gone.'}\n",
    }
    for release, files in (("0.18.0", first), ("0.18.1", first), ("0.19.8", second)):
        for name, text in {"runtime/config_utils.py": base, **files}.items():
            path = tmp_path / f"deepspeed-{release}" / "deepspeed" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    built = dict(schemas.built(tmp_path))
    points = schemas.points_of(built)
    history = schemas.history(built, points)
    assert points == ["0.18.0", "0.19.8"]
    assert history["since"] == {"/log_level": "0.19.8", "/zero_optimization/fresh": "0.19.8"}
    assert history["until"] == history["refused"] == {"/amp": "0.19.8"}
    assert history["defaults"] == {"/gradient_clipping": {"0.18.0": 0.0, "0.19.8": 1.0}}
    assert built["0.19.8"]["properties"]["amp"]["not"] == {}


def test_a_violation_names_the_innermost_place() -> None:
    text = '{"train_batch_size": 8,\n "zero_optimization": {"stage": 2,\n  "offload_param": {"device": "CPU"}}}'
    doc = parse_json(SourceFile("ds.json", text))
    (violation,) = violations(doc)
    assert violation.pointer == "/zero_optimization/offload_param/device"
    assert doc.value(violation.pointer).region.line == 3
    assert violation.strict


@pytest.mark.parametrize("text", ["", "[]", "3", "null", '"auto"', "{", '{"zero_optimization": [1, 2'])
def test_what_is_no_config_object_has_no_violations_and_raises_nothing(text: str) -> None:
    assert all(v.pointer for v in violations(parse_json(SourceFile("ds.json", text))))


def test_the_history_speaks_of_keys_that_the_schema_has_in_releases_that_exist() -> None:
    history = load_data("history.json")
    assert history["last"] == NEWEST
    assert history["points"][0] == history["first"]
    assert set(history["points"]) == {path.name.removesuffix(".schema.json") for path in SCHEMA.parent.glob("*.s*")}
    for table in ("since", "until", "refused", "strict_since"):
        for pointer, release in history[table].items():
            assert release in RELEASES, pointer
            before = RELEASES[RELEASES.index(release) - 1]
            assert schema_at(pointer, release) or schema_at(pointer, before), pointer


@pytest.mark.parametrize(
    ("pointer", "since"),
    [
        ("/zero_optimization/stage3_module_granularity_threshold", "0.16.0"),
        ("/zero_optimization/zenflow/topk_ratio", "0.17.5"),
        ("/zero_optimization/zeropp_loco_param", "0.16.2"),
        ("/zero_optimization/stage", None),
        ("/torch_autocast/dtype", "0.17.2"),
        ("/weight_quantization/num_bits", "0.10.3"),
        ("/bf16/enabled", None),
        ("/bf16/bf16_optimizer_states", "0.18.3"),
        # The constant had another value before.
        ("/seq_parallel_communication_data_type", "0.16.5"),
        ("/no_such_key", None),
    ],
)
def test_the_history_knows_the_first_release_of_a_key(pointer: str, since: str | None) -> None:
    assert known_since(pointer) == since


def test_a_key_is_newer_only_where_no_release_in_the_range_has_it() -> None:
    newer = [v for v in ("==0.17.4", "<0.17.5", ">=0.17", "==0.17.5", "") if is_newer_than(ZENFLOW, VersionFact(v))]
    assert newer == ["==0.17.4", "<0.17.5"]


def test_sections_got_their_models_at_different_times() -> None:
    assert strict_since("/fp16/enabled") == strict_since("/fp16") == "0.17.1"
    assert strict_since("/zero_optimization/stage") is None
    assert strict_since("/fp16_x") is None


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("gradient_clipp1ng", "gradient_clipping"),
        ("zero_optimisation", "zero_optimization"),
        ("Zero_Optimization", "zero_optimization"),
        ("gradient-clipping", "gradient_clipping"),
        ("gradient_acumulation_steps", "gradient_accumulation_steps"),
        ("gradient_accumulation_step", "gradient_accumulation_steps"),
        ("schedulre", "scheduler"),
        ("FP16", "fp16"),
    ],
)
def test_a_slip_finds_its_key(wrong: str, right: str) -> None:
    assert misspelled(wrong) == right


@pytest.mark.parametrize("word", ["log", "tp", "amp", "stage", "model", "seed", "fp8", "cuda_visible_devices"])
def test_other_words_are_not_taken_for_a_slip(word: str) -> None:
    assert misspelled(word) is None


@pytest.mark.parametrize(
    ("half", "whole"),
    [
        ("train_micro_batch_size", "train_micro_batch_size_per_gpu"),
        ("train_micro_batch_per_gpu", "train_micro_batch_size_per_gpu"),
        ("grad_accumulation_steps", "gradient_accumulation_steps"),
        ("activation_checkpoint", "activation_checkpointing"),
        ("max_grad_norm", "gradient_clipping"),
        ("stage3_gather_fp16_weights", "stage3_gather_fp16_weights_on_model_save"),
        ("stage3_sub_group_size", "sub_group_size"),
    ],
)
def test_half_a_name_finds_its_key(half: str, whole: str) -> None:
    assert renamed(half, "/zero_optimization" if half.startswith("stage3") else "") == whole


@pytest.mark.parametrize("word", ["train", "model_parallel_size", "train_data", "data_path", "num_gpus", "save_dir"])
def test_other_words_are_not_taken_for_half_a_name(word: str) -> None:
    assert renamed(word) is None


def test_a_swap_of_neighbours_is_one_slip() -> None:
    assert slips("stage", "satge", 2) == 1
    assert slips("kitten", "sitting", 3) == 3
    assert slips("kitten", "sitting", 2) is None
    assert closest("overlap_com", ["overlap_comm", "comet"]) == "overlap_comm"


def test_a_misplaced_key_has_one_home() -> None:
    assert home_of("overlap_comm") == "/zero_optimization"
    assert home_of("gradient_clipping", not_in="/zero_optimization") == ""
    assert home_of("enabled") is None
    assert home_of("buffer_size", not_in="/zero_optimization/offload_optimizer") == "/zero_optimization/offload_param"
    assert home_of("lr") == "/optimizer/params"
