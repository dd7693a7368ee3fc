"""`accelerator.load_state` before anything was prepared.

A first part of the run saves a prepared model. As written, the state is loaded and the model prepared afterwards; as
fixed, the model is prepared first. `load_state` writes into what `prepare` has registered: before it, into nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind
from dslint.probe.parts.accel import make_accelerator

EXPERIMENT = Experiment(
    name="state-loaded-before-prepare",
    summary="the weights stay what they were: load_state fills what was prepared, and nothing was",
    flavour="transformers",
    rules=("DSL612",),
    expect=Expect((Kind.WRONG,), r"the weights are not those of the checkpoint"),
    cases=(Case("model", {}),),
    one_host=True,
)


def written(rank: RankApi) -> Json:
    """The state first."""
    return _resumed(rank, is_early=True)


def fixed(rank: RankApi) -> Json:
    """The model first."""
    return _resumed(rank, is_early=False)


def _resumed(rank: RankApi, is_early: bool) -> Json:
    """The weight after a checkpoint with the weight 3 was loaded."""
    import torch

    folder = str(Path(rank.folder) / "state")
    accelerator = make_accelerator(rank)
    model: Any = torch.nn.Linear(1, 1, bias=False)
    model.load_state_dict({"weight": torch.tensor([[3.0]])})
    model = accelerator.prepare(model)
    accelerator.save_state(folder)
    accelerator.wait_for_everyone()
    rank.mark("saved")
    accelerator.free_memory()
    fresh: Any = torch.nn.Linear(1, 1, bias=False)
    fresh.load_state_dict({"weight": torch.tensor([[1.0]])})
    if is_early:
        accelerator.load_state(folder)
        fresh = accelerator.prepare(fresh)
    else:
        fresh = accelerator.prepare(fresh)
        accelerator.load_state(folder)
    return {"weight": next(iter(fresh.parameters())).item()}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Compare the weight with that of the checkpoint."""
    if any(value["weight"] != other["weight"] for value, other in zip(values, reference, strict=True)):
        return "the weights are not those of the checkpoint"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "model" and subject.finding.fact("call") == "load_state" else None
