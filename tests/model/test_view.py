"""A config as its reader will see it: "auto", null, defaults, and values that only a run knows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dslint.core.fact import known
from dslint.core.source import SourceFile
from dslint.model.context import Context, VersionFact
from dslint.model.deepspeed.view import ConfigView
from dslint.parse.jsondoc import parse_json


def view(config: Any, consumer: str = "unknown", version: str = "") -> ConfigView:
    doc = parse_json(SourceFile("ds.json", json.dumps(config)))
    return ConfigView(doc, Context(consumer=known(consumer), deepspeed=VersionFact(version)))


@pytest.mark.parametrize(
    ("config", "consumer", "state", "stage"),
    [
        ({}, "deepspeed", "known", 0),
        ({"zero_optimization": {}}, "deepspeed", "known", 0),
        ({"zero_optimization": {"stage": 3}}, "deepspeed", "known", 3),
        ({"zero_optimization": {"stage": "2"}}, "deepspeed", "known", 2),
        ({"zero_optimization": True}, "deepspeed", "known", 1),
        ({"zero_optimization": {"stage": 7}}, "deepspeed", "unknown", None),
        ({"zero_optimization": {"stage": "auto"}}, "deepspeed", "known", 0),
        ({"zero_optimization": {"stage": "auto"}}, "accelerate", "unknown", None),
        ({"zero_optimization": 5}, "deepspeed", "unknown", None),
    ],
)
def test_the_stage_that_runs(config: Any, consumer: str, state: str, stage: int | None) -> None:
    fact = view(config, consumer).stage
    assert (fact.state, fact.value) == (state, stage)


def test_auto_is_unknown_where_a_trainer_fills_it_and_absent_where_a_model_drops_it() -> None:
    config = {"gradient_clipping": "auto", "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto",
              "allgather_bucket_size": "auto"}}  # fmt: skip
    assert view(config, "hf").fact("/gradient_clipping").is_unknown
    assert view(config, "hf").fact("/zero_optimization/reduce_bucket_size").is_unknown
    assert view(config, "hf").fact("/zero_optimization/allgather_bucket_size").is_absent
    assert view(config, "deepspeed").fact("/zero_optimization/reduce_bucket_size").is_absent


def test_numbers_and_switches_in_quotes_count_in_validated_sections_only() -> None:
    config = {"gradient_clipping": "1.0", "zero_optimization": {"stage": 2, "reduce_bucket_size": "500_000",
              "overlap_comm": "yes"}, "prescale_gradients": "false"}  # fmt: skip
    found = view(config)
    assert found.number("/gradient_clipping").is_unknown
    assert found.number("/zero_optimization/reduce_bucket_size").get() == 500000
    assert found.flag("/zero_optimization/overlap_comm").get() is True
    assert found.flag("/prescale_gradients").is_unknown
    assert found.number("/steps_per_print").is_absent


@pytest.mark.parametrize("value", [1e400, float("nan"), "inf", [], {}, 10**400])
def test_what_is_no_finite_number_is_unknown(value: Any) -> None:
    assert view({"zero_optimization": {"sub_group_size": value}}).number("/zero_optimization/sub_group_size").is_unknown


def test_accelerate_may_set_what_a_config_does_not_say() -> None:
    assert view({}, "accelerate").fact("/bf16/enabled").is_unknown
    assert view({}, "deepspeed").fact("/bf16/enabled").is_absent


def test_values_that_only_a_run_knows_are_unknown() -> None:
    doc = parse_json(SourceFile("ds.json", '{"a": {"b": 1}, "c": {"d": 2}}'))
    doc.opaque, doc.open_objects = {"/a/b": "computed"}, frozenset({"/c"})
    found = ConfigView(doc, Context())
    assert [found.fact(p).state for p in ("/a/b", "/a/x", "/c/d", "/c/x", "/e")] == [
        "unknown", "absent", "known", "unknown", "absent",
    ]  # fmt: skip


def test_a_place_for_what_is_missing() -> None:
    found = view({"zero_optimization": {"stage": 3}})
    assert found.nearest("/zero_optimization/offload_param/device").span == found.key("/zero_optimization").span
    assert found.nearest("/optimizer/type").span.start == 0


def test_lightning_adds_what_is_missing_and_fills_no_auto() -> None:
    config = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"reduce_bucket_size": "auto"}}
    found = view(config, "lightning")
    assert found.number("/zero_optimization/reduce_bucket_size").is_absent
    assert found.fact("/gradient_clipping").is_unknown
    assert found.fact("/bf16/enabled").is_unknown
    assert found.fact("/steps_per_print").is_absent


def test_the_version_of_each_library_has_its_own_range() -> None:
    doc = parse_json(SourceFile("ds.json", "{}"))
    stated = {"transformers": VersionFact("==5.14.1")}
    found = ConfigView(doc, Context(deepspeed=VersionFact("==0.16.9"), libraries=stated))
    assert (found.runs(">=0.19"), found.runs(">=5", of="transformers"), found.runs(">=1", of="accelerate")) == (
        "no", "yes", "maybe",
    )  # fmt: skip
    assert found.library("deepspeed") is found.version
