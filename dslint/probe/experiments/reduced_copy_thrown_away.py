"""A collective that gets a copy of the tensor which the code goes on with.

As written, `all_reduce` gets `totals.double()` and the script reads `totals`; as fixed, the copy has a name and is
read. A cast to the type that the tensor has is no copy (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="reduced-copy-thrown-away",
    summary="each rank goes on with its own numbers",
    rules=("DSL619",),
    expect=Expect((Kind.WRONG,), r"its own numbers"),
    cases=(
        Case("all_reduce", {"kind": "double"}),
        Case("list", {"kind": "list"}),
        Case("no-copy", {"kind": "float"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The copy is dropped."""
    return _read(rank, keeps=False)


def fixed(rank: RankApi) -> Json:
    """The copy has a name."""
    return _read(rank, keeps=True)


def _read(rank: RankApi, keeps: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    totals = torch.full((2,), float(rank.index + 1), device=rank.device)
    if rank.params["kind"] == "list":
        told = totals.tolist()
        sent = [told]
        dist.broadcast_object_list(sent, src=0)
        return sent[0] if keeps else told
    copy = totals.double() if rank.params["kind"] == "double" else totals.float()
    dist.all_reduce(copy)
    return (copy if keeps else totals).tolist()


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Other numbers than in the other arm."""
    return None if values == reference else f"a rank holds {values[-1]}, its own numbers"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """A list, or a tensor."""
    is_list = bool(subject.finding.fact("list"))
    return {} if case.name == ("list" if is_list else "all_reduce") else None
