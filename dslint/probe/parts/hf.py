"""A Hugging Face Trainer small enough for an arm, over all ranks of the default process group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dslint.probe.experiment import RankApi

# Of one evaluation batch; two batches a rank, so that a rank that skips one is short of it.
PER_RANK = 2
BATCHES = 2


def make_trainer(
    rank: RankApi,
    collate: Callable[[list[dict[str, Any]]], dict[str, Any]] | None = None,
    metrics: Callable[[Any], dict[str, float]] | None = None,
    label_names: Sequence[str] = ("labels",),
    takes_more: bool = True,
) -> Any:
    """A Trainer of a linear model with 2 batches of 2 samples a rank, for training and for evaluation.

    Args:
        collate: makes the batch; default: tensors ``input_ids`` [2, 4] and ``labels`` [2, 4].
        takes_more: whether ``forward`` accepts keys beside these two.

    Raises:
        RuntimeError: the Trainer does not see the ranks of the group, so that it would prove nothing.
    """
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir="out", use_cpu=not rank.device.startswith("cuda"), per_device_train_batch_size=PER_RANK,
        per_device_eval_batch_size=PER_RANK, label_names=list(label_names), remove_unused_columns=False,
        report_to="none", save_strategy="no", disable_tqdm=True, max_steps=BATCHES, logging_strategy="no",
    )  # fmt: skip
    if arguments.world_size != rank.world:
        raise RuntimeError(f"the Trainer sees {arguments.world_size} ranks, not {rank.world}")
    rows = [{"row": row} for row in range(PER_RANK * BATCHES * rank.world)]
    trainer = Trainer(
        model=_model(takes_more), args=arguments, train_dataset=rows, eval_dataset=rows,
        data_collator=collate or plain_batch, compute_metrics=metrics,
    )  # fmt: skip
    rank.mark("trainer ready")
    return trainer


def plain_batch(features: list[dict[str, Any]]) -> dict[str, Any]:
    """``input_ids`` and ``labels``, both [number of features, 4], from the row numbers of the data set."""
    import torch

    rows = torch.tensor([[feature["row"]] * 4 for feature in features])
    return {"input_ids": rows, "labels": rows % 2}


def rank_of(features: list[dict[str, Any]], world: int) -> int:
    """The rank to which accelerate deals this batch: whole batches go round in turn."""
    row: int = features[0]["row"]
    return row // PER_RANK % world


def _model(takes_more: bool) -> Any:
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 2)

        def forward(self, input_ids: Any, labels: Any = None) -> dict[str, Any]:
            logits = self.layer(input_ids.float().unsqueeze(-1))
            loss = None if labels is None else torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels)
            return {"loss": loss, "logits": logits}

    class Liberal(Model):
        def forward(self, input_ids: Any, labels: Any = None, **_: Any) -> dict[str, Any]:
            return super().forward(input_ids, labels)

    return Liberal() if takes_more else Model()
