"""A loader that feeds other batches than the micro batch of the DeepSpeed config.

As written, the loader puts as many samples together as its own number says; as fixed, as many as the engine says. As
written the pass over the same samples makes fewer steps. With the number of the config both are the same (the control).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="loader-batch-differs-from-engine",
    summary="a pass over the data makes fewer steps, each of more samples than the config plans",
    flavour="deepspeed",
    rules=("DSL776",),
    expect=Expect((Kind.WRONG,), r"2 steps of 32 samples instead of 8 steps of 8"),
    cases=(
        Case("four-times", {"size": 16}),
        Case("as-the-config-says", {"size": 4}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
SAMPLES, MICRO = 32, 4


def written(rank: RankApi) -> Json:
    """The number of the script."""
    return _train(rank, int(str(rank.params["size"])))


def fixed(rank: RankApi) -> Json:
    """The number of the engine."""
    return _train(rank, None)


def _train(rank: RankApi, size: int | None) -> Json:
    import torch

    from dslint.probe.parts.zero import batch, config, engine

    rank.init()
    trained = engine(rank, config(0, micro=MICRO))
    data = batch(rank, 0, rows=SAMPLES)
    loader: Any = torch.utils.data.DataLoader(data, size or trained.train_micro_batch_size_per_gpu())
    for number, x in enumerate(loader):
        trained.backward(trained(x).square().mean())
        trained.step()
        rank.mark(f"batch {number}")
    return {"steps": trained.global_steps, "samples": SAMPLES * rank.world // trained.global_steps}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Other steps."""
    here, planned = values[0], reference[0]
    if here == planned:
        return None
    steps, samples = here["steps"], here["samples"]
    return f"{steps} steps of {samples} samples instead of {planned['steps']} steps of {planned['samples']}"
