"""Classes that are the arguments of a Trainer: ``TrainingArguments`` of transformers and what builds on it."""

from __future__ import annotations

import re

from dslint.model.plan.pyscript import PyScript
from dslint.model.trlclasses import TRL_ARGUMENTS


def trainer_class(script: PyScript, qualified: str) -> str:
    """``exact`` for the class of transformers, ``foreign`` for a class with other defaults, else empty."""
    if is_training_arguments(qualified):
        return "exact"
    first, _, name = qualified.partition(".")
    last = name.rpartition(".")[2]
    if first == "trl" and last in TRL_ARGUMENTS:
        return "foreign"
    if re.search(r"(?<!Data)TrainingArguments$", qualified):
        return "foreign"
    local = script.classes.get(qualified)
    return "foreign" if local is not None and _inherits(script, qualified, 0) else ""


def is_training_arguments(qualified: str) -> bool:
    """The class is the one of transformers, whatever the import path."""
    first, _, rest = qualified.partition(".")
    # `GlueDataTrainingArguments` of the same library are the arguments of a data set.
    return first == "transformers" and rest.rpartition(".")[2] in ("TrainingArguments", "Seq2SeqTrainingArguments")


def _inherits(script: PyScript, name: str, depth: int) -> bool:
    local = script.classes.get(name)
    if local is None or depth > 8:
        return False
    bases = [script.qualified(base) for base in local.bases]
    return any(trainer_class(script, b) if b not in script.classes else _inherits(script, b, depth + 1) for b in bases)
