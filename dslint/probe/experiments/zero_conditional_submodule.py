"""A part of the model that only some ranks run in a step: images in one batch, none in the other.

As written, the vision layers run on the ranks whose batch has an image (or each rank sends its tokens to an expert of
its own); as fixed, the others run them on zeros and add nothing, or the block of experts is declared a leaf module
(`set_z3_leaf_modules`), whose weights are fetched together. Stage 3 gathers the weights of a layer when it runs, stage
2 reduces gradients in the order in which they come: both need every rank.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="zero-conditional-submodule",
    summary="a submodule runs on some ranks only, as its inputs come",
    rules=("DSL208", "DSL634"),
    flavour="deepspeed",
    expect=Expect(
        (Kind.STALL, Kind.SIGNAL, Kind.RAISE),
        r"_all_?gather|reduce_scatter|all_reduce|SIGABRT|Connection|mismatch|partitioned_param_coordinator",
    ),
    cases=(
        Case("images-z3", {"kind": "images", "stage": 3}),
        Case("images-z2", {"kind": "images", "stage": 2}, rules=("DSL208",)),
        Case("images-z1", {"kind": "images", "stage": 1}, rules=("DSL208",)),
        Case("experts-z3", {"kind": "experts", "stage": 3}, rules=("DSL208",)),
        Case("images-on-all-ranks-z3", {"kind": "both", "stage": 3}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """What the batch of this rank lacks is not run."""
    return _run(rank, everywhere=False)


def fixed(rank: RankApi) -> Json:
    """The layers run, or are fetched, on all ranks."""
    return _run(rank, everywhere=True)


def _run(rank: RankApi, everywhere: bool) -> Json:
    import deepspeed
    import torch

    from dslint.probe.parts.zero import WIDTH, batch, config, engine, loss_of

    class Beside(torch.nn.Module):
        """Vision layers, or experts."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(2))

        def forward(self, rows: Any, chosen: list[int]) -> Any:
            """``chosen``: which of the layers have inputs."""
            total = torch.zeros_like(rows)
            for number, layer in enumerate(self.layers):
                if number in chosen:
                    total = total + layer(rows)
                elif everywhere and not experts:
                    total = total + 0.0 * layer(torch.zeros_like(rows))
            return total

    class Mixed(torch.nn.Module):
        """Text layers with the others beside them."""

        def __init__(self) -> None:
            super().__init__()
            self.text = torch.nn.Linear(WIDTH, WIDTH)
            self.beside = Beside()
            self.head = torch.nn.Linear(WIDTH, 1)

        def forward(self, rows: Any, chosen: list[int]) -> Any:
            hidden = self.text(rows)
            return self.head(hidden + self.beside(hidden, chosen))

    rank.init()
    experts = rank.params["kind"] == "experts"
    module = Mixed()
    if experts and everywhere:
        deepspeed.utils.set_z3_leaf_modules(module, [Beside])
    trained = engine(rank, config(rank.params["stage"]), module)
    has_images = rank.index == 0 or rank.params["kind"] == "both"
    chosen = [rank.index % 2] if experts else ([0, 1] if has_images else [])
    for step in range(2):
        trained.backward(loss_of(trained(batch(rank, step), chosen)))
        trained.step()
        rank.mark(f"step {step}")
    return True


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Which part is conditional, at which stage."""
    fact = subject.finding.fact
    return {} if (fact("kind"), fact("stage")) == (case.params["kind"], case.params["stage"]) else None
