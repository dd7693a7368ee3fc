"""Runs whose arguments stand in a YAML file: ``llamafactory-cli train recipe.yaml key=value``, ``axolotl train``."""

from __future__ import annotations

from typing import Any

from dslint.core.fact import Fact, known, unknown
from dslint.model.launch.command import LaunchCommand
from dslint.model.plan.files import Files
from dslint.model.plan.hfargs import HF_NAMES, parse_value
from dslint.parse.data import DataDoc

_SUFFIXES = (".yaml", ".yml")


def recipe(command: LaunchCommand, files: Files) -> DataDoc | None:
    """The YAML file with the arguments of the Trainer, when the command reads them from one."""
    is_axolotl = command.script is not None and (command.script.text or "").startswith("axolotl.cli")
    if command.launcher not in ("llamafactory", "axolotl") and not is_axolotl:
        return None
    for word in command.words:
        if word.text is not None and word.text.endswith(_SUFFIXES):
            path = files.find(word.text)
            doc = files.data(path) if path is not None else None
            return doc if doc is not None and isinstance(doc.data, dict) and not doc.problems else None
    return None


def recipe_arguments(command: LaunchCommand, doc: DataDoc) -> dict[str, Fact[Any]]:
    """What the recipe states; a ``key=value`` word on the command line wins over it."""
    overridden = {w.raw.partition("=")[0]: w for w in command.words if "=" in w.raw and not w.raw.startswith("-")}
    arguments: dict[str, Fact[Any]] = dict.fromkeys(HF_NAMES, unknown("its default is not certain"))
    for name in HF_NAMES:
        fact = doc.fact(f"/{name}")
        if name in overridden or command.may_hide_flags():
            word = overridden.get(name)
            arguments[name] = unknown("the command line decides", *([word.location] if word is not None else []))
        elif fact.is_known:
            arguments[name] = _typed(name, fact)
        elif name == "auto_find_batch_size" and fact.is_absent:
            arguments[name] = known(False)  # nobody changes this default
    return arguments


def _typed(name: str, fact: Fact[Any]) -> Fact[Any]:
    value = fact.get()
    if isinstance(value, str):
        parsed = parse_value(name, value)
        return Fact(parsed.state, parsed.value, fact.origins, parsed.reason)
    return known(value, *fact.origins) if value is not None else unknown("null", *fact.origins)
