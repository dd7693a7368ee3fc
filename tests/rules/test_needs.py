"""A config rule is loaded only for configs that hold what it ``needs``: on all others it must have nothing to say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from dslint.core.fact import known
from dslint.core.source import SourceFile
from dslint.model.context import Context, VersionFact
from dslint.model.deepspeed.detect import JSON_SUFFIXES
from dslint.parse.data import DataDoc, split_pointer
from dslint.parse.jsondoc import parse_json
from dslint.rules.index import RULES
from dslint.rules.info import RuleInfo
from dslint.rules.registry import load_rule

CONFIG_RULES = [rule for rule in RULES if rule.kind == "config"]
CONTEXTS = (
    Context(),
    Context(consumer=known("hf"), deepspeed=VersionFact("==0.19.8"), world_size=known(8)),
    Context(consumer=known("deepspeed"), deepspeed=VersionFact("==0.14.0"), world_size=known(8)),
    Context(consumer=known("deepspeed"), deepspeed=VersionFact(">=0.16,<0.19.6")),
)


def configs_of(code: str) -> Iterator[DataDoc]:
    for example in load_rule(code).examples:
        for name, text in example.files.items():
            if name.endswith(JSON_SUFFIXES):
                yield parse_json(SourceFile(name, text))


@cache
def every_config() -> tuple[DataDoc, ...]:
    return tuple(doc for rule in CONFIG_RULES for doc in configs_of(rule.code))


def without(data: Any, pointers: tuple[str, ...]) -> DataDoc:
    """The config without the members at some pointers."""
    data = deepcopy(data)
    for pointer in pointers:
        *path, last = split_pointer(pointer)
        at = data
        for part in path:
            at = at.get(part) if isinstance(at, dict) else None
        if isinstance(at, dict):
            at.pop(last, None)
    return parse_json(SourceFile("ds.json", json.dumps(data)))


def said(rule: RuleInfo, doc: DataDoc) -> list[str]:
    check = load_rule(rule.code).module.check
    return [finding.message for context in CONTEXTS for finding in check(doc, context)]


@pytest.mark.parametrize("rule", [rule for rule in CONFIG_RULES if rule.needs], ids=lambda rule: rule.code)
def test_a_rule_is_silent_where_nothing_that_it_needs_stands(rule: RuleInfo) -> None:
    own = list(configs_of(rule.code))
    assert any(rule.may_concern(doc) for doc in own)
    for doc in every_config():
        assert rule.may_concern(doc) or said(rule, doc) == []
    for doc in own:
        rest = without(doc.data, rule.needs)
        assert not rule.may_concern(rest)
        assert said(rule, rest) == []


def test_needs_of_config_rules_are_pointers() -> None:
    for rule in RULES:
        assert rule.kind != "config" or all(pointer.startswith("/") for pointer in rule.needs)
        assert not rule.needs or rule.kind in ("config", "launch", "plan")
