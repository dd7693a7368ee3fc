"""Backward passes of a DDP model after which no forward has come: the reduction of its gradients is spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslint.python.events import Alt, Context, Event, Loop, Node, Seq, children
from dslint.python.queries.skipped import is_frozen
from dslint.python.values import Instance
from dslint.rules.training.accelerators import maker_of
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import models_given, parameter_owners
from dslint.rules.wrapping.ddppasses import PLUGINS

if TYPE_CHECKING:
    from dslint.rules.runs import RunQuery

# More nodes than any training step has.
_MOST_NODES = 60_000
_CLEARS, _STEPS = "zero-grad", frozenset({"optimizer-step", "scaler-step", "steps"})
_Sides = tuple[tuple[int, bool], ...]


@dataclass(frozen=True, slots=True)
class Spent:
    """Two backward passes of a wrapper with no forward in between; `forward` prepared the first."""

    wrapper: Instance
    forward: Event
    first: Event
    second: Event


@dataclass(slots=True)
class _State:
    """What has happened to one wrapper: the forward that prepares a reduction, and the backward that has spent it."""

    forward: Event | None = None
    first: tuple[Event, _Sides] | None = None
    waiting: Spent | None = None
    is_armed: bool = False


@dataclass
class SpentReductions:
    """Answers for the trees of one run."""

    run: RunQuery
    _owned: dict[Instance, frozenset[Instance] | None] = field(default_factory=dict)

    def of(self, tree: Seq) -> Iterator[Spent]:
        """Yield each second backward whose gradients an optimizer then takes."""
        states: dict[Instance, _State] = {}
        for event, sides, frozen in _in_order(tree):
            if "freezes" in event.tags:
                for state in states.values():
                    state.first = state.waiting = None  # perhaps one of the passes leaves the model out
            elif "ddp-forward" in event.tags and not frozen:
                for atom in filter(self._is_ddp, instances(event.receiver)):
                    states[atom] = _State(event, is_armed=True, waiting=states.get(atom, _State()).waiting)
            elif "backward" in event.tags and not event.may:
                self._reduces(states, event, sides)
            elif event.tags & (_STEPS | {_CLEARS}):
                yield from self._taken(states, event)

    def _reduces(self, states: dict[Instance, _State], event: Event, sides: _Sides) -> None:
        behind = {atom for _, _, made_by in event.snapshot.values() for atom in made_by}
        for wrapper, state in states.items():
            if wrapper not in behind or state.forward is None:
                continue
            if state.is_armed:
                state.is_armed, state.first = False, (event, sides)
            elif state.first is not None and not _exclude(state.first[1], sides):
                state.waiting = Spent(wrapper, state.forward, state.first[0], event)

    def _taken(self, states: dict[Instance, _State], event: Event) -> Iterator[Spent]:
        """Yield what an optimizer takes; what is cleared first hurts nobody."""
        given = event.arguments.get("optimizer") if "scaler-step" in event.tags else None
        owners = [self._models(atom) for atom in instances(given if given is not None else event.receiver)]
        for wrapper, state in states.items():
            mine = {wrapper, *self._inside(wrapper)}
            if state.waiting is None or any(owner is not None and owner and not owner & mine for owner in owners):
                continue
            if not event.tags & {_CLEARS} or event.tags & _STEPS:
                yield state.waiting
            state.waiting = None

    def _is_ddp(self, atom: Instance) -> bool:
        """Return whether a wrapper reduces in the backward that follows its forward."""
        if not isinstance(atom.cls, str):
            return False
        if self.run.machine.libraries.is_class(atom.cls, "ddp"):
            return True
        made = self.run.makers.get(atom)
        maker = maker_of(self.run, made.receiver) if made is not None and "prepares" in made.tags else None
        is_prepared = self.run.machine.libraries.is_class(atom.cls, "accelerate.PreparedModel")
        return is_prepared and maker is not None and not {*PLUGINS, "kwargs_handlers"} & set(maker.arguments)

    def _inside(self, wrapper: Instance) -> frozenset[Instance]:
        made = self.run.makers.get(wrapper)
        return made.modules if made is not None else frozenset()

    def _models(self, atom: Instance) -> frozenset[Instance] | None:
        """Return the models whose parameters an optimizer has, or the model itself; `None` where nobody knows."""
        if atom not in self._owned:
            made = self.run.makers.get(atom)
            is_optimizer = made is not None and "makes-optimizer" in made.tags
            models = frozenset(models_given(made, parameter_owners(self.run))) if is_optimizer and made else None
            is_model = isinstance(atom.cls, str) and self.run.machine.libraries.is_class(atom.cls, "module")
            self._owned[atom] = frozenset({atom}) if is_model else models
        return self._owned[atom]


def _exclude(one: _Sides, other: _Sides) -> bool:
    """Return whether two places stand on different sides of a test."""
    sides = dict(one)
    return any(sides.get(alt, side) != side for alt, side in other)


def _in_order(tree: Seq) -> Iterator[tuple[Event, _Sides, bool]]:
    """Yield the events as they run: a call as often as it is made, the body of a loop twice.

    With each come the sides of tests around it, and whether it runs without gradients. A block that holds reductions
    back is left out.
    """
    pending: list[tuple[Node, _Sides, bool]] = [(tree, (), False)]
    count = 0
    while pending and count < _MOST_NODES:
        node, sides, frozen = pending.pop()
        count += 1
        if isinstance(node, Event):
            yield node, sides, frozen
            continue
        if isinstance(node, Context) and "no-sync" in node.tags:
            continue
        frozen = frozen or is_frozen(node)
        if isinstance(node, Alt):
            pending += [
                (node.orelse, (*sides, (id(node), False)), frozen),
                (node.then, (*sides, (id(node), True)), frozen),
            ]
            continue
        inner = [(child, sides, frozen) for child in children(node)]
        again = [inner[0]] if isinstance(node, Loop) and inner and len(sides) < 12 else []
        pending.extend(reversed([*again, *inner]))
