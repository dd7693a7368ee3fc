"""Two collectives that one rank makes in the other order.

As written, the ranks walk over the names of their metrics as a set gives them, whose order differs between processes
(here rank 1 walks backwards); as fixed, over the sorted names. Calls pair up by their order, not by what they mean: two
sums of the same shape are exchanged without a word, two of different shape abort a rank over gloo (NCCL waits).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

_MISMATCH = Expect(
    (Kind.RAISE, Kind.SIGNAL, Kind.STALL), r"Received data size doesn't match|all_reduce \(distributed_c10d"
)

EXPERIMENT = Experiment(
    name="collectives-in-other-order",
    summary="ranks make the same collectives in another order, and values are summed that do not belong together",
    rules=("DSL206",),
    expect=Expect((Kind.WRONG,), r"the sum of \w+ is"),
    cases=(
        Case("same-shape", {"sizes": {"loss": 1, "tokens": 1}}),
        Case("other-shape", {"sizes": {"loss": 4, "tokens": 8}}, _MISMATCH),
        Case("one-metric", {"sizes": {"loss": 1}}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The order of this process."""
    names = list(rank.params["sizes"])
    return _sums(rank, names[::-1] if rank.index == 1 else names)


def fixed(rank: RankApi) -> Json:
    """The same order everywhere."""
    return _sums(rank, sorted(rank.params["sizes"]))


def _sums(rank: RankApi, names: list[str]) -> dict[str, list[float]]:
    import torch
    import torch.distributed as dist

    rank.init()
    sums = {}
    for name in names:
        each = {"loss": 0.5, "tokens": 4096.0}[name]
        total = torch.full((rank.params["sizes"][name],), each, device=rank.device)
        dist.all_reduce(total)
        sums[name] = total.tolist()
        rank.mark(name)
    return sums


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A sum that is not that of its metric."""
    for rank, (found, expected) in enumerate(zip(values, reference, strict=True)):
        for name, value in found.items():
            if value != expected[name]:
                return f"on rank {rank} the sum of {name} is {value}, not {expected[name]}"
    return None
