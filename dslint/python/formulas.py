"""Tests as formulas: `a and not b` over tests that are the same for all ranks, tests by lane, and tests of own data.

A formula is what stands in `Value.number`: `("and", (f, g))`, `("or", (f, g))`, `("not", f)`, an atom that is decided
for each lane, `("own", f)` for what each rank decides for itself, or anything else: an unknown test by its number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from dslint.python.lanes import Worlds
from dslint.python.values import UNKNOWN_LANE, Const, PerRank, Value
from dslint.python.varies import DIVERGENT

_MAX_PARTS = 12


def operand(value: Value, unknown: object) -> object:
    """Return the formula of a value that is tested; `unknown` tells it apart where nothing is known of it."""
    atom = value.single
    if isinstance(atom, Const) or (isinstance(atom, PerRank) and UNKNOWN_LANE not in atom.values):
        return atom
    if isinstance(atom, PerRank) and not is_compound(value.number):
        return atom
    number = value.number if value.number is not None else unknown
    is_own = bool(value.varies & DIVERGENT) or any(isinstance(each, PerRank) for each in value.atoms)
    is_marked = isinstance(number, tuple) and len(number) == 2 and number[0] == "own"
    if number is None or is_compound(number) or is_marked or not is_own:
        return number
    return ("own", number)


def is_compound(formula: object) -> bool:
    """Return whether a formula is made of others."""
    return isinstance(formula, tuple) and len(formula) == 2 and formula[0] in ("and", "or", "not")


def of_test(test: Value | None) -> object:
    """Return the formula of a test; `None` where there is nothing to tell it by."""
    return operand(test, None) if test is not None else None


def _split(formula: object) -> tuple[str, Any]:
    """Return the word of a compound formula and what it joins."""
    assert isinstance(formula, tuple)
    return str(formula[0]), formula[1]


def joined(word: str, first: object, second: object) -> object:
    """Return `first and second` or `first or second`; `None` where it becomes too long."""
    found = (word, (first, second))
    return found if _size(found) <= _MAX_PARTS else None


def _size(formula: object) -> int:
    if not is_compound(formula):
        return 1
    word, inner = _split(formula)
    return _size(inner) if word == "not" else sum(_size(part) for part in inner)


def lanes(worlds: Worlds, formula: object, known: Mapping[object, bool]) -> tuple[int, int]:
    """Return the lanes on which a formula may be true, and those on which it may be false."""
    full = worlds.full
    if is_compound(formula):
        word, inner = _split(formula)
        decided = known.get(formula)
        if decided is not None:
            return (full, 0) if decided else (0, full)
        twice = next((atom for atom in _repeated(formula) if atom not in known), None)
        if twice is not None:  # `not a or (a and b)`: with each answer to `a`
            (a, b), (c, d) = (lanes(worlds, formula, {**known, twice: holds}) for holds in (True, False))
            return a | c, b | d
        if word == "not":
            true, false = lanes(worlds, inner, known)
            return false, true
        (a, b), (c, d) = (lanes(worlds, part, known) for part in inner)
        return (a & c, b | d) if word == "and" else (a | c, b & d)
    if isinstance(formula, Const):
        return (full, 0) if formula.value else (0, full)
    if isinstance(formula, PerRank):
        unknown = worlds.mask(lambda lane: formula.values[lane] is UNKNOWN_LANE)
        true = worlds.mask(lambda lane: bool(formula.values[lane])) | unknown
        return true, (full & ~true) | unknown
    decided = known.get(formula)
    if decided is None:
        is_marked = isinstance(formula, tuple) and len(formula) == 2 and formula[0] == "own"
        decided = known.get(_split(formula)[1] if is_marked else ("own", formula))
    if decided is None:
        return full, full
    return (full, 0) if decided else (0, full)


@lru_cache(maxsize=4096)
def _repeated(formula: object) -> tuple[object, ...]:
    """Return the tests that stand in a formula more than once."""
    seen = Counter(atoms(formula))
    return tuple(atom for atom, times in seen.items() if times > 1)


def atoms(formula: object) -> Iterator[object]:
    """Yield the tests in a formula that no constant and no lane decides."""
    if is_compound(formula):
        word, inner = _split(formula)
        for part in [inner] if word == "not" else inner:
            yield from atoms(part)
    elif not isinstance(formula, Const | PerRank):
        yield formula


def undecided(worlds: Worlds, formula: object, lane: int, known: Mapping[object, bool]) -> frozenset[object]:
    """Return the tests inside a formula that leave it open on a lane."""
    true, false = lanes(worlds, formula, known)
    if formula is None or not (true & false) >> lane & 1:
        return frozenset()
    if not is_compound(formula):
        return frozenset((formula,))
    word, inner = _split(formula)
    parts = [inner] if word == "not" else inner
    return frozenset(atom for part in parts for atom in undecided(worlds, part, lane, known))


def facts(worlds: Worlds, formula: object, holds: bool, lane: int, known: Mapping[object, bool]) -> dict[object, bool]:
    """Return the tests that are decided on a lane once the formula holds there (or does not)."""
    if formula is None or isinstance(formula, Const | PerRank):
        return {}
    found = {formula: holds}
    if not is_compound(formula):
        return found
    word, inner = _split(formula)
    if word == "not":
        return {**found, **facts(worlds, inner, not holds, lane, known)}
    if (word == "and") is holds:
        for part in inner:
            found.update(facts(worlds, part, holds, lane, known))
        return found
    # One of the two decides: the other one, where this one certainly does not.
    for part, other in (inner, inner[::-1]):
        masks = lanes(worlds, part, known)
        may = masks[0] if holds else masks[1]
        if not may >> lane & 1:
            found.update(facts(worlds, other, holds, lane, known))
            break
    return found


def implied(formula: object, holds: bool) -> dict[object, bool]:
    """Return the tests that are decided on every lane once the formula holds (or does not)."""
    found = {formula: holds}
    if is_compound(formula):
        word, inner = _split(formula)
        parts = [] if word == "not" or (word == "and") is not holds else inner
        for part in [inner] if word == "not" else parts:
            found.update(implied(part, not holds if word == "not" else holds))
    elif isinstance(formula, tuple) and len(formula) == 2 and formula[0] == "own":
        found[formula[1]] = holds
    return {key: value for key, value in found.items() if not isinstance(key, Const | PerRank)}


def is_own(formula: object) -> bool:
    """Return whether ranks may answer a test differently for a reason of their own."""
    if is_compound(formula):
        word, inner = _split(formula)
        return is_own(inner) if word == "not" else any(is_own(part) for part in inner)
    return isinstance(formula, PerRank) or (isinstance(formula, tuple) and bool(formula) and formula[0] == "own")
