"""A Hugging Face Trainer small enough for an arm, over all ranks of the default process group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dslint.probe.experiment import Json, RankApi

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


def train_with_config(rank: RankApi, text: str, given: dict[str, Json]) -> dict[str, str]:
    """Train a tiny Llama for one step under a DeepSpeed config, on one rank, as `Trainer(...).train()` does it.

    Args:
        text: of the config file.
        given: arguments of the run; what it does not name and the config states is set to agree with the config.

    Returns:
        the class names of ``optimizer`` and ``schedule`` that are in effect.

    Raises:
        Exception: whatever transformers, accelerate or DeepSpeed raise.
    """
    trainer = _trainer_with_config(rank, text, given, _model_for(rank))
    if rank.params.get("evaluates"):
        trainer.evaluate()
        return {}
    trainer.train()
    engine = trainer.model_wrapped
    schedule = engine.lr_scheduler if engine.lr_scheduler is not None else trainer.lr_scheduler
    return {"optimizer": type(engine.basic_optimizer).__name__, "schedule": _shape(schedule)}


def length_of_step(rank: RankApi, text: str, given: dict[str, Json], scale: float) -> float:
    """Train as `train_with_config` does, and measure how far the one step moves all weights together.

    Args:
        scale: of the embeddings: larger ones have longer gradients.

    Returns:
        the Euclidean length of the step; with SGD and a rate of 1 that of the gradient after clipping.
    """
    import torch

    from dslint.probe.parts.llama import llama

    model = llama()
    with torch.no_grad():
        model.lm_head.weight.mul_(scale)
    trainer = _trainer_with_config(rank, text, given, model)
    before = [parameter.detach().clone().cpu() for parameter in model.parameters()]
    trainer.train()
    moved = [(new.detach().cpu() - old).norm() for new, old in zip(model.parameters(), before, strict=True)]
    return float(torch.stack(moved).norm())


def groups_of_run(rank: RankApi, text: str, kind: Callable[[Any], Any], **more: Any) -> list[float]:
    """Train as `train_with_config` does with a Trainer of another class.

    Args:
        kind: makes the class from that of transformers.
        more: further arguments of the Trainer, by functions of the model.

    Returns:
        the rates at which the groups of the optimizer in effect begin.
    """
    model = _model_for(rank)
    passed = {name: make(model) for name, make in more.items()}
    trainer = _trainer_with_config(rank, text, {"learning_rate": 0.5}, model, kind, **passed)
    trainer.train()
    return [float(group.get("initial_lr", group["lr"])) for group in trainer.model_wrapped.basic_optimizer.param_groups]


def _trainer_with_config(
    rank: RankApi, text: str, given: dict[str, Json], model: Any, kind: Callable[[Any], Any] | None = None, **more: Any
) -> Any:
    import torch
    from transformers import Trainer, TrainingArguments

    from dslint.probe.parts.hf_config import agreeing
    from dslint.probe.parts.stand_ins import put_in
    from dslint.probe.parts.zero import compile_nothing

    rank.init()
    put_in()
    compile_nothing()
    with open("ds.json", "w", encoding="utf-8") as file:
        file.write(text)
    # No `use_cpu`: with it accelerate leaves DeepSpeed out.
    arguments = TrainingArguments(
        output_dir="out", report_to="none", disable_tqdm=True, logging_strategy="no", deepspeed="ds.json",
        **{"max_steps": 1, "save_strategy": "no", **agreeing(text), **given},
    )  # fmt: skip
    row = {"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor([1, 2, 3])}
    cls = Trainer if kind is None else kind(Trainer)
    trainer = cls(model=model, args=arguments, train_dataset=[row] * 8, eval_dataset=[row], **more)
    rank.mark("trainer ready")
    return trainer


def _model_for(rank: RankApi) -> Any:
    from dslint.probe.parts.llama import llama

    return llama() if not rank.params.get("model") else _without_size(rank.params["model"])


def _shape(schedule: Any) -> str:
    """The class of a schedule, and the function that makes its rates where it has one."""
    inner = getattr(schedule, "scheduler", schedule)
    functions = getattr(inner, "lr_lambdas", None)
    function = getattr(functions[0], "func", functions[0]).__name__ if functions else ""
    return f"{type(inner).__name__} {function}".strip()


def plain_batch(features: list[dict[str, Any]]) -> dict[str, Any]:
    """``input_ids`` and ``labels``, both [number of features, 4], from the row numbers of the data set."""
    import torch

    rows = torch.tensor([[feature["row"]] * 4 for feature in features])
    return {"input_ids": rows, "labels": rows % 2}


def rank_of(features: list[dict[str, Any]], world: int) -> int:
    """The rank to which accelerate deals this batch: whole batches go round in turn."""
    row: int = features[0]["row"]
    return row // PER_RANK % world


def _without_size(kind: str) -> Any:
    """A model for rows of three tokens whose config has no hidden size; ``own``: that has no config."""
    import torch

    if kind != "own":
        from transformers import BertConfig, EncoderDecoderConfig, EncoderDecoderModel

        part = BertConfig(
            vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
            max_position_embeddings=8,
        )  # fmt: skip
        config = EncoderDecoderConfig.from_encoder_decoder_configs(part, part)
        config.decoder_start_token_id, config.pad_token_id = 1, 0
        return EncoderDecoderModel(config=config)

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, input_ids: Any, labels: Any) -> dict[str, Any]:
            return {"loss": (self.layer(input_ids.float()[..., None]).squeeze(-1) - labels).pow(2).mean()}

    return Own()


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
