"""What a script hands to `deepspeed.initialize` beside the config: an optimizer, a schedule, groups of ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location
from dslint.model.plan.questions import ENGINE
from dslint.model.plan.scriptrun import ScriptRun, imported_sources, place_of
from dslint.model.workspace import Workspace
from dslint.python.events import Event
from dslint.python.values import Instance, Value

# What follows moved by one place when `distributed_port` came before `mpu`.
_FIXED_PLACES = 6
_CONFIGURED = frozenset({"args", "config", "config_params"})
# Modules of the project that a script imports, and those that they import.
_MOST_MODULES, _MOST_STEPS = 60, 2
# A call in such a module.
_OWN_ENGINE = re.compile(
    r"deepspeed\.initialize\((?:[^()]|\([^()]*\))*?\bconfig(?:_params)?\s*=\s*[\w.]*args\.deepspeed\b"
)
_WITH_OPTIMIZER = re.compile(r"deepspeed\.initialize\((?:[^()]|\([^()]*\))*?(?:\boptimizer\s*=\s*(?!None\b)|\*)")
_CLASSES = ("torch.optim.", "deepspeed.ops.", "apex.optimizers.", "bitsandbytes.optim.", "transformers.optimization.")


@dataclass(frozen=True, slots=True)
class Handover:
    """The one call of `deepspeed.initialize` in a script.

    ``optimizer`` and ``scheduler``: the dotted class of what is passed; absent: nothing is passed; unknown: what is
    passed is computed, and may be nothing. ``groups``: the argument that brings groups of ranks, ``mpu`` or
    ``mesh_param``; unknown: arguments are unpacked, or stand at a place that means another one in each release.
    """

    location: Location
    optimizer: Fact[str] = field(default_factory=absent)
    scheduler: Fact[str] = field(default_factory=absent)
    groups: Fact[str] = field(default_factory=absent)

    def ends(self, passed: Fact[str]) -> tuple[Location, ...]:
        """The call, and where the object that it passes is made: the other ends of a finding."""
        return self.location.labelled("the call"), *(place.labelled("made here") for place in passed.origins)


def read_handover(run: ScriptRun) -> Handover | None:
    """The call, where there is one only: of several nobody knows which one a run makes."""
    calls = run.calls(ENGINE)
    if len(calls) != 1:
        return None
    (events,) = calls
    first = events[0]
    if first.module is not run.entry.module and not (first.open or first.arguments.keys() & _CONFIGURED):
        return None  # an engine of a library of the project, which gets no config here: not the one that a run names
    return Handover(
        events[0].module.location(events[0].node),
        _agreed([_passed(run, event, "optimizer") for event in events]),
        _agreed([_passed(run, event, "lr_scheduler") for event in events]),
        _agreed([_groups(event) for event in events]),
    )


def handed_by_several(run: ScriptRun) -> Fact[str]:
    """The optimizer that one of the calls hands over: unknown, or absent."""
    for event in (event for events in run.calls(ENGINE) for event in events):
        fact = _passed(run, event, "optimizer")
        if not fact.is_absent:
            return unknown("one of its calls of `deepspeed.initialize` passes it", *fact.origins)
    return absent()


def handed_elsewhere(path: str, workspace: Workspace) -> Fact[str]:
    """The optimizer that a module which the script imports hands to `deepspeed.initialize`: unknown, or absent."""
    sources = imported_sources(path, workspace, _MOST_STEPS, _MOST_MODULES)
    if any(source.path != path and _WITH_OPTIMIZER.search(source.text) for source in sources):
        return unknown("a module that the script imports passes it")
    return absent()


def engine_of_arguments(path: str, workspace: Workspace) -> Fact[str]:
    """Who reads the config where an imported module calls ``deepspeed.initialize(config=args.deepspeed)``: unknown.

    Else absent. Scripts with the Trainer's argument classes and a training loop of their own: nothing compares the
    config with the arguments then.
    """
    sources = imported_sources(path, workspace, 1, _MOST_MODULES)
    if any(source.path != path and _OWN_ENGINE.search(source.text) for source in sources):
        return unknown("a module that the script imports hands the config to DeepSpeed itself")
    return absent()


def short(title: str) -> str:
    """The name of a class without its module."""
    return title.rpartition(".")[2]


def _agreed(facts: Sequence[Fact[str]]) -> Fact[str]:
    """What all ways to the call say."""
    first = facts[0]
    if all((fact.state, fact.value) == (first.state, first.value) for fact in facts):
        return first
    return unknown("the script makes several engines by this call", *first.origins)


def _passed(run: ScriptRun, event: Event, name: str) -> Fact[str]:
    value = event.arguments.get(name)
    if event.open:
        return unknown("arguments are unpacked", event.module.location(event.node))
    if value is None or value.constants == (None,):
        return absent()
    title = _class(value)
    if title.startswith(_CLASSES):
        return known(title, run.made(value, event))
    return unknown("the script computes it", place_of(event, name))


def _class(value: Value) -> str:
    """Return the class of a library of the one object that a value is."""
    atom = value.single
    return atom.cls if isinstance(atom, Instance) and isinstance(atom.cls, str) else ""


def _groups(event: Event) -> Fact[str]:
    by_place = len(event.node.args) if isinstance(event.node, ast.Call) else 0
    if event.open or by_place > _FIXED_PLACES:
        return unknown("arguments are unpacked, or passed by their place", event.module.location(event.node))
    for name in ("mpu", "mesh_param"):
        value = event.arguments.get(name)
        if value is not None and value.constants != (None,):
            return known(name, place_of(event, name))
    return absent()
