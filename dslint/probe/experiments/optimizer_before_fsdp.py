"""An optimizer that is made of the parameters of a model before FSDP shards it.

As written, the optimizer is made first; as fixed, from the model that FSDP has taken. FSDP replaces the parameters, by
flat ones or (``fully_shard``) by distributed ones, and the optimizer keeps the old ones, which no forward reads and
which never get a gradient: its steps change nothing, and nothing raises. With ``use_orig_params=True`` the same
parameters stay, and both arms train (the control). The judge is the loss on one batch before and after five steps.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.ddp import inputs
from dslint.probe.parts.fsdp import make_layers, sharded

EXPERIMENT = Experiment(
    name="optimizer-before-fsdp",
    summary="the optimizer holds parameters that FSDP has replaced, and its steps change nothing",
    rules=("DSL266",),
    flavour="torch",
    expect=Expect((Kind.WRONG,), r"the loss is [\d.]+ on rank 0 and [\d.]+ on rank 1 before five steps, and the same"),
    cases=(
        Case("full-shard", {"strategy": "FULL_SHARD", "keeps": False}),
        Case("no-shard", {"strategy": "NO_SHARD", "keeps": False}),
        Case("fully-shard", {"strategy": "", "keeps": False}),
        Case("use-orig-params", {"strategy": "FULL_SHARD", "keeps": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
STEPS = 5


def written(rank: RankApi) -> Json:
    """The optimizer first."""
    return _train(rank, is_early=True)


def fixed(rank: RankApi) -> Json:
    """FSDP first."""
    return _train(rank, is_early=False)


def _train(rank: RankApi, is_early: bool) -> Json:
    import torch

    model = make_layers(rank)
    before = torch.optim.AdamW(model.parameters(), lr=0.05) if is_early else None
    keeps = {"use_orig_params": rank.params["keeps"]} if rank.params["strategy"] else {}
    model = sharded(rank, model, rank.params["strategy"], **keeps)
    optimizer = before or torch.optim.AdamW(model.parameters(), lr=0.05)
    batch, losses = inputs(rank, 0), []
    for number in range(STEPS + 1):
        loss = (model(batch) - 1).square().mean()
        losses.append(float(loss))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        rank.mark(f"step {number}")
    return [losses[0], losses[-1]]


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - each rank is judged by itself
    """Losses that five steps leave as they were."""
    if any(first != last for first, last in values):
        return None
    found = " and ".join(f"{first:.4g} on rank {index}" for index, (first, _) in enumerate(values))
    return f"the loss is {found} before five steps, and the same after them"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """In place, or by the wrapper."""
    return {} if case.name == ("fully-shard" if subject.finding.fact("in_place") else "full-shard") else None
