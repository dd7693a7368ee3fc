"""Items that are dealt to ranks: few enough for a quick arm, with the rest that the stated number leaves."""

from __future__ import annotations

from dslint.probe.experiment import RankApi


def scaled(rank: RankApi, stated: int) -> int:
    """As many full rounds (three at most) as ``stated`` items make, and one item more when they leave a rest."""
    rounds, rest = divmod(stated, rank.params["world"])
    return min(rounds, 3) * rank.world + (1 if rest else 0)


def padded(rank: RankApi, count: int) -> list[int]:
    """The numbers of ``count`` items, the last repeated until every rank has as many."""
    return [min(number, count - 1) for number in range(-(-count // rank.world) * rank.world)]
