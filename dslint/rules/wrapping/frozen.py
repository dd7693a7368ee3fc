"""Which parts of a model are frozen when a library takes the model."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from dslint.python.events import Alt, Event, Loop, Seq
from dslint.python.queries.leftout import Frozen
from dslint.python.values import Instance, Value
from dslint.rules.runs import Happening, RunQuery, happenings_of
from dslint.rules.training.plateaus import instances


@dataclass(slots=True)
class Freezing:
    """Follows in the order of a run which modules were frozen, which were made trainable, and where."""

    frozen: dict[Instance, Event] = field(default_factory=dict)
    trainable: dict[Instance, Event] = field(default_factory=dict)
    chosen: dict[Instance, Event] = field(default_factory=dict)  # some parameters of it, by their name
    _owners: dict[int, frozenset[Instance]] = field(default_factory=dict)

    def take(self, found: Happening) -> None:
        """Note what an event says."""
        event = found.event
        if "parameters" in event.tags:
            self._owners[id(event.node)] = frozenset(instances(event.receiver))
        elif "wraps-model" in event.tags:
            # What has a wrapper of its own takes no part in those around it.
            for inside in (*event.modules, *instances(event.arguments.get("module"))):
                for known_parts in (self.frozen, self.trainable, self.chosen):
                    known_parts.pop(inside, None)
        elif "freezes" in event.tags:
            for owner in self.modules(event):
                self._note(found, owner, _freezes(event))

    def _note(self, found: Happening, owner: Instance, known: tuple[object, ...] | None) -> None:
        if known not in ((True,), (False,)):
            self.frozen.pop(owner, None)
            self.trainable.pop(owner, None)
        elif is_by_name(found):
            self.chosen[owner] = found.event
        elif known == (False,):
            self.frozen[owner] = found.event
            self.trainable.pop(owner, None)
        else:
            self.trainable[owner] = found.event
            self.frozen.pop(owner, None)

    def modules(self, event: Event) -> frozenset[Instance]:
        """Return the modules whose parameters an event is about."""
        found: set[Instance] = set()
        for atom in instances(event.receiver):
            found |= self._owners.get(id(atom.node), frozenset((atom,)))
        return frozenset(found)

    def mixed(self, model: Instance, inside: frozenset[Instance]) -> Event | None:
        """Return what froze a part of a model and left another one trainable."""
        parts = [event for owner, event in self.frozen.items() if owner in inside and owner != model]
        if model not in self.frozen:
            return next(iter([*parts, *(e for owner, e in self.chosen.items() if owner == model)]), None)
        thawed = any(owner in inside and owner != model for owner in self.trainable)
        return self.frozen[model] if thawed or model in self.chosen else None


def told(event: Event) -> Value | None:
    """Return what parameters are told about gradients; `None` for nothing, which means yes."""
    return next((event.arguments[n] for n in ("requires_grad", "mode") if n in event.arguments), None)


def _freezes(event: Event) -> tuple[object, ...] | None:
    """Return the constants that parameters are told about gradients; `None` where these are not known."""
    value = told(event)
    return (True,) if value is None else value.constants


def is_by_name(found: Happening) -> bool:
    """Return whether a test in the loop over the parameters chooses by their names."""
    loops = [node for node in found.around if isinstance(node, Loop)]
    if not loops or not isinstance(loops[-1].node, ast.For):
        return False
    target = loops[-1].node.target
    names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    alts = found.around[found.around.index(loops[-1]) :]
    tests = [alt.node.test for alt in alts if isinstance(alt, Alt) and isinstance(alt.node, ast.If)]
    used = {node.id for test in tests for node in ast.walk(test) if isinstance(node, ast.Name)}
    return bool(names & used)


def freezing_before(found: Happening) -> Freezing:
    """Return what was frozen when an event comes, in the order of its entry."""
    freezing = Freezing()
    tree: Seq = found.entry.tree
    for other in happenings_of(tree, found.entry):
        if other.event is found.event:
            break
        freezing.take(other)
    return freezing


def frozen_at(run: RunQuery, wrap: Event) -> Frozen:
    """Return what is frozen when a model is wrapped; nothing where parameters are chosen by their names."""
    found = next((f for f in run.occurrences("wraps-model", "trainer-train", "prepares") if f.event is wrap), None)
    freezing = freezing_before(found) if found is not None else Freezing()
    if freezing.chosen or found is None:
        return Frozen()
    freezes = list(run.occurrences("freezes"))
    owners = Freezing()
    for other in run.occurrences("parameters"):
        owners.take(other)
    known = [f.event for f in freezes if _freezes(f.event) in ((True,), (False,)) and owners.modules(f.event)]
    lines = {(e.module.path, number) for e in known for number in _lines(e)}
    lines -= {(f.event.module.path, number) for f in freezes if f.event not in known for number in _lines(f.event)}
    return Frozen(frozenset(freezing.frozen), frozenset(lines))


def _lines(event: Event) -> range:
    first = getattr(event.node, "lineno", 0)
    return range(first, (getattr(event.node, "end_lineno", None) or first) + 1)
