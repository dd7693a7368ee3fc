"""How long a `datetime.timedelta` is: its value keeps in `number` what it is made of, so that two can be compared."""

from __future__ import annotations

from collections.abc import Mapping

from dslint.python.values import Instance, Value

_WORD = "duration"
_UNITS = {
    "weeks": 604800.0,
    "days": 86400.0,
    "hours": 3600.0,
    "minutes": 60.0,
    "seconds": 1.0,
    "milliseconds": 1e-3,
    "microseconds": 1e-6,
}


def made(value: Value, given: Mapping[str, Value]) -> Value:
    """Return a new `timedelta` with its length, as far as its arguments tell it."""
    seconds, parts = 0.0, []
    for unit, argument in given.items():
        numbers = argument.constants
        if unit not in _UNITS:
            return value
        if numbers is not None and len(numbers) == 1 and isinstance(numbers[0], int | float):
            seconds += _UNITS[unit] * numbers[0]
        elif argument.number is not None:
            parts.append((unit, argument.number))
        else:
            return value
    number = (_WORD, seconds, tuple(sorted(parts, key=lambda part: part[0])))
    return Value(value.atoms, value.varies, value.shape, value.made_by, number, value.origin)


def seconds_of(value: Value | None) -> float | None:
    """Return how many seconds a `timedelta` is long; `None` where that is not known."""
    number = value.number if value is not None else None
    if not isinstance(number, tuple) or len(number) != 3 or number[0] != _WORD or number[2]:
        return None
    return float(number[1])


def is_duration(value: Value | None) -> bool:
    """Return whether a value is certainly a `timedelta`."""
    atoms = value.atoms if value is not None else frozenset()
    return bool(atoms) and all(isinstance(atom, Instance) and atom.cls == "datetime.timedelta" for atom in atoms)
