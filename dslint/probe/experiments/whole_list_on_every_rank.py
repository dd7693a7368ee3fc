"""A list of items that every rank works through before the ranks gather what came out.

As written, each rank takes all items; as fixed, its share. As written, the gathered list holds each item twice.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="whole-list-on-every-rank",
    summary="every rank makes all answers, and all copies are gathered",
    rules=("DSL680",),
    expect=Expect((Kind.WRONG,), r"16 answers for 8 items"),
    cases=(Case("list", {}),),
)


def written(rank: RankApi) -> Json:
    """All items on each rank."""
    return _answer(rank, is_divided=False)


def fixed(rank: RankApi) -> Json:
    """A share on each rank."""
    return _answer(rank, is_divided=True)


def _answer(rank: RankApi, is_divided: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    model = torch.nn.Linear(1, 1).to(rank.device)
    items = list(range(8))
    answers = []
    for item in items[rank.index :: rank.world] if is_divided else items:
        with torch.no_grad():
            answers.append((item, model(torch.full((1,), float(item), device=rank.device)).numel()))
    gathered: list[list[tuple[int, int]]] = [[] for _ in range(rank.world)]
    dist.all_gather_object(gathered, answers)
    return {"answers": sum(len(part) for part in gathered)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """How many answers were gathered."""
    here, expected = values[0]["answers"], reference[0]["answers"]
    return None if here == expected else f"{here} answers for {expected} items"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "list" and subject.finding.fact("call") else None
