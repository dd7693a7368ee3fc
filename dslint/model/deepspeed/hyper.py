"""The sections ``optimizer`` and ``scheduler`` of a config: which class they name and what they hand to it."""

from __future__ import annotations

import json
from typing import Any

from dslint.core.fact import Fact, known
from dslint.core.finding import Severity
from dslint.core.fix import Fix, Safety
from dslint.model.deepspeed.signatures import OPTIMIZERS, SCHEDULES, accepted, own_names, presence, torch_names
from dslint.model.deepspeed.suggest import closest, fuller
from dslint.model.deepspeed.view import ConfigView
from dslint.model.edits import rename_key

SECTIONS = {"optimizer": OPTIMIZERS, "scheduler": SCHEDULES}
OPTIMIZER, SCHEDULER = "/optimizer/type", "/scheduler/type"
ONE_BIT = ("onebitadam", "onebitlamb", "zerooneadam")
# Other libraries' words.
_WORDS = {
    "learning_rate": "lr",
    "beta": "betas",
    "epsilon": "eps",
    "wd": "weight_decay",
    "warmup_steps": "warmup_num_steps",
    "num_warmup_steps": "warmup_num_steps",
    "total_steps": "total_num_steps",
    "num_training_steps": "total_num_steps",
    "max_lr": "warmup_max_lr",
    "min_lr": "warmup_min_lr",
}


def class_name(view: ConfigView, section: str) -> Fact[str]:
    """The name that DeepSpeed looks up: its own optimizers in small letters, everything else as it is written."""
    fact = view.word(f"/{section}/type")
    if section == "optimizer" and fact.is_known and fact.get().lower() in own_names(OPTIMIZERS):
        return known(fact.get().lower(), *fact.origins)
    return fact


def refused(view: ConfigView) -> Severity | None:
    """How certain it is that the engine stops at a mistake in ``optimizer``; ``None``: it does not look at the section.

    A script may pass an optimizer of its own; then DeepSpeed does not use the one of the config. Where it passes
    something that it computes, nobody knows. Trainers never do so beside a section, and scripts of plain DeepSpeed
    rarely; of a config without a reader it is a warning that says so (:func:`caveat`).
    """
    if not view.context.client_optimizer.is_absent:
        return None
    return Severity.WARNING if view.consumer == "unknown" else Severity.ERROR


def caveat(severity: Severity) -> str:
    """What to add to the message of a mistake in ``optimizer`` where nobody knows who reads the config."""
    return " unless the script passes its own optimizer" if severity is Severity.WARNING else ""


def is_own(view: ConfigView, section: str, name: str) -> str:
    """``yes`` | ``no`` | ``maybe``: does the DeepSpeed in use know the name itself?"""
    return presence(SECTIONS[section], name, view.version) if name in own_names(SECTIONS[section]) else "no"


def is_known(view: ConfigView, section: str, name: str) -> bool:
    """Some release that may be in use, or torch, may know the name."""
    return is_own(view, section, name) != "no" or name in torch_names(SECTIONS[section])


def takes(view: ConfigView, section: str, name: str) -> frozenset[str] | None:
    """The hyper-parameters that the class may take; ``None`` when nobody knows."""
    torch_adam: bool | None = False
    if section == "optimizer":
        fact = view.fact("/optimizer/params/torch_adam")
        torch_adam = bool(fact.get()) if fact.is_known else False if fact.is_absent else None
    return accepted(SECTIONS[section], name, view.version, torch_adam)


def flat(view: ConfigView, section: str) -> list[str]:
    """Hyper-parameters of the class that stand beside ``type``, where nothing reads them, and not in ``params``."""
    name, data = class_name(view, section), view.raw(f"/{section}")
    taken = takes(view, section, name.get()) if name.is_known else None
    inner = data.get("params") if isinstance(data, dict) else ""
    if not isinstance(inner, (dict, type(None))) or taken is None:
        return []
    return [word for word in data if word in taken and word not in (inner or {})]


def parameters(view: ConfigView, section: str) -> dict[str, Any] | None:
    """The hyper-parameters as they are written; ``None`` when that is no object or not known."""
    fact = view.fact(f"/{section}/params")
    value = fact.get() if fact.is_known else {} if fact.is_absent else None
    return value if isinstance(value, dict) else None


def worded(view: ConfigView, pointer: str) -> str:
    """A value as JSON: in the words of the file where that is JSON."""
    span, doc = view.doc.values[pointer], view.doc
    return doc.source.text[span.start : span.end] if doc.dialect == "json" else json.dumps(doc.get(pointer))


def meant(word: str, known_words: frozenset[str]) -> str | None:
    """The hyper-parameter that a wrong word stands for."""
    if _WORDS.get(word) in known_words:
        return _WORDS[word]
    return closest(word, known_words) or fuller(word, known_words)


def renamed(view: ConfigView, pointer: str, name: str) -> Fix | None:
    """A fix that gives a member the name that is meant."""
    edits = rename_key(view.doc, pointer, name)
    return Fix(f"Rename to `{name}`", edits, Safety.UNSAFE) if edits else None
