"""A loop that some ranks run once more than the others, with a collective in each iteration.

As written, the items are dealt out with `range(rank, items, world_size)` and their number is no multiple of the world
size; as fixed, the index is padded to one and the surplus is dropped. In the iteration that only some ranks make, a
ZeRO-3 forward, an optimizer step of ZeRO, or a gather of the result finds no partner. A number of items that comes out
even, and a replicated model that talks to nobody, pass.
"""

from __future__ import annotations

from dslint.core.finding import Finding
from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.rounds import padded, scaled

EXPERIMENT = Experiment(
    name="uneven-loop",
    summary="ranks run a loop with a collective a different number of times",
    rules=("DSL207",),
    flavour="deepspeed",
    expect=Expect((Kind.STALL,), r"distributed_c10d\.py|_all_?gather|partitioned_param_coordinator|torch/autograd"),
    cases=(
        Case("forward-z3", {"body": "forward", "stage": 3, "items": 5, "world": 2}),
        Case("gather-each-item", {"body": "gather", "stage": 0, "items": 5, "world": 2}),
        Case("train-z2", {"body": "train", "stage": 2, "items": 7, "world": 2}),
        Case("train-z1", {"body": "train", "stage": 1, "items": 7, "world": 2}),
        Case("train-z3", {"body": "train", "stage": 3, "items": 7, "world": 2}),
        Case(
            "forward-z3-even", {"body": "forward", "stage": 3, "items": 6, "world": 2}, verdict=Verdict.NOT_REPRODUCED
        ),
        Case("train-z2-even", {"body": "train", "stage": 2, "items": 6, "world": 2}, verdict=Verdict.NOT_REPRODUCED),
        Case(
            "forward-z2", {"body": "forward", "stage": 2, "items": 5, "world": 2}, verdict=Verdict.NOT_REPRODUCED
        ),
    ),
)  # fmt: skip
_TRAINS = ("backward", "step", "train_batch")
# Explicit collectives; the backward of a DDP model ("ddp") has an experiment of its own.
_EXPLICIT = ("torch", "accelerate", "mmengine")


def written(rank: RankApi) -> Json:
    """Each rank takes every n-th item, as far as there are items."""
    return _run(rank, list(range(rank.index, scaled(rank, rank.params["items"]), rank.world)))


def fixed(rank: RankApi) -> Json:
    """Every rank makes the same number of iterations; the last item is repeated."""
    return _run(rank, padded(rank, scaled(rank, rank.params["items"]))[rank.index :: rank.world])


def _run(rank: RankApi, share: list[int]) -> Json:
    import torch
    import torch.distributed as dist

    from dslint.probe.parts.zero import batch, config, engine, loss_of

    rank.init()
    body, stage = rank.params["body"], rank.params["stage"]
    trained = engine(rank, config(stage))
    for index in share:
        with torch.set_grad_enabled(body == "train"):
            output = trained(batch(rank, index))
        if body == "train":
            trained.backward(loss_of(output))
            trained.step()
        elif body == "gather":
            dist.all_gather_object([None] * rank.world, output.tolist())
        rank.mark(f"item {index}")
    return len(share)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call in the loop, and the numbers when the finding knows both."""
    if case.name != _case_for(subject.finding):
        return None
    items, world = subject.finding.fact("items"), subject.finding.fact("world")
    known = isinstance(items, int) and isinstance(world, int) and world > 1 and items % world != 0
    return {"items": items, "world": world} if known else {"body": case.params["body"]}


def _case_for(finding: Finding) -> str:
    name, family, stage = finding.fact("collective"), finding.fact("family"), finding.fact("stage")
    if family in _EXPLICIT:
        return "" if name == "ddp" else "gather-each-item"
    if family != "engine":
        return ""
    return f"train-z{stage if stage in (1, 2, 3) else 2}" if name in _TRAINS else "forward-z3"
