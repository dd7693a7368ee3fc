"""A loader over a stream that accelerate prepares, with batches of different width on two processes.

As written, the batches have 3 and 5 columns in turn; as fixed, each process fetches its own
(`dispatch_batches=False`). As written, rank 0 cannot join the batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="stream-of-ragged-batches",
    summary="rank 0 cannot join the batches of all processes",
    flavour="transformers",
    rules=("DSL677",),
    expect=Expect((Kind.RAISE, Kind.STALL), r"different size|Sizes of tensors must match"),
    cases=(Case("stream", {}),),
)


def written(rank: RankApi) -> Json:
    """Rank 0 fetches for all."""
    return _train(rank, dispatch=None)


def fixed(rank: RankApi) -> Json:
    """Each process fetches its own."""
    return _train(rank, dispatch=False)


def _train(rank: RankApi, dispatch: bool | None) -> Json:
    import torch
    from accelerate.utils import DataLoaderConfiguration
    from torch.utils.data import DataLoader, IterableDataset

    from dslint.probe.parts.accel import make_accelerator

    class Rows(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            for number in range(8):
                yield torch.ones(3 if number // 2 % 2 else 5)

    def collate(rows: list[Any]) -> Any:
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    accelerator = make_accelerator(rank, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch))
    loader: Any = accelerator.prepare(DataLoader(Rows(), batch_size=2, collate_fn=collate))
    return {"batches": sum(1 for _ in loader)}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The one case, for every finding."""
    return {} if case.name == "stream" and subject.finding.fact("batches") == "ragged" else None
