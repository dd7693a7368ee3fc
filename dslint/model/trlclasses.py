"""Names of transformers and trl that several readers share."""

from __future__ import annotations

# The Trainers of transformers themselves, by every path that leads to them.
PLAIN_TRAINERS = frozenset(
    f"transformers.{name}"
    for name in ("Trainer", "Seq2SeqTrainer", "trainer.Trainer", "trainer_seq2seq.Seq2SeqTrainer")
)
# Classes of trl that inherit from ``TrainingArguments``, with defaults of their own.
TRL_ARGUMENTS = frozenset(
    [
        "SFTConfig",
        "DPOConfig",
        "GRPOConfig",
        "KTOConfig",
        "RewardConfig",
        "ORPOConfig",
        "CPOConfig",
        "BCOConfig",
        "OnlineDPOConfig",
        "RLOOConfig",
        "GKDConfig",
        "NashMDConfig",
        "XPOConfig",
        "PRMConfig",
        "IterativeSFTConfig",
    ]
)
