"""``jq '.zero_optimization.stage = 3' a.json > b.json``: what a filter of assignments makes of a config."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dslint.core.source import Location, Span
from dslint.model.embedded.shelltext import MARK, REASON, Written
from dslint.parse.data import DataDoc, join_pointer

_NAME = re.compile(r'\.?\s*(?:([A-Za-z_]\w*)|"([^"\\]*)"|\[\s*"([^"\\]*)"\s*\])')
_PATH = re.compile(
    r'\.(?:[A-Za-z_]\w*|"[^"\\]*"|\[\s*"[^"\\]*"\s*\])(?:\.?\s*\[\s*"[^"\\]*"\s*\]|\.[A-Za-z_]\w*|\."[^"\\]*")*'
)
_SETS = re.compile(r"\s*(=|\|=|\+=|-=|\*=|/=|//=)(?!=)\s*")
_VARIABLE = re.compile(r"\(?\s*\$(\w+)\s*(\|\s*tonumber\s*)?\)?\s*\Z")
_ENVIRONMENT = re.compile(r"\(?\s*(?:\$ENV|env)\.(\w+)\s*(\|\s*tonumber\s*)?\)?\s*\Z")
_OPENS, _CLOSES = "([{", ")]}"
# From here on `jq` writes an exponent.
_WRITTEN_WHOLE = 1e17
UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class Assignment:
    """One change: of the member at a pointer, or (``""``) of the members that a mapping brings.

    ``span`` is its place in the filter. ``is_deep``: mappings are merged (``*``). ``removes``: ``del(...)``.
    """

    pointer: str
    value: Any
    span: Span
    is_deep: bool = False
    removes: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter with the values of its variables; of the environment what is known."""

    text: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def assignments(self) -> list[Assignment] | None:
        """Return what the filter changes; ``None`` where it does anything else."""
        found: list[Assignment] = []
        for start, stage in _stages(self.text):
            step = self._stage(start, stage)
            if step is None:
                return None
            found += step
        return found

    def _stage(self, start: int, stage: str) -> list[Assignment] | None:
        text = stage.strip()
        start += len(stage) - len(stage.lstrip())
        whole = Span(start, start + len(text))
        if text in (".", ""):
            return []
        if text.startswith("(") and text.endswith(")") and _closing(text, 0) == len(text) - 1:
            return self._stage(start + 1, text[1:-1])
        if text.startswith("del(") and text.endswith(")"):
            paths = [part.strip() for part in text[4:-1].split(",")]
            if any(_PATH.fullmatch(path) is None for path in paths):
                return None
            return [Assignment(_pointer(path), None, whole, removes=True) for path in paths]
        merged = re.match(r"\.\s*([+*])\s*(?=\{)", text)
        if merged is not None:
            value = self._value(text[merged.end() :])
            return [Assignment("", value, whole, is_deep=merged[1] == "*")] if isinstance(value, dict) else None
        path = _PATH.match(text)
        sets = _SETS.match(text, path.end()) if path is not None else None
        if path is None or sets is None or MARK in path[0]:
            return None
        value = self._value(text[sets.end() :]) if sets[1] in ("=", "|=") else UNKNOWN
        return [Assignment(_pointer(path[0]), value, whole)]

    def _value(self, text: str) -> Any:
        text = text.strip()
        variable, from_outside = _VARIABLE.match(text), _ENVIRONMENT.match(text)
        if variable is not None:
            return _number(self.variables.get(variable[1], UNKNOWN), bool(variable[2]))
        if from_outside is not None:
            return _number(self.environment.get(from_outside[1], UNKNOWN), bool(from_outside[2]))
        plain = re.sub(r"([{,]\s*)([A-Za-z_]\w*)(\s*:)", r'\1"\2"\3', text)
        return UNKNOWN if MARK in text else parsed(plain)


def filtered(doc: DataDoc, steps: list[Assignment], places: Mapping[int, Location]) -> DataDoc:
    """Return the document after some changes; ``places`` says where each stands, by its number."""
    made = replace(
        doc,
        data=copy.deepcopy(doc.data),
        keys=dict(doc.keys),
        values=dict(doc.values),
        members={},
        duplicates=(),
        trailing_commas=(),
        comments=(),
        relaxed=(),
        opaque=dict(doc.opaque),
        elsewhere=dict(doc.elsewhere),
        dialect="none",
        is_embedded=True,
    )
    for number, step in enumerate(steps):
        if step.removes:
            _remove(made, step.pointer)
        elif step.pointer:
            _set(made, step.pointer, step.value, places[number])
        else:
            for pointer, value in _leaves("", step.value, made if step.is_deep else None):
                _set(made, pointer, value, places[number])
    made.computed = frozenset((*doc.computed, *made.elsewhere))
    made.data = _whole(made.data)
    return made


def _whole(value: Any) -> Any:
    """Return the numbers as ``jq`` writes them: ``0.0`` is 0."""
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _WRITTEN_WHOLE else value


def _set(doc: DataDoc, pointer: str, value: Any, place: Location) -> None:
    """Put a value at a pointer, whatever stood there."""
    at, top = doc.data, ""
    *around, last = pointer[1:].split("/")
    for part in around:
        top += f"/{part}"
        if not isinstance(at, dict) or (part in at and not isinstance(at[part], dict)):
            return
        if part not in at:
            at[part] = {}
            _note(doc, top, place)
        at = at[part]
    if not isinstance(at, dict):
        return
    _remove(doc, pointer)
    _note(doc, pointer, place)
    if value is UNKNOWN:
        doc.opaque = {**doc.opaque, pointer: REASON}
        return
    at[last] = copy.deepcopy(value)
    for inner, _ in _below(pointer, value):
        _note(doc, inner, place)


def _note(doc: DataDoc, pointer: str, place: Location) -> None:
    around = pointer
    while around not in doc.values:
        around = around.rpartition("/")[0]
    whole = doc.values[around]
    doc.keys[pointer] = doc.values[pointer] = Span(whole.start, whole.start)
    doc.elsewhere = {**doc.elsewhere, pointer: place}


def _remove(doc: DataDoc, pointer: str) -> None:
    at = doc.get(pointer.rpartition("/")[0])
    if isinstance(at, dict):
        at.pop(pointer.rpartition("/")[2], None)
    doc.forget(pointer)
    below = f"{pointer}/"
    doc.opaque = {p: why for p, why in doc.opaque.items() if p != pointer and not p.startswith(below)}
    doc.elsewhere = {p: place for p, place in doc.elsewhere.items() if p != pointer and not p.startswith(below)}


def _below(pointer: str, value: Any) -> Iterator[tuple[str, Any]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in members:
        at = join_pointer(pointer, key)
        yield at, inner
        yield from _below(at, inner)


def _leaves(pointer: str, value: dict[str, Any], into: DataDoc | None) -> Iterator[tuple[str, Any]]:
    """Yield the members that a mapping brings: those of mappings one by one where they are merged."""
    for key, inner in value.items():
        at = join_pointer(pointer, key)
        if into is not None and isinstance(inner, dict) and isinstance(into.get(at), dict):
            yield from _leaves(at, inner, into)
        else:
            yield at, inner


def _number(value: Any, is_number: bool) -> Any:
    return parsed(value) if is_number and isinstance(value, str) else value


def parsed(text: str) -> Any:
    """Return the value that a text of JSON is."""
    try:
        return json.loads(text)
    except ValueError:
        return UNKNOWN


def _pointer(path: str) -> str:
    pointer = ""
    for match in _NAME.finditer(path):
        pointer = join_pointer(pointer, match[1] or match[2] or match[3])
    return pointer


def _stages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a filter between the bars at its top, each with its begin."""
    start = at = 0
    while at < len(text):
        char = text[at]
        if char == '"':
            at = _quoted(text, at)
        elif char in _OPENS:
            at = _closing(text, at)
        elif char == "|" and text[at + 1 : at + 2] != "=":
            yield start, text[start:at]
            start = at + 1
        at += 1
    yield start, text[start:]


def _quoted(text: str, at: int) -> int:
    """Return where a text in quotes ends."""
    end = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL).match(text, at)
    return end.end() - 1 if end is not None else len(text)


def _closing(text: str, at: int) -> int:
    """Return the bracket that closes the one at an offset."""
    depth = 0
    while at < len(text):
        if text[at] == '"':
            at = _quoted(text, at)
        elif text[at] in _OPENS:
            depth += 1
        elif text[at] in _CLOSES:
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return len(text)


def places_of(words: Written, steps: list[Assignment]) -> dict[int, Location]:
    """Return where each change stands in the script."""
    return {n: words.source.location(words.span(step.span), "changed here") for n, step in enumerate(steps)}
