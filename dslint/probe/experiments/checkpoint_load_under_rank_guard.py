"""`load_checkpoint` on rank 0 only, and its relatives.

As written, rank 0 loads a checkpoint and the others start from their fresh weights; as fixed, all ranks load. Nothing
hangs at any stage: the ranks go on with different weights, and at stage 3 all of them with a model half of which is
loaded. The same holds for a model that DistributedDataParallel has wrapped already, and for `load_state` of accelerate;
the control loads the raw model first, whose weights DDP then hands to all ranks.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.accel import make_accelerator
from dslint.probe.parts.compare import diverged, off_course

EXPERIMENT = Experiment(
    name="checkpoint-load-under-rank-guard",
    summary="rank 0 loads a checkpoint and the others go on with other weights",
    rules=("DSL232",),
    flavour="transformers",
    one_host=True,
    expect=Expect((Kind.WRONG,), r"weights of rank 1 differ|weights of rank 1 end"),
    cases=(
        Case("z2", {"stage": 2}),
        Case("z1", {"stage": 1}),
        Case("z0", {"stage": 0}),
        Case("z3", {"stage": 3}, Expect((Kind.WRONG,), r"away from those of the correct run")),
        Case("ddp", {"call": "load_state_dict"}),
        Case("load_state", {"call": "load_state"}),
        Case("before-ddp", {"call": "before"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Rank 0 loads."""
    return _load(rank, rank.index == 0)


def fixed(rank: RankApi) -> Json:
    """All ranks load."""
    return _load(rank, True)


def _load(rank: RankApi, loads: bool) -> Json:
    if rank.params.get("call"):
        return _load_wrapped(rank, rank.params["call"], loads)
    from dslint.probe.parts.zero import config, engine, train, weights

    rank.init()
    settings = config(rank.params["stage"])
    first = engine(rank, settings)
    train(rank, first, 2)
    folder = rank.folder + "/checkpoint"
    first.save_checkpoint(folder)
    again = engine(rank, settings)
    if loads:
        again.load_checkpoint(folder)
    rank.mark("loaded")
    return {"weights": weights(again)}


def _load_wrapped(rank: RankApi, call: str, loads: bool) -> Json:
    """A model under DistributedDataParallel, loaded from weights that are all 0.5."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from dslint.probe.parts.zero import model

    accelerator = make_accelerator(rank)
    raw = model().to(rank.device)
    saved = {name: torch.full_like(value, 0.5) for name, value in raw.state_dict().items()}
    if call == "load_state":
        wrapped = accelerator.prepare(raw)
        fresh = {name: value.clone() for name, value in raw.state_dict().items()}
        raw.load_state_dict(saved)
        accelerator.save_state(rank.folder + "/state")
        accelerator.wait_for_everyone()
        raw.load_state_dict(fresh)
        if loads:
            accelerator.load_state(rank.folder + "/state")
    elif call == "before":
        if loads:
            raw.load_state_dict(saved)
        wrapped = DistributedDataParallel(raw)
    else:
        wrapped = DistributedDataParallel(raw)
        if loads:
            wrapped.module.load_state_dict(saved)
    rank.mark("loaded")
    return {"weights": [round(float(v), 6) for p in wrapped.parameters() for v in p.detach().flatten().cpu()]}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """The ranks hold different weights, or not those that were saved."""
    return diverged(values) or off_course(values, reference)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call of the finding, and the stage of its engine where it is known."""
    call, stage = subject.finding.fact("call"), subject.finding.fact("stage")
    if call == "load_checkpoint":
        return {} if case.name == f"z{2 if stage is None else stage}" else None
    return {} if case.name != "before-ddp" and case.params.get("call") == call else None
