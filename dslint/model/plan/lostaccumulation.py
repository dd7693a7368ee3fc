"""Accumulation steps that a file or option states and that the ``Accelerator`` of the script is never told."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dslint.core.fact import Fact
from dslint.core.source import Location, SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.plan.files import Files
from dslint.model.plan.scriptrun import near_sources
from dslint.model.workspace import Workspace
from dslint.parse.data import DataDoc
from dslint.python.source import Module, read

_NAMES = re.compile(
    r"(?:gradient|grad)_?accum(?:ulation|ulate)?(?:_steps?|_iters?)?|accumulate_grad_batches|accum_iters?"
)
# The script tells it in another way, or accumulates by hand.
_OTHERWISE = re.compile(
    r"GradientAccumulationPlugin|ACCELERATE_GRADIENT_ACC|\.gradient_accumulation_steps\s*=(?!=)|%\s*[\w.\[\]\"']*accum"
    r"|DeepSpeedPlugin|no_sync\("
)
_TELLS = frozenset(
    {"gradient_accumulation_steps", "gradient_accumulation_plugin", "deepspeed_plugin", "deepspeed_plugins"}
)
_DATA = (".yaml", ".yml", ".json")
_FOREIGN = ("zero_optimization", "distributed_type", "deepspeed_config", "compute_environment")


@dataclass(frozen=True, slots=True)
class LostAccumulation:
    """``steps`` stated at ``stated``, and the ``Accelerator(...)`` that gets none."""

    steps: int
    name: str
    stated: Location
    made: Location


def lost_accumulation(
    command: LaunchCommand,
    script: str | None,
    given: Mapping[str, Fact[Any]],
    configs: tuple[DataDoc | None, ...],
    files: Files,
) -> LostAccumulation | None:
    """What is lost in the run of a command; ``configs`` are those of accelerate and DeepSpeed."""
    if script is None or command.launcher_flag("--gradient_accumulation_steps") is not None:
        return None
    if any(_counts(doc) for doc in configs if doc is not None):
        return None
    workspace = files.workspace
    made = workspace.memo("accelerator", script, lambda source: _untold(source, workspace))
    if made is None:
        return None
    name, fact = next(iter(_stated(given, files)), ("", None))
    if fact is None or not fact.origins:
        return None
    return LostAccumulation(fact.get(), name, fact.origins[0], made)


def _untold(source: SourceFile, workspace: Workspace) -> Location | None:
    """The one ``Accelerator(...)`` of a script that relies on ``accumulate`` and tells it no number."""
    if not source.path.endswith(".py"):
        return None
    texts = near_sources(source, workspace)
    if not any(".accumulate(" in text.text for text in texts) or any(_OTHERWISE.search(text.text) for text in texts):
        return None
    found = [made for text in texts if "Accelerator(" in text.text for made in _calls(text)]
    if len(found) != 1 or any(keyword.arg is None or keyword.arg in _TELLS for keyword in found[0][1].keywords):
        return None
    module, call = found[0]
    return module.location(call, "no `gradient_accumulation_steps`") if len(call.args) < 4 else None


def _calls(source: SourceFile) -> Iterator[tuple[Module, ast.Call]]:
    module = read(source)
    if not isinstance(module, Module):
        return
    for call in module.nodes_of(ast.Call):
        if ast.unparse(call.func).rpartition(".")[2] == "Accelerator":
            yield module, call


def _counts(doc: DataDoc) -> bool:
    """A config of accelerate or DeepSpeed has a number of its own."""
    keys = ("/gradient_accumulation_steps", "/deepspeed_config/gradient_accumulation_steps", "/train_batch_size")
    return any(isinstance(number, int) and number > 1 for number in map(doc.get, keys))


def _stated(given: Mapping[str, Fact[Any]], files: Files) -> Iterator[tuple[str, Fact[int]]]:
    """Numbers above 1 of an option, or of a file that an option names."""
    for name, fact in given.items():
        value = fact.get_or(None)
        if _NAMES.fullmatch(name) and type(value) is int and value > 1:
            yield f"--{name}", fact
        elif isinstance(value, str) and value.endswith(_DATA):
            yield from _in_file(value, files)


def _in_file(path: str, files: Files) -> Iterator[tuple[str, Fact[int]]]:
    found = files.find(path)
    if found is None:
        return
    doc = files.data(found)
    if doc is None or doc.problems or not isinstance(doc.data, dict) or any(key in doc.data for key in _FOREIGN):
        return
    for pointer in doc.values:
        name = pointer.rpartition("/")[2]
        value = doc.get(pointer)
        if _NAMES.fullmatch(name) and type(value) is int and value > 1:
            yield name, doc.fact(pointer)
