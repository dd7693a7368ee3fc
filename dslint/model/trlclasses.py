"""Names of trl that several readers share."""

from __future__ import annotations

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
