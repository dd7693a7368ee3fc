"""Parts of a wrapped model that run on some ranks only, because each rank's batch decides."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dslint.python.events import (
    BREAK,
    CONTINUE,
    RAISE,
    RETURN,
    Alt,
    Call,
    Context,
    Event,
    Exit,
    Loop,
    Node,
    Seq,
    Try,
    children,
    events,
    walk,
)
from dslint.python.machine import Machine
from dslint.python.values import ClassAtom, Instance
from dslint.python.varies import DIVERGENT

_WRAPPERS = frozenset({"ddp-forward", "engine-forward", "fsdp-forward"})
# Modules without parameters: whether they run concerns nobody.
_EMPTY = frozenset(
    {"ReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "Softmax", "LogSoftmax", "Dropout", "Identity", "Flatten", "Upsample"}
    | {"MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "AdaptiveAvgPool1d", "CrossEntropyLoss", "MSELoss", "BCELoss"}
    | {"BCEWithLogitsLoss", "L1Loss", "NLLLoss", "KLDivLoss", "SmoothL1Loss", "CosineSimilarity", "LeakyReLU", "ELU"}
)
_FROZEN = re.compile(r"'(?:no_grad|inference_mode)'")


@dataclass(slots=True)
class Skipped:
    """A test of each rank's own data inside the forward of a wrapped model.

    `part` is a run of a module with parameters that only one side of the test makes; `wrapper` is the event of the
    forward around it. `on_true`: the side for which the test holds runs the part.
    """

    test: Alt
    part: Event
    wrapper: Event
    on_true: bool
    exit: str
    is_without_gradient: bool = False


def skipped_parts(m: Machine, tree: Seq) -> Iterator[Skipped]:
    """Yield the parts of wrapped models that a test of each rank's own data skips."""
    for event, body in _forwards(tree.items, set()):
        frozen = {id(e) for node in walk(body) if is_frozen(node) for e in events(node)}
        for found in _Search(m, event).of(body.items, ()):
            found.is_without_gradient = id(found.part) in frozen
            yield found


def is_frozen(node: Node) -> bool:
    """Return whether a node is a block or function without gradients: `torch.no_grad()`, `torch.inference_mode()`."""
    if isinstance(node, Call):
        decorators = getattr(getattr(node.function, "node", None), "decorator_list", ())
        return any(_FROZEN.search(ast.dump(decorator)) for decorator in decorators)
    if not isinstance(node, Context):
        return False
    paths = (atom.cls for atom in node.manager.atoms if isinstance(atom, Instance))
    return any(isinstance(p, str) and p.rpartition(".")[2] in ("no_grad", "inference_mode") for p in paths)


def _forwards(items: Sequence[Node], seen: set[int]) -> Iterator[tuple[Event, Seq]]:
    """Yield the forwards of wrappers with what the model inside does."""
    for at, item in enumerate(items):
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Event) and item.tags & _WRAPPERS:
            for beside in (*items[at + 1 : at + 2], *items[max(at - 1, 0) : at]):
                if isinstance(beside, Call) and beside.node is item.node:
                    yield item, beside.body
                    break
        for child in children(item):
            yield from _forwards(child.items if isinstance(child, Seq) else [child], seen)


@dataclass(slots=True)
class _Search:
    m: Machine
    wrapper: Event

    def of(self, items: list[Node], after: tuple[list[Node], ...]) -> Iterator[Skipped]:
        """Yield what is skipped in a block; `after` are the rests of the blocks around it in the same function."""
        for at, item in enumerate(items):
            rest = (items[at + 1 :], *after)
            if isinstance(item, Alt):
                found = self._alternative(item, rest)
                if found is not None:
                    yield found
                    continue
                yield from self.of(item.then.items, rest)
                yield from self.of(item.orelse.items, rest)
            elif isinstance(item, Call):
                yield from self.of(item.body.items, ())
            elif isinstance(item, Loop | Context | Try):
                yield from self.of(item.body.items, rest)
            elif isinstance(item, Seq):
                yield from self.of(item.items, rest)

    def _alternative(self, alt: Alt, rest: tuple[list[Node], ...]) -> Skipped | None:
        if not alt.varies & DIVERGENT or not alt.then_lanes & alt.else_lanes:
            return None
        then, then_exit = self._parts(alt.then.items)
        orelse, else_exit = self._parts(alt.orelse.items)
        if RAISE in (then_exit, else_exit):
            return None
        for parts, leaves in ((then, else_exit), (orelse, then_exit)):
            if leaves in (RETURN, CONTINUE, BREAK):
                for block in rest:
                    more, _ = self._parts(block)
                    for key, event in more.items():
                        parts.setdefault(key, event)
        for mine, other, on_true, leaves in ((then, orelse, True, else_exit), (orelse, then, False, then_exit)):
            missing = [event for key, event in mine.items() if key not in other]
            if missing:
                return Skipped(alt, missing[0], self.wrapper, on_true, leaves)
        return None

    def _parts(self, items: Sequence[Node]) -> tuple[dict[object, Event], str]:
        """Return the modules with parameters that a block runs for certain or perhaps, and how it ends."""
        found: dict[object, Event] = {}
        leaves = ""
        for item in items:
            if isinstance(item, Exit):
                return found, item.kind
            if isinstance(item, Event):
                key = self._module(item)
                if key is not None:
                    found.setdefault(key, item)
            elif isinstance(item, Alt):
                for side in (item.then, item.orelse):
                    inner, _ = self._parts(side.items)
                    for key, event in inner.items():
                        found.setdefault(key, event)
            elif isinstance(item, Call | Loop | Context | Try):
                inner, kind = self._parts(item.body.items)
                for key, event in inner.items():
                    found.setdefault(key, event)
                if kind and isinstance(item, Context | Try):
                    leaves = kind
                    break
            elif isinstance(item, Seq):
                inner, leaves = self._parts(item.items)
                for key, event in inner.items():
                    found.setdefault(key, event)
                if leaves:
                    break
        return found, leaves

    def _module(self, event: Event) -> object | None:
        """Return the module with parameters that an event runs."""
        if "forward" not in event.tags or event.tags & _WRAPPERS or event.receiver is None:
            return None
        atom = event.receiver.single
        if not isinstance(atom, Instance) or isinstance(atom.cls, ClassAtom):
            return None
        name = atom.cls.rpartition(".")[2]
        return None if name in _EMPTY else (atom.node, atom.context)
