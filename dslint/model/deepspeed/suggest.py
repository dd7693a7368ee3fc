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


def fuller(word: str, known: Iterable[str]) -> str | None:
    """The known key that says the same in more words: ``grad_accumulation_steps``, ``train_micro_batch_size``."""
    parts = [part for part in _fold(word).split("_") if part]
    best: list[tuple[int, str]] = []
    for candidate in known:
        wanted = candidate.split("_")
        if len(parts) >= 2 and _in_order(parts, wanted) and 2 * sum(map(len, parts)) >= len(candidate):
            best.append((len(wanted) - len(parts), candidate))
    best.sort()
    unique = len(best) == 1 or (len(best) > 1 and best[0][0] < best[1][0])
    return best[0][1] if unique else None


def _in_order(parts: list[str], wanted: list[str]) -> bool:
    """Every part is, shortened or with a slip, one of the wanted words, in their order."""
    rest = iter(wanted)
    return all(any(_same_word(part, other) for other in rest) for part in parts)


def _same_word(part: str, other: str) -> bool:
    if len(part) >= 3 and (other.startswith(part) or part.startswith(other)):
        return True
    return part == other or (len(part) > 4 and slips(part, other, 1) is not None)


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
