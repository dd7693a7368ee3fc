"""A config is judged by the releases that a project uses, and by the newest one: what holds now, for some, or later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dslint.core.source import SourceFile
from dslint.model.context import Context, VersionFact
from dslint.model.deepspeed.history import defaults_in_use, points_in_use, release_in_use
from dslint.model.deepspeed.judged import Judged, judged
from dslint.model.deepspeed.schema import NEWEST, load_schema, numbers, point_of, properties, violations
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.parse.jsondoc import parse_json


def document(config: dict[str, Any]) -> DataDoc:
    return parse_json(SourceFile("ds.json", json.dumps({"train_batch_size": 8, **config})))


def judge(config: dict[str, Any], version: str) -> list[Judged]:
    return list(judged(document(config), VersionFact(version)))


def said(config: dict[str, Any], version: str) -> list[tuple[str, str, str | None]]:
    return [(j.violation.kind, j.reach, j.since) for j in judge(config, version)]


AMP = {"amp": {"enabled": False}}
LOSS_SCALE = {"bf16": {"enabled": True, "loss_scale": 0}}
ZENFLOW: dict[str, Any] = {"zero_optimization": {"stage": 2, "zenflow": {}}}
BUCKET = {"zero_optimization": {"stage": 1, "reduce_bucket_size": 0}}
HALF = {"zero_optimization": {"stage": 1, "reduce_bucket_size": 1.5}}
MICS = {"zero_optimization": {"stage": 3, "mics_shard_size": -1}}
THREADS = {"aio": {"thread_count": 2}}


@pytest.mark.parametrize(
    ("config", "version", "expected"),
    [
        (AMP, "==0.19.8", [("removed", "all", "0.19.8")]),
        (AMP, "==0.16.9", [("removed", "later", "0.19.8")]),
        (AMP, ">=0.16", [("removed", "some", "0.19.8")]),
        (AMP, "", [("removed", "all", "0.19.8")]),
        (MICS, "==0.19.7", [("removed", "all", "0.19.7")]),
        (MICS, "==0.9.0", [("unknown", "all", None)]),
        (LOSS_SCALE, "==0.17.1", [("unknown", "all", "0.17.1")]),
        (LOSS_SCALE, ">=0.17.1,<0.19", [("unknown", "all", "0.17.1")]),
        (LOSS_SCALE, ">=0.16,<0.18", [("unknown", "some", "0.17.1")]),
        (ZENFLOW, "==0.17.4", [("unknown", "all", None)]),
        (ZENFLOW, "==0.17.5", []),
        (ZENFLOW, ">=0.16", []),
        (BUCKET, "==0.19.6", [("value", "all", "0.19.6")]),
        (BUCKET, "==0.19.5", [("value", "later", "0.19.6")]),
        # pydantic 1 cut the half off.
        (HALF, "==0.15.0", [("type", "all", "0.15.0")]),
        (HALF, "==0.14.5", [("type", "later", "0.15.0")]),
        (THREADS, "==0.16.3", [("unknown", "later", "0.16.4")]),
        (THREADS, "==0.16.4", [("unknown", "all", "0.16.4")]),
        ({"communication_data_type": "bf16"}, "==0.12.6", [("value", "all", None)]),
        ({"communication_data_type": "bf16"}, "==0.14.1", []),
        ({"amp": {}}, "==0.16.9", [("missing", "all", None)]),
    ],
)
def test_the_releases_in_use_judge_and_then_the_newest(config: Any, version: str, expected: list[Any]) -> None:
    assert said(config, version) == expected


def test_what_every_release_refuses_has_no_first_release() -> None:
    (found,) = judge({"zero_optimization": {"stage": 4}}, "==0.16.9")
    assert (found.reach, found.since) == ("all", None)
    assert found.standing()[1] == "DeepSpeed 0.16.9 stops"


def test_a_later_refusal_is_an_information_and_names_both_releases() -> None:
    (found,) = judge(BUCKET, "==0.19.5")
    severity, who = found.standing()
    assert severity.value == "info"
    assert who == "DeepSpeed 0.19.5 accepts it, 0.19.6 and later stop"


def test_values_that_only_a_run_knows_are_no_violation_but_their_keys_may_be() -> None:
    plain = document({"zero_optimization": {"stage": 2}, "scheduler": {}})
    spans = {
        "/zero_optimization/stage": plain.values["/zero_optimization/stage"],
        "/zero_optimisation": plain.keys["/scheduler"],
    }
    plain.data["zero_optimization"].pop("stage")
    plain.keys["/zero_optimisation"] = plain.values["/zero_optimisation"] = spans["/zero_optimisation"]
    plain.opaque = {"/zero_optimization/stage": "an argument", "/zero_optimisation": "an argument"}
    assert [(v.kind, v.pointer) for v in violations(plain)] == [("unknown", "/zero_optimisation")]


def test_an_object_that_a_run_may_complete_lacks_nothing() -> None:
    doc = document({"amp": {}})
    doc.open_objects = frozenset({"/amp"})
    assert violations(doc, "0.16.9") == ()


@pytest.mark.parametrize(
    ("version", "expected"),
    [("==0.19.2", 0.0), ("==0.19.3", 1.0), ("", 1.0), (">=0.12,<0.19", 0.0), (">=0.12", None)],
)
def test_the_default_is_that_of_the_releases_in_use(version: str, expected: float | None) -> None:
    view = view_of(document({}), Context(deepspeed=VersionFact(version)))
    fact = view.or_default("/gradient_clipping", view.number("/gradient_clipping"))
    assert (fact.get() if fact.is_known else None) == expected


def test_a_range_is_judged_by_its_newest_release() -> None:
    assert release_in_use(VersionFact(">=0.12,<0.17")) == "0.16.9"
    assert release_in_use(VersionFact("==0.16.9+cu118")).startswith("0.16.9")
    assert release_in_use(VersionFact()) == NEWEST
    assert points_in_use(VersionFact("==0.16.9")) == ("0.16.6",)
    assert points_in_use(VersionFact("==0.30.0")) == (NEWEST,)
    assert defaults_in_use("/steps_per_print", VersionFact("==0.15.1")) == [10]


@pytest.mark.parametrize(
    ("release", "point"),
    [("0.10.3", "0.10.3"), ("0.18.2", "0.18.1"), ("0.5.0", "0.9.0"), ("1.0", NEWEST), ("?", "0.9.0")],
)
def test_each_release_is_described_by_the_last_change_before_it(release: str, point: str) -> None:
    assert point_of(release) == point


@pytest.mark.parametrize("release", ["0.10.3", "0.12.6", "0.14.5", "0.15.4", "0.16.9", "0.17.6", "0.18.9", "0.19.3"])
def test_removed_keys_are_sections_with_types_in_older_releases(release: str) -> None:
    schema = load_schema(release)
    for key in ("amp", "elasticity", "curriculum_learning", "progressive_layer_drop", "compression_training", "nebula"):
        assert schema["properties"][key]["type"] == "object"
        assert schema["properties"][key]["properties"]
    assert schema["properties"]["sparse_gradients"]["type"] == "boolean"
    assert ("removed" in properties("/zero_optimization", release)["mics_shard_size"].get("x-dslint", {})) is False
    assert numbers(schema["$id"].rpartition(":")[2]) <= numbers(release)


@pytest.mark.parametrize(
    ("pointer", "value", "expected"),
    [
        ("/zero_optimization/offload_optimizer/ratio", "1.5", "at most 1"),
        ("/zero_optimization/offload_optimizer/ratio", "0.5", None),
        ("/zero_optimization/sub_group_size", "5_0", None),
    ],
)
def test_numbers_in_quotes_are_compared_with_limits(pointer: str, value: str, expected: str | None) -> None:
    config: dict[str, Any] = {}
    at = config
    for part in pointer.split("/")[1:-1]:
        at = at.setdefault(part, {})
    at[pointer.rpartition("/")[2]] = value
    found = [
        v.expected for v in violations(parse_json(SourceFile("ds.json", json.dumps(config)))) if v.pointer == pointer
    ]
    assert [expected in text for text in found] == ([True] if expected else [])  # type: ignore[operator]
