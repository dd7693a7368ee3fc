"""Ranges of plain release numbers (``>=0.12,<0.17.5``), without the import of a library that knows all of PEP 440.

What is not plain (pre-releases, epochs, ``===``) gives ``None`` and is left to ``packaging``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

Numbers = tuple[int, ...]

_PART = re.compile(r"\s*(==|!=|>=|<=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?\s*")
_NEAR = re.compile(r"\s*~=\s*(\d+(?:\.\d+)+)\s*")
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class Part(NamedTuple):
    """One comparison of a range; ``is_prefix`` for ``==0.12.*``."""

    sign: str
    numbers: Numbers
    is_prefix: bool

    def holds(self, version: Numbers) -> bool:
        """Whether a release satisfies the comparison."""
        # 0.12 and 0.12.0 are one release.
        width = max(len(self.numbers), len(version))
        left, right = version + (0,) * (width - len(version)), self.numbers + (0,) * (width - len(self.numbers))
        if self.is_prefix:
            left, right = left[: len(self.numbers)], self.numbers
        return _COMPARE[self.sign](left, right)


@lru_cache(maxsize=256)
def plain_range(text: str) -> tuple[Part, ...] | None:
    """The comparisons of a range, all of which a release must satisfy; ``None`` when one of them is not plain."""
    parts = []
    for part in text.split(","):
        if near := _NEAR.fullmatch(part):  # ~=4.57.1 is any 4.57 from 4.57.1 on
            parts += [Part(">=", numbers(near[1]), False), Part("==", numbers(near[1])[:-1], True)]
            continue
        match = _PART.fullmatch(part)
        if match is None or (match[3] and match[1] not in ("==", "!=")):
            return None
        parts.append(Part(match[1], numbers(match[2]), bool(match[3])))
    return tuple(parts)


def numbers(release: str) -> Numbers:
    """``0.12.6`` -> ``(0, 12, 6)``."""
    return tuple(int(number) for number in release.split("."))


@lru_cache(maxsize=4096)
def triple(release: str) -> Numbers:
    """``2.6`` -> ``(2, 6, 0)``, ``1.5.10.post0`` -> ``(1, 5, 10)``; what is no number counts as 0."""
    parts = [int(part) if part.isdigit() else 0 for part in release.split(".")[:3]]
    return tuple([*parts, 0, 0][:3])


def pinned(parts: tuple[Part, ...]) -> Numbers | None:
    """The one release that a range allows, if it names one."""
    return next((part.numbers for part in parts if part.sign == "==" and not part.is_prefix), None)


def allows(parts: tuple[Part, ...], version: Numbers) -> bool:
    """Whether a release lies in a range."""
    return all(part.holds(version) for part in parts)


def between(*ranges: tuple[Part, ...]) -> list[Numbers]:
    """Versions that stand for all others: for no two of them that enclose another do the ranges differ in between.

    Each number that a range names, one just above it, the next release of a prefix, and one far in the future.
    """
    named = {part.numbers for range_ in ranges for part in range_}
    ends = {part.numbers for range_ in ranges for part in range_ if part.is_prefix}
    named |= {(*end[:-1], end[-1] + 1) for end in ends}
    above = {(*version, *(0,) * (6 - len(version)), 1) for version in named}
    return sorted({(0,), (10**6,), *named, *above})
