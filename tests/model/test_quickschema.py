"""What dslint works out of a schema by itself, before jsonschema (slow to load) is asked: both must say the same."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.configs import configs
from dslint.core.source import SourceFile
from dslint.model.deepspeed import schema as schemas
from dslint.model.deepspeed.quickschema import is_valid
from dslint.model.deepspeed.schema import NEWEST, history, load_schema, violations
from dslint.parse.jsondoc import parse_json

# Each kind that a schema tells from others: truth values and numbers, quoted and not, limits, words, containers.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 4, 2**70, 0.0, 0.5, 1.0, -0.5, 5e8, 1e300, float("inf"), float("nan"),
    "", "0", "1", "3", "4.0", "-1", " 5 ", "1_000", "0.5", "1e5", "nan", "auto", "true", "On", "none", "cpu", "nvme",
    "AdamW", "WarmupLR", "O2", [], [1], [0.9, 0.999], ["a"], [True], [1, 2, 3], {}, {"type": "Adam"}, {"enabled": True},
    {"stage": 3}, {"device": "cpu"}, {"no such": 1},
)  # fmt: skip


def judge(point: str) -> Any:
    return schemas._validator(point)


def members(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for inner in schema.get("properties", {}).values():
        yield inner
        yield from members(inner)


def mistaken(config: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """A config with one value replaced or one key added, at any depth."""
    changed = copy.deepcopy(config)
    at = changed
    while True:
        inner = [value for value in at.values() if isinstance(value, dict) and value]
        if not inner or dice.random() < 0.4:
            break
        at = dice.choice(inner)
    at[dice.choice([*at, "no_such_key", "_comment", "enabled", "cpu_offload"])] = dice.choice(VALUES)
    return changed


@pytest.mark.parametrize("point", [history()["points"][0], "0.14.0", NEWEST])
def test_every_setting_takes_the_same_values(point: str) -> None:
    whole = load_schema(point)
    answers = {True: 0, False: 0}
    for schema in members(whole):
        validator = judge(schemas.point_of(point)).evolve(schema={**schema, "definitions": whole["definitions"]})
        for value in VALUES:
            said = is_valid(value, schema, whole)
            assert said is validator.is_valid(value), (schema, value)
            answers[bool(said)] += 1
    assert min(answers.values()) > 1000


def test_every_release_takes_the_same_configs() -> None:
    dice = random.Random(3)
    own = [json.loads(text) for text in configs(9)]
    answers = {True: 0, False: 0}
    for point in history()["points"]:
        whole = load_schema(point)
        for config in [*own[:3], *(mistaken(dice.choice(own), dice) for _ in range(12))]:
            said = is_valid(config, whole, whole)
            assert said is judge(point).is_valid(config), (point, config)
            answers[bool(said)] += 1
    assert min(answers.values()) > 100


@pytest.mark.parametrize(
    "schema",
    [
        {"minLength": 3},
        {"type": "array", "uniqueItems": True},
        {"$ref": "other.json"},
        {"type": "date"},
    ],
    ids=str,
)
def test_an_answer_is_open_where_a_schema_says_more_than_is_read(schema: dict[str, Any]) -> None:
    assert is_valid([1], {"properties": {}, **schema}, {}) is None
    assert is_valid({"a": [1]}, {"properties": {"a": {"not": schema}}}, {}) is None


def test_who_refuses_a_value_says_how() -> None:
    doc = parse_json(SourceFile("ds_config.json", '{"zero_optimization": {"stage": 7}}'))
    assert [v.pointer for v in violations(doc)] == ["/zero_optimization/stage"]
