"""The interpolations of OmegaConf (``${optim.lr}``, ``${.stage}``): which value of the same file they stand for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dslint.parse.data import DataDoc, join_pointer, split_pointer

# ``${oc.env:X}`` and other resolvers are a program's; ``${a.${b}}`` is nested: neither is a path.
_PATH = re.compile(r"\$\{(\.*)([\w\-]+(?:\.[\w\-]+|\[[\w\-]+\])*)\}")
_PART = re.compile(r"[\w\-]+")
# A number for OmegaConf and YAML 1.2; YAML 1.1 wants a dot and a sign in it, and PyYAML reads a text.
_NUMBER = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+|[-+]?\.[0-9]+[eE][-+]?[0-9]+")
# What OmegaConf calls a value that somebody must give.
_MANDATORY = "???"
_DEEPEST = 10

NEEDS_RUN = "an interpolation that another file, the environment or the command line decides"
NOT_GIVEN = "`???`: the command line or another file must give it"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a text with interpolations stands for: a value, and the pointer of it where it is one as a whole."""

    value: Any
    pointer: str = ""


def is_open(text: str) -> bool:
    """Whether a text is none by itself."""
    return "${" in text or text == _MANDATORY


def why_open(text: str) -> str:
    """Why a run alone knows what stands for a text."""
    return NOT_GIVEN if text == _MANDATORY else NEEDS_RUN


def number_at(doc: DataDoc, pointer: str) -> float | None:
    """The number without quotes at a pointer, in a form that PyYAML takes for a text; ``None`` for anything else."""
    span = doc.values[pointer]
    found = _NUMBER.fullmatch(doc.source.text, span.start, span.end)
    return float(found[0].replace("_", "")) if found is not None else None


def resolve(doc: DataDoc, pointer: str, text: str, depth: int = 0) -> Standing | None:
    """What stands in the same file for the text at a pointer; ``None`` where only a run knows."""
    if text == _MANDATORY or depth > _DEEPEST:
        return None
    whole = _PATH.fullmatch(text)
    if whole is not None:
        return _target(doc, pointer, whole, depth)
    parts: list[str] = []
    at = 0
    for match in _PATH.finditer(text):
        found = _target(doc, pointer, match, depth)
        if found is None or isinstance(found.value, (dict, list)):
            return None
        number = number_at(doc, found.pointer) if found.pointer else None
        parts += [text[at : match.start()], str(found.value if number is None else number)]
        at = match.end()
    rest = text[at:]
    return None if not at or "${" in rest or any("${" in p for p in parts) else Standing("".join((*parts, rest)))


def _target(doc: DataDoc, pointer: str, match: re.Match[str], depth: int) -> Standing | None:
    base: list[str] = []
    if match[1]:
        # One dot is the mapping around the value, each further one the mapping around that.
        around = split_pointer(pointer)
        if len(match[1]) > len(around):
            return None
        base = around[: len(around) - len(match[1])]
    target = ""
    for part in (*base, *_PART.findall(match[2])):
        target = join_pointer(target, part)
    if not doc.has(target) or pointer == target or pointer.startswith(target + "/"):
        return None
    value = doc.get(target)
    if isinstance(value, str) and is_open(value):
        return resolve(doc, target, value, depth + 1)
    return Standing(value, target)
