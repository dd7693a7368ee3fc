"""`load_checkpoint` on rank 0 only.

As written, rank 0 loads a checkpoint and the others start from their fresh weights; as fixed, all ranks load. Nothing
hangs at any stage: the ranks go on with different weights, and at stage 3 all of them with a model half of which is
loaded.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind
from dslint.probe.parts.compare import diverged, off_course

EXPERIMENT = Experiment(
    name="checkpoint-load-under-rank-guard",
    summary="rank 0 loads a checkpoint and the others go on with other weights",
    flavour="deepspeed",
    one_host=True,
    expect=Expect((Kind.WRONG,), r"weights of rank 1 differ|weights of rank 1 end"),
    cases=(
        Case("z2", {"stage": 2}),
        Case("z1", {"stage": 1}),
        Case("z0", {"stage": 0}),
        Case("z3", {"stage": 3}, Expect((Kind.WRONG,), r"away from those of the correct run")),
    ),
)


def written(rank: RankApi) -> Json:
    """Rank 0 loads."""
    return _load(rank, rank.index == 0)


def fixed(rank: RankApi) -> Json:
    """All ranks load."""
    return _load(rank, True)


def _load(rank: RankApi, loads: bool) -> Json:
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


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """The ranks hold different weights, or not those that were saved."""
    return diverged(values) or off_course(values, reference)
