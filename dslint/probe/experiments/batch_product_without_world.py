"""A `train_batch_size` that is micro batch times accumulation steps, without the number of processes.

As written, the product leaves out the processes; as fixed, `train_batch_size` is left out, and DeepSpeed works it out.
As written every rank stops in `deepspeed.initialize`. With the processes in the product both ways train (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="batch-product-without-world",
    summary="the batch of the config holds for one process",
    flavour="deepspeed",
    rules=("DSL608",),
    expect=Expect((Kind.RAISE,), r"Check batch related parameters"),
    cases=(
        Case("without", {"counts": False, "steps": 2}),
        Case("without-steps", {"counts": False, "steps": 1}),
        Case("with", {"counts": True, "steps": 2}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
MICRO = 2


def written(rank: RankApi) -> Json:
    """With the product."""
    return _train(rank, is_stated=True)


def fixed(rank: RankApi) -> Json:
    """Without any."""
    return _train(rank, is_stated=False)


def _train(rank: RankApi, is_stated: bool) -> Json:
    from dslint.probe.parts.zero import config, engine, train

    rank.init()
    steps = int(rank.params["steps"])
    settings = config(1, gas=steps, micro=MICRO)
    if is_stated:
        settings["train_batch_size"] = MICRO * steps * (rank.world if rank.params["counts"] else 1)
    trained = engine(rank, settings)
    train(rank, trained, steps)
    return {"steps": int(trained.global_steps)}
