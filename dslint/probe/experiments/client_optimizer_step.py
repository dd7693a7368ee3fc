"""A step of an optimizer that is not the engine's own.

As written, the script steps the optimizer that it made itself and handed to `deepspeed.initialize`, or the optimizer
that it got back, or both; as fixed, it calls `engine.step()`. Under ZeRO the client's optimizer holds parts that the
engine fills only in its own step: the weights never move. The returned optimizer moves them but skips the engine's
count of steps, on which accumulation, schedule and checkpoints rest. At stage 0 both are the same object to the
weights, so that a client that steps before the engine moves them twice; under ZeRO it then does nothing.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import off_course

# Before 0.18.3 the next backward stumbles over the gradients that nobody took.
_FROZEN = Expect((Kind.WRONG, Kind.RAISE), r"never moved|TypeError: 'NoneType' object|AssertionError.*ds_shape")
_TWICE = Expect((Kind.WRONG,), r"away from those of the correct run")
_UNCOUNTED = Expect((Kind.WRONG,), r"counts 0 steps")

EXPERIMENT = Experiment(
    name="client-optimizer-step",
    summary="an optimizer steps behind the engine's back",
    flavour="deepspeed",
    rules=("DSL215",),
    expect=_FROZEN,
    cases=(
        *(Case(f"client-z{stage}", {"who": "client", "stage": stage, "gas": 1}) for stage in (2, 1, 3)),
        Case("client-z0", {"who": "client", "stage": 0, "gas": 1}, _UNCOUNTED),
        *(
            Case(f"returned-z{stage}", {"who": "returned", "stage": stage, "gas": 1}, _UNCOUNTED)
            for stage in (0, 2, 3)
        ),
        Case("returned-z2-accumulating", {"who": "returned", "stage": 2, "gas": 2}, Expect((Kind.RAISE,), r"KeyError")),
        Case("both-z2", {"who": "both", "stage": 2, "gas": 1}, Expect((Kind.RAISE,), r"TypeError")),
        Case("both-z0", {"who": "both", "stage": 0, "gas": 1}, verdict=Verdict.NOT_REPRODUCED),
        Case("client-before-engine-z0", {"who": "client-and-engine", "stage": 0, "gas": 1}, _TWICE),
        Case(
            "client-before-engine-z2",
            {"who": "client-and-engine", "stage": 2, "gas": 1},
            verdict=Verdict.NOT_REPRODUCED,
        ),
        Case("engine-z2", {"who": "engine", "stage": 2, "gas": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """The optimizer that the case names."""
    return _train(rank, rank.params["who"])


def fixed(rank: RankApi) -> Json:
    """The engine."""
    return _train(rank, "engine")


def _train(rank: RankApi, who: str) -> Json:
    import torch

    from dslint.probe.parts.zero import batch, config, engine, loss_of, model, weights

    rank.init()
    settings = config(rank.params["stage"], gas=rank.params["gas"])
    del settings["optimizer"]
    module = model()
    client = torch.optim.SGD(module.parameters(), lr=0.1)
    trained = engine(rank, settings, module, optimizer=client)
    start = weights(trained)
    for step in range(2 * rank.params["gas"]):
        trained.backward(loss_of(trained(batch(rank, step))))
        if who == "client-and-engine":
            client.step()
        if who in ("engine", "both", "client-and-engine"):
            trained.step()
        if who == "client":
            client.step()
        if who in ("returned", "both"):
            trained.optimizer.step()
        rank.mark(f"step {step}")
    return {"weights": weights(trained), "start": start, "steps": trained.global_steps}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Weights that stand still, other weights, or an engine that counts no steps."""
    if values[0]["weights"] == values[0]["start"]:
        return "the weights never moved"
    if values[0]["steps"] != reference[0]["steps"]:
        return f"the engine counts {values[0]['steps']} steps instead of {reference[0]['steps']}"
    return off_course(values, reference)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Whose step it is, at the stage of the run where it is known, beside a step of the engine or alone."""
    who, both, stage = (subject.finding.fact(name) for name in ("who", "both", "stage"))
    if both:
        wanted = "client-before-engine-z0" if who == "client" else "both-z2"
    else:
        wanted = f"{who}-z0" if stage == 0 else f"{who}-z2"
    if case.name != wanted:
        return None
    return {} if stage is None else {"stage": stage}
