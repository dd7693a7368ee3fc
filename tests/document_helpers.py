"""Helpers for tests of the readers of JSON and YAML."""

from __future__ import annotations

import math
from typing import Any

from dslint.core.source import Span
from dslint.parse.data import DataDoc, join_pointer


def cut(doc: DataDoc, span: Span) -> str:
    """The text of a span."""
    return doc.source.text[span.start : span.end]


def walk(value: Any, pointer: str = "") -> list[tuple[str, Any]]:
    """Every value with its pointer, outer ones first."""
    found = [(pointer, value)]
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in members:
        found += walk(child, join_pointer(pointer, key))
    return found


def same(a: Any, b: Any, *, in_order: bool = True) -> bool:
    """Equal values of equal types: 1, 1.0 and True differ, NaN equals NaN; merged keys may have any order."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = list(a) == list(b) if in_order else set(a) == set(b)
        return keys and all(same(a[k], b[k], in_order=in_order) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, in_order=in_order) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return type(a) is type(b) and a == b
