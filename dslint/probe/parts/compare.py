"""Judgements on the values that ranks return. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dslint.probe.experiment import Json


def distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Euclidean distance of two lists of numbers; infinite when one holds no number or their lengths differ."""
    if len(first) != len(second):
        return math.inf
    found = math.sqrt(sum((a - b) ** 2 for a, b in zip(first, second, strict=True)))
    return math.inf if math.isnan(found) else found


def diverged(values: Sequence[Json], tolerance: float = 1e-4) -> str | None:
    """Says how far the weights of the ranks lie apart (``values[i]["weights"]``); ``None`` when they are the same."""
    apart = [distance(values[0]["weights"], value["weights"]) for value in values]
    worst = max(range(len(values)), key=lambda index: apart[index])
    if apart[worst] <= tolerance:
        return None
    return f"the weights of rank {worst} differ from those of rank 0 by {apart[worst]:.4g}"


def first_apart(values: Sequence[Sequence[float]], tolerance: float = 1e-5) -> str | None:
    """Says which rank has other weights (``values[i]``) than rank 0; ``None`` when they are the same."""
    for index, found in enumerate(values[1:], 1):
        if any(abs(one - other) > tolerance for one, other in zip(values[0], found, strict=True)):
            return f"the weights of rank 0 and rank {index} differ"
    return None


def off_course(values: Sequence[Json], reference: Sequence[Json], tolerance: float = 1e-4) -> str | None:
    """Says how far the weights lie from those of the fixed arm; ``None`` when they are the same."""
    for index, (value, expected) in enumerate(zip(values, reference, strict=True)):
        apart = distance(value["weights"], expected["weights"])
        if apart > tolerance:
            return f"the weights of rank {index} end {apart:.4g} away from those of the correct run"
    return None


def other_length(values: Sequence[Json], reference: Sequence[Json], tolerance: float = 1e-3) -> str | None:
    """Says how long the gradients of a rank are against those of the fixed arm; ``None`` when equally long."""
    for found, expected in zip(values, reference, strict=True):
        times = math.sqrt(sum(x * x for x in found) / sum(x * x for x in expected))
        if abs(times - 1) > tolerance:
            return f"the gradients are {times:.3g} times as large as they should be"
    return None
