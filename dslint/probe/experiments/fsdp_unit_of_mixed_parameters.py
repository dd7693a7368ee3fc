"""FSDP around a model with weights of two formats, or with a frozen part.

As written, a linear layer has a small one of another format (or that alone is trainable) beside it in one unit; as
fixed, both have the same format (or the parameters are kept apart by `use_orig_params`). As written FSDP refuses.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="fsdp-unit-of-mixed-parameters",
    summary="FSDP refuses to lay the parameters of a unit into one tensor",
    flavour="torch",
    rules=("DSL626",),
    expect=Expect((Kind.RAISE,), r"Must flatten tensors with uniform (?:dtype|`requires_grad`)"),
    cases=(
        Case("format", {"half": True, "frozen": False}),
        Case("frozen", {"half": False, "frozen": True}),
        Case("uniform", {"half": False, "frozen": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """What the case mixes, in one unit."""
    return _wrap(rank, is_half=rank.params["half"], keeps=False)


def fixed(rank: RankApi) -> Json:
    """One format, and parameters that stay apart."""
    return _wrap(rank, is_half=False, keeps=True)


def _wrap(rank: RankApi, is_half: bool, keeps: bool) -> Json:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    rank.init()
    base, adapter = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
    base.requires_grad_(not rank.params["frozen"])
    model = torch.nn.ModuleList([base.to(torch.bfloat16) if is_half else base, adapter])
    device = torch.device(rank.device)
    wrapped: Any = FullyShardedDataParallel(model, device_id=device, use_orig_params=keeps)
    return {"wrapped": wrapped is not None}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The mistake of the finding."""
    return {} if case.name == subject.finding.fact("kind") else None
