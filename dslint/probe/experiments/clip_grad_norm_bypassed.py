"""`torch.nn.utils.clip_grad_norm_` between the engine's backward and step.

As written, the script clips the gradients of the module; as fixed, the config holds `gradient_clipping`. Under ZeRO the
gradients have left the parameters by then: the call sees none, returns the norm 0.0 and clips nothing, silently. At
stage 0 the gradients are there, and both ways end with the same weights.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import off_course

EXPERIMENT = Experiment(
    name="clip-grad-norm-bypassed",
    summary="the script clips gradients that ZeRO has moved elsewhere",
    flavour="deepspeed",
    rules=("DSL219",),
    expect=Expect((Kind.WRONG,), r"norm 0 .*away from those of the correct run"),
    cases=(
        Case("z2", {"stage": 2}),
        Case("z3", {"stage": 3}),
        Case("z1", {"stage": 1}),
        Case("z0", {"stage": 0}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
MOST = 0.05


def written(rank: RankApi) -> Json:
    """By the script."""
    return _train(rank, by_config=False)


def fixed(rank: RankApi) -> Json:
    """By the engine."""
    return _train(rank, by_config=True)


def _train(rank: RankApi, by_config: bool) -> Json:
    import torch

    from dslint.probe.parts.zero import batch, config, engine, loss_of, weights

    rank.init()
    trained = engine(rank, config(rank.params["stage"], gradient_clipping=MOST if by_config else 0.0))
    norms = []
    for step in range(2):
        trained.backward(loss_of(trained(batch(rank, step))))
        if not by_config:
            norms.append(float(torch.nn.utils.clip_grad_norm_(trained.module.parameters(), MOST)))
        trained.step()
        rank.mark(f"step {step}")
    return {"weights": weights(trained), "norms": norms}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Weights that went further than the clipping allows."""
    apart = off_course(values, reference)
    return f"clip_grad_norm_ returns the norm {values[0]['norms'][0]:.4g} and {apart}" if apart else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The stage of the run where it is known."""
    stage = subject.finding.fact("stage")
    return {} if case.name == f"z{2 if stage is None else stage}" else None
