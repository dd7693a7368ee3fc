"""`lr_scheduler.step()` beside `engine.step()`.

As written, the script steps the scheduler that it got from `deepspeed.initialize`; as fixed, it does not, since
`engine.step()` has done it. The schedule runs twice as fast: warm-up ends after half its steps. Silent. A
schedule of the script that the engine does not know is the script's to step (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="scheduler-stepped-twice",
    summary="the script steps a learning-rate schedule that the engine steps too",
    flavour="deepspeed",
    rules=("DSL262",),
    expect=Expect((Kind.WRONG,), r"learning rates"),
    cases=(
        Case("z2", {"stage": 2, "gas": 1, "own": False}),
        Case("z0-accumulating", {"stage": 0, "gas": 2, "own": False}),
        Case("unknown-to-the-engine", {"stage": 0, "gas": 1, "own": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Both step it; the control has a schedule that the engine does not know."""
    return _train(rank, by_script=True, own=rank.params["own"])


def fixed(rank: RankApi) -> Json:
    """The engine steps it."""
    return _train(rank, by_script=False, own=False)


def _train(rank: RankApi, by_script: bool, own: bool) -> Json:
    from deepspeed.runtime.lr_schedules import WarmupLR

    from dslint.probe.parts.zero import batch, config, engine, loss_of

    rank.init()
    warmup = {"warmup_min_lr": 0.0, "warmup_max_lr": 0.1, "warmup_num_steps": 10, "warmup_type": "linear"}
    extra: dict[str, Any] = {} if own else {"scheduler": {"type": "WarmupLR", "params": warmup}}
    trained = engine(rank, config(rank.params["stage"], gas=rank.params["gas"], **extra))
    schedule = WarmupLR(trained.optimizer, **warmup) if own else trained.lr_scheduler
    rates = []
    for step in range(4 * rank.params["gas"]):
        trained.backward(loss_of(trained(batch(rank, step))))
        trained.step()
        if by_script:
            schedule.step()
        rates.append(round(float(trained.get_lr()[0]), 6))
        rank.mark(f"step {step}")
    return {"rates": rates}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Another schedule."""
    here, expected = values[0]["rates"], reference[0]["rates"]
    return None if here == expected else f"the learning rates are {here} instead of {expected}"
