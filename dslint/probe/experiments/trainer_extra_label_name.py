"""`label_names` of a Hugging Face Trainer names a batch key besides the labels.

An evaluation step takes every key that `label_names` lists, pads its tensors in dimension 1 across the ranks, and
gathers them from all ranks: one collective for each tensor of the nest. As written, the extra key is listed; as fixed,
the same batches are evaluated with ``label_names=["labels"]``. What follows depends on what the key holds: text raises
on every rank; a tensor whose shape differs between ranks in a dimension other than 1, or that one rank lacks, makes
the ranks gather different things; a key that no batch holds makes `eval_loss` vanish without a word; a tensor of the
same shape everywhere works. Without metrics the Trainer keeps the loss only and gathers no labels.

DDP over gloo stands here for DeepSpeed over NCCL: the Trainer runs the same `evaluation_loop` and accelerate the same
gather (one all_gather for each leaf) whatever wraps the model. What differs is how a mismatch shows: gloo checks sizes
and aborts one rank ("Received data size doesn't match"), where NCCL waits until the timeout. So the arm proves that the
ranks disagree, not how long a GPU job takes to notice.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.hf import make_trainer, plain_batch, rank_of

_TEXT = Expect((Kind.RAISE,), r"TypeError: Unsupported types \(<class 'str'>\) passed to")
_MISMATCH = Expect(
    (Kind.RAISE, Kind.SIGNAL, Kind.STALL),
    r"Received data size doesn't match",
)
_NUMBERS = Expect((Kind.RAISE,), r"TypeError: Unsupported types \(<class 'int'>\)")
_KEYWORD = Expect((Kind.RAISE,), r"got an unexpected keyword argument 'metadata'")
_USUAL = {"key": "metadata", "metrics": True, "call": "evaluate", "takes": True}


EXPERIMENT = Experiment(
    name="trainer-extra-label-name",
    summary="evaluation gathers a batch key that is no tensor of one shape on all ranks",
    rules=("DSL203", "DSL412"),
    flavour="transformers",
    expect=_TEXT,
    cases=(
        Case("list-of-text", {**_USUAL, "kind": "texts"}),
        Case("dicts-with-text", {**_USUAL, "kind": "dicts"}),
        Case("list-of-numbers", {**_USUAL, "kind": "numbers"}, _NUMBERS),
        Case("predict", {**_USUAL, "kind": "texts", "call": "predict", "metrics": False}),
        Case("ragged-dimension-0", {**_USUAL, "kind": "dim0"}, _MISMATCH),
        Case("ragged-dimension-2", {**_USUAL, "kind": "dim2"}, _MISMATCH),
        Case("on-one-rank-only", {**_USUAL, "kind": "one-rank"}, _MISMATCH),
        Case("on-no-rank", {**_USUAL, "kind": "absent"}, Expect((Kind.WRONG,), "no eval_loss")),
        Case("forward-without-it", {**_USUAL, "kind": "tensor", "takes": False}, _KEYWORD),
        Case("same-shape", {**_USUAL, "kind": "tensor"}, verdict=Verdict.NOT_REPRODUCED),
        Case("ragged-dimension-1", {**_USUAL, "kind": "dim1"}, verdict=Verdict.NOT_REPRODUCED),
        Case("loss-only", {**_USUAL, "kind": "texts", "metrics": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The extra key is among the label names."""
    return _evaluate(rank, ["labels", rank.params["key"]])


def fixed(rank: RankApi) -> Json:
    """The same batches, with the labels alone."""
    return _evaluate(rank, ["labels"])


def _evaluate(rank: RankApi, label_names: list[str]) -> Json:
    rank.init()
    key, kind = rank.params["key"], rank.params["kind"]

    def collate(features: list[dict[str, Any]]) -> dict[str, Any]:
        batch = plain_batch(features)
        value = _value(kind, len(features), rank_of(features, rank.world))
        if rank.fixed and not rank.params["takes"]:
            return batch  # a model that does not take the key gets none
        return batch if value is None else {**batch, key: value}

    metrics = _count if rank.params["metrics"] else None
    trainer = make_trainer(rank, collate, metrics, label_names, rank.params["takes"])
    predicts = rank.params["call"] == "predict"
    found = trainer.predict(trainer.eval_dataset).metrics if predicts else trainer.evaluate()
    return {name: value for name, value in found.items() if name.endswith(("_loss", "_rows"))}


def _count(prediction: Any) -> dict[str, float]:
    return {"rows": float(len(prediction.predictions))}


def _value(kind: str, count: int, owner: int) -> Any:
    """The extra value of a batch of ``count`` samples that belongs to rank ``owner``; ``None``: the batch has none."""
    import torch

    if kind == "texts":
        return [f"image {number}.png" for number in range(count)]
    if kind == "numbers":
        return list(range(count))
    if kind == "dicts":
        return [{"image": f"{number}.png"} for number in range(count)]
    if kind == "absent" or (kind == "one-rank" and owner):
        return None
    more = 2 * owner
    shape = {"dim0": (count + more, 4), "dim1": (count, 3 + more), "dim2": (count, 3, 4 + more)}.get(kind, (count, 3))
    return torch.zeros(shape, dtype=torch.long)


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """The metrics that the fixed arm has and this one lacks."""
    for number, (found, wanted) in enumerate(zip(values, reference, strict=True)):
        missing = [name for name in wanted if name not in found]
        if missing:
            return f"rank {number} reports no {' and no '.join(missing)}, and nobody says so"
    return None


# What the rule calls the value of the key -> the case that holds such values.
_CASES = {
    "absent": "on-no-rank",
    "text": "list-of-text",
    "list": "list-of-text",
    "dict": "dicts-with-text",
    "tensor": "same-shape",
}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The key of the finding, in the case of its kind; a key of unknown kind is tried as text."""
    fact = subject.finding.fact
    wanted = "on-one-rank-only" if fact("conditional") else _CASES.get(str(fact("kind")), "list-of-text")
    if case.name != wanted:
        return None
    return {"key": fact("key") or "metadata", "metrics": fact("metrics") is not False}
