"""Gradient accumulation that the script does although the engine does it.

As written, the script divides the loss once more, steps the engine on every n-th micro batch only, or clears the
gradients after each micro batch; as fixed, it calls `backward` and `step` for every micro batch and leaves the rest to
`gradient_accumulation_steps`. Nothing raises in current releases: the weights end elsewhere. What is right depends on
the stage: with `gradient_accumulation_steps` 1, stages 0 and 3 add up what comes before a late `step`, stages 1 and 2
keep the last micro batch only.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.compare import off_course

_RIGHT = Verdict.NOT_REPRODUCED

EXPERIMENT = Experiment(
    name="accumulation-by-hand",
    summary="the script accumulates gradients around an engine that accumulates them itself",
    flavour="deepspeed",
    # Before 0.18.3 the backward after a micro batch without `step` raises at stages 1 and 2.
    expect=Expect((Kind.WRONG, Kind.RAISE), r"away from those of the correct run|TypeError: 'NoneType' object is not"),
    cases=(
        *(
            Case(f"loss-divided-twice-z{stage}", {"how": "divide", "stage": stage, "gas": 2}, rules=("DSL217",))
            for stage in (2, 0, 3)
        ),
        Case(
            "loss-divided-twice-told-z2",
            {"how": "told", "stage": 2, "gas": 2},
            rules=("DSL217",),
            verdict=_RIGHT,
        ),
        *(
            Case(f"step-at-boundary-z{stage}", {"how": "step", "stage": stage, "gas": 2}, rules=("DSL218",))
            for stage in (2, 0, 3)
        ),
        Case("all-by-hand-z2", {"how": "hand", "stage": 2, "gas": 1}, rules=("DSL218",)),
        Case("all-by-hand-z1", {"how": "hand", "stage": 1, "gas": 1}, rules=("DSL218",)),
        Case("all-by-hand-z0", {"how": "hand", "stage": 0, "gas": 1}, rules=("DSL218",), verdict=_RIGHT),
        Case("all-by-hand-z3", {"how": "hand", "stage": 3, "gas": 1}, rules=("DSL218",), verdict=_RIGHT),
        Case("zero-grad-each-time-z0", {"how": "clear", "stage": 0, "gas": 2}, rules=("DSL220",)),
        Case(
            "zero-grad-each-time-z2",
            {"how": "clear", "stage": 2, "gas": 2},
            rules=("DSL220",),
            verdict=_RIGHT,
        ),
    ),
)
MICRO_BATCHES = 4


def written(rank: RankApi) -> Json:
    """The script takes part in the accumulation as the case says; ``gas`` is that of the config."""
    return _train(rank, rank.params["how"], rank.params["gas"])


def fixed(rank: RankApi) -> Json:
    """The engine alone accumulates two micro batches."""
    return _train(rank, "", 2)


def _train(rank: RankApi, how: str, gas: int) -> Json:
    from dslint.probe.parts.zero import batch, config, engine, loss_of, weights

    rank.init()
    trained = engine(rank, config(rank.params["stage"], gas=gas))
    for step in range(MICRO_BATCHES):
        loss = loss_of(trained(batch(rank, step)))
        if how == "told":
            trained.backward(loss / 2, scale_wrt_gas=False)
        else:
            trained.backward(loss / 2 if how in ("divide", "hand") else loss)
        if how not in ("step", "hand") or (step + 1) % 2 == 0:
            trained.step()
        if how == "clear":
            trained.zero_grad()
        rank.mark(f"micro batch {step}")
    return {"weights": weights(trained)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Other weights."""
    return off_course(values, reference)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """What the script does, at the stage of the run and with the accumulation of its config where they are known."""
    fact = subject.finding.fact
    stage, gas = fact("stage"), fact("gas")
    wanted = {"DSL217": "loss-divided-twice-z2", "DSL220": f"zero-grad-each-time-z{0 if stage == 0 else 2}"}
    wanted["DSL218"] = "step-at-boundary-z2" if isinstance(gas, int) and gas > 1 else "all-by-hand-z2"
    if case.name != wanted[subject.finding.code] or fact("library") == "accelerate":
        return None
    return {} if stage is None else {"stage": stage}
