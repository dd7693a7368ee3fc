"""A Trainer with an optimizer of its own under a DeepSpeed config.

A Trainer of a tiny Llama takes one step with two groups, each with a rate of its own. As written, the config has an
`optimizer` section, or the optimizer is passed as `optimizers=`: the groups never train, or accelerate refuses two
optimizers. As fixed, `create_optimizer` makes them and the config has no such section. A run that is written as the
fixed one is the control.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.hf import groups_of_run

EXPERIMENT = Experiment(
    name="trainer-own-optimizer",
    summary="the groups of the Trainer's own optimizer never train",
    flavour="transformers",
    ranks=1,
    cpu_only=True,
    expect=Expect(
        (Kind.WRONG, Kind.RAISE), r"the groups begin at|an optimizer in the config file and in the code|not allowed"
    ),
    cases=(
        Case("asks-first", {"by": "guarded", "section": True}, rules=("DSL492",)),
        Case("does-not-ask", {"by": "plain", "section": True}, rules=("DSL492",)),
        Case("passed", {"by": "passed", "section": False}, rules=("DSL493",)),
        Case("no-section", {"by": "guarded", "section": False}, rules=("DSL492",), verdict=Verdict.NOT_REPRODUCED),
    ),
)
_ZERO = '"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}'
_SECTION = ', "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}'


def written(rank: RankApi) -> Json:
    """As the case says."""
    section = _SECTION if rank.params["section"] else ""
    by = rank.params["by"]
    if by == "passed":
        return groups_of_run(rank, f"{{{_ZERO}}}", lambda cls: cls, optimizers=lambda model: (_own(model), None))
    return groups_of_run(rank, f"{{{_ZERO}{section}}}", lambda cls: _overriding(cls, is_guarded=by == "guarded"))


def fixed(rank: RankApi) -> Json:
    """An override, and a config without an optimizer."""
    return groups_of_run(rank, f"{{{_ZERO}}}", lambda cls: _overriding(cls, is_guarded=True))


def _own(model: Any) -> Any:
    import torch

    head = list(model.lm_head.parameters())
    mine = {id(parameter) for parameter in head}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in mine]
    return torch.optim.AdamW([{"params": rest, "lr": 0.125}, {"params": head, "lr": 0.25}])


def _overriding(cls: Any, is_guarded: bool) -> Any:
    def create_optimizer(self: Any, **_: Any) -> Any:
        if self.optimizer is None or not is_guarded:
            self.optimizer = _own(self.model)
        return self.optimizer

    return type("Own", (cls,), {"create_optimizer": create_optimizer})


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Other groups, or other rates."""
    for value, right in zip(values, reference, strict=True):
        if value != right:
            return f"the groups begin at {value}, and at {right} with the override alone"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """How the script gives its optimizer."""
    if subject.finding.code == "DSL493":
        return {} if case.name == "passed" else None
    return {} if case.name == ("asks-first" if subject.finding.fact("guarded") else "does-not-ask") else None
