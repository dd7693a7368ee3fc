"""Did you mean: the known key that a wrong one stands for."""

from __future__ import annotations

from collections.abc import Iterable


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that ``word`` is most likely a misspelling of: same letters in another case, or few slips."""
    best: tuple[int, str] | None = None
    folded = _fold(word)
    for candidate in known:
        limit = 0 if min(len(word), len(candidate)) < 4 else 1 if len(candidate) < 6 else 2
        distance = slips(folded, _fold(candidate), limit)
        if distance is not None and (best is None or (distance, candidate) < best):
            best = (distance, candidate)
    return best[1] if best else None


def _fold(word: str) -> str:
    return word.casefold().replace("-", "_").replace(" ", "_")


def slips(a: str, b: str, limit: int) -> int | None:
    """Insertions, deletions, replacements and swaps of neighbours between two words; ``None`` above ``limit``."""
    if abs(len(a) - len(b)) > limit:
        return None
    before: list[int] = []
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return None
        before, previous = previous, row
    return previous[-1] if previous[-1] <= limit else None
