"""A batch that the script divides among the ranks and that does not come out even.

As written, each rank takes `rows[rank::world_size]`, or the first `rows // world_size` rows of its part; as fixed, the
batch is padded to a multiple of the world size. Dealt out, the ranks run unequally often, and under ZeRO-3 the last
forward waits for ever; with the floor, the last rows are seen by nobody, and none at all when there are fewer rows than
ranks.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.rounds import padded, scaled

_WAITS = Expect((Kind.STALL,), r"_all_?gather|partitioned_param_coordinator|distributed_c10d\.py")
_LOST = Expect((Kind.WRONG,), r"rows? of \d+ (?:is|are) seen by no rank")

EXPERIMENT = Experiment(
    name="batch-not-divisible",
    summary="a batch is divided among a number of ranks that does not divide its size",
    rules=("DSL270",),
    flavour="deepspeed",
    expect=_WAITS,
    cases=(
        Case("dealt-z3", {"form": "deal", "stage": 3, "size": 5, "world": 2}),
        Case("floor-z3", {"form": "floor", "stage": 3, "size": 5, "world": 2}, _LOST),
        Case("floor-below-world", {"form": "floor", "stage": 0, "size": 1, "world": 2}, _LOST),
        Case(
            "dealt-replicated",
            {"form": "deal", "stage": 0, "size": 5, "world": 2},
            Expect((Kind.WRONG,), r"ranks run unequally often"),
        ),
        Case("dealt-z3-even", {"form": "deal", "stage": 3, "size": 6, "world": 2}, verdict=Verdict.NOT_REPRODUCED),
        Case("floor-even", {"form": "floor", "stage": 0, "size": 6, "world": 2}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The batch is cut as it is."""
    return _run(rank, list(range(scaled(rank, rank.params["size"]))))


def fixed(rank: RankApi) -> Json:
    """The batch is padded first."""
    return _run(rank, padded(rank, scaled(rank, rank.params["size"])))


def _run(rank: RankApi, rows: list[int]) -> Json:
    import torch

    from dslint.probe.parts.zero import batch, config, engine

    each = len(rows) // rank.world
    dealt = rank.params["form"] == "deal"
    share = rows[rank.index :: rank.world] if dealt else rows[rank.index * each : (rank.index + 1) * each]
    rank.init()
    model = engine(rank, config(rank.params["stage"]))
    for row in share:
        with torch.no_grad():
            model(batch(rank, row, rows=1))
        rank.mark(f"row {row}")
    return {"rows": share}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Rows that no rank has seen, or ranks with different counts."""
    seen = {row for value in values for row in value["rows"]}
    all_rows = {row for value in reference for row in value["rows"]}
    lost = len(all_rows - seen)
    if lost:
        return f"{lost} row{'s' if lost > 1 else ''} of {len(all_rows)} {'are' if lost > 1 else 'is'} seen by no rank"
    counts = [len(value["rows"]) for value in values]
    return f"the ranks run unequally often: {', '.join(map(str, counts))} times" if len(set(counts)) > 1 else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """How the batch is cut, its size and the number of ranks."""
    finding = subject.finding
    size, world = finding.fact("size"), finding.fact("world")
    if not isinstance(size, int) or not isinstance(world, int):
        return None
    sharded = finding.fact("stage") == 3
    if finding.fact("form") == "floor":
        wanted = "floor-below-world" if size < world else "floor-z3"
    else:
        wanted = "dealt-z3" if sharded else "dealt-replicated"
    return {"size": size, "world": world, "stage": 3 if sharded else 0} if case.name == wanted else None
