"""Parts of a model that run on some ranks only, because each rank's batch decides."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
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
from dslint.python.models import has_parameters
from dslint.python.namedlayers import NAMED
from dslint.python.queries.asked import in_words
from dslint.python.values import ClassAtom, Instance
from dslint.python.varies import CHOSEN, DATA, DIVERGENT, MISSING

_WRAPPERS = frozenset({"ddp-forward", "engine-forward", "fsdp-forward"})
_RUNS = frozenset({"forward", NAMED})
# Whether these are passed says who calls, and not what a batch holds.
_OF_CALLER = re.compile(r"embeds|position_ids|token_type|past_key|cache|encoder_|hidden_states|head_mask|labels?\b")
_FROZEN = re.compile(r"'(?:no_grad|inference_mode)'")


@dataclass(slots=True)
class Skipped:
    """A test of each rank's own data inside the forward of a model.

    `part` is a run of a module with parameters that only one side of the test makes. `on_true`: the side for which the
    test holds runs the part. `frozen`: the other side runs it without gradients. A loop has as many turns as each
    rank's own data says.
    """

    test: Alt | Loop
    part: Event
    on_true: bool
    exit: str
    is_without_gradient: bool = False
    frozen: Event | None = None
    parts: tuple[Event, ...] = ()  # all that one side alone runs


def skipped_parts(tree: Seq) -> Iterator[tuple[Event, Skipped]]:
    """Yield the parts of wrapped models that a test of each rank's own data skips, each after its wrapper's forward."""
    for event, body in _forwards(tree.items, set()):
        yield from ((event, found) for found in skipped_in(body, differs))


def skipped_in(body: Seq, decides: Callable[[Alt], bool]) -> Iterator[Skipped]:
    """Yield the parts that a test skips in what a model does; `decides` says for which tests ranks may differ."""
    frozen = {id(e) for node in walk(body) if is_frozen(node) for e in events(node)}
    for found in _Search(decides).of(body.items, ()):
        found.is_without_gradient = id(found.part) in frozen
        yield found


def differs(alt: Alt) -> bool:
    """Return whether each rank's own data decides, and not who calls."""
    is_of_caller = alt.varies & (MISSING | CHOSEN) and _OF_CALLER.search(in_words(alt))
    return bool(alt.varies & DIVERGENT) and not is_of_caller


def is_frozen(node: Node) -> bool:
    """Return whether a node is a block or function without gradients: `torch.no_grad()`, `torch.inference_mode()`."""
    if isinstance(node, Call):
        decorators = getattr(getattr(node.function, "node", None), "decorator_list", ())
        return any(_is_freezing(decorator, node) for decorator in decorators)
    if not isinstance(node, Context):
        return False
    paths = (atom.cls for atom in node.manager.atoms if isinstance(atom, Instance))
    return any(isinstance(p, str) and p.rpartition(".")[2] in ("no_grad", "inference_mode") for p in paths)


def _is_freezing(decorator: ast.expr, call: Call) -> bool:
    """Return whether a decorator is `torch.no_grad()`, perhaps by another name that its module gives it."""
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    if _FROZEN.search(ast.dump(decorator)) or not isinstance(name, ast.Name):
        return bool(_FROZEN.search(ast.dump(decorator)))
    home = getattr(call.function, "module", call.module)
    own, frees = re.escape(name.id), r"\b(?:no_grad|inference_mode)"
    return re.search(rf"^{own} *= *[\w.]*{frees}\b|{frees} as {own}\b", home.code, re.M) is not None


def _forwards(items: Sequence[Node], seen: set[int]) -> Iterator[tuple[Event, Seq]]:
    """Yield the forwards of wrappers with what the model inside does."""
    for at, item in enumerate(items):
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Event) and item.tags & _WRAPPERS:
            inside = _inside(items, at, item.node)
            if inside is not None:
                yield item, inside.body
        for child in children(item):
            yield from _forwards(child.items if isinstance(child, Seq) else [child], seen)


def _inside(items: Sequence[Node], at: int, node: ast.AST) -> Call | None:
    """Return what the model inside a wrapper does: a call at the same place, perhaps behind its own event."""
    later = at + 1
    while later < len(items) and isinstance(event := items[later], Event) and event.node is node:
        later += 1
    for beside in (*items[later : later + 1], *items[max(at - 1, 0) : at]):
        if isinstance(beside, Call) and beside.node is node:
            return beside
    return None


# The parts that a block runs: the first event of each, with gradients where any is.
_Parts = dict[object, tuple[Event, bool]]


def _add(found: _Parts, more: _Parts, *, is_frozen: bool = False) -> None:
    for key, (event, frozen) in more.items():
        known = found.get(key)
        if known is None or (known[1] and not (frozen or is_frozen)):
            found[key] = (event, frozen or is_frozen)


def _any_named(event: Event, parts: _Parts) -> tuple[Event, bool] | None:
    """Return a layer known by name only that runs in place of another such one."""
    return next((part for part in parts.values() if NAMED in event.tags & part[0].tags), None)


@dataclass(slots=True)
class _Search:
    decides: Callable[[Alt], bool]

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
            elif isinstance(item, Loop) and (part := self._turns(item)) is not None:
                yield Skipped(item, part, True, "")
            elif isinstance(item, Loop | Context | Try):
                yield from self.of(item.body.items, rest)
            elif isinstance(item, Seq):
                yield from self.of(item.items, rest)

    def _turns(self, loop: Loop) -> Event | None:
        """Return a module that a loop runs, where each rank makes turns of its own."""
        if not loop.varies & DATA or not isinstance(loop.node, ast.For):
            return None
        return next((event for event, _ in self._parts(loop.body.items)[0].values()), None)

    def _alternative(self, alt: Alt, rest: tuple[list[Node], ...]) -> Skipped | None:
        if not alt.then_lanes & alt.else_lanes or not self.decides(alt):
            return None
        then, then_exit = self._parts(alt.then.items)
        orelse, else_exit = self._parts(alt.orelse.items)
        if RAISE in (then_exit, else_exit):
            return None
        for parts, leaves in ((then, else_exit), (orelse, then_exit)):
            if leaves in (RETURN, CONTINUE, BREAK):
                for block in rest:
                    _add(parts, self._parts(block)[0])
        for mine, other, on_true, leaves in ((then, orelse, True, else_exit), (orelse, then, False, then_exit)):
            for key, (event, frozen) in mine.items():
                if NAMED in event.tags and not event.arguments:
                    continue  # on a constant: a dummy
                beside = other.get(key) or _any_named(event, other)
                if beside is None:
                    alone = tuple(part for other_key, (part, _) in mine.items() if other_key not in other)
                    return Skipped(alt, event, on_true, leaves, parts=alone)
                if beside[1] and not frozen:
                    return Skipped(alt, event, on_true, leaves, frozen=beside[0])
        return None

    def _parts(self, items: Sequence[Node]) -> tuple[_Parts, str]:
        """Return the modules with parameters that a block runs for certain or perhaps, and how it ends."""
        found: _Parts = {}
        leaves = ""
        for item in items:
            if isinstance(item, Exit):
                return found, item.kind
            if isinstance(item, Event):
                key = self._module(item)
                if key is not None:
                    _add(found, {key: (item, False)})
            elif isinstance(item, Alt):
                for side in (item.then, item.orelse):
                    _add(found, self._parts(side.items)[0])
            elif isinstance(item, Call | Loop | Context | Try):
                inner, kind = self._parts(item.body.items)
                _add(found, inner, is_frozen=is_frozen(item))
                if kind and isinstance(item, Context | Try):
                    leaves = kind
                    break
            elif isinstance(item, Seq):
                inner, leaves = self._parts(item.items)
                _add(found, inner)
                if leaves:
                    break
        return found, leaves

    def _module(self, event: Event) -> object | None:
        """Return the module with parameters that an event runs."""
        if not event.tags & _RUNS or event.tags & _WRAPPERS or event.receiver is None:
            return None
        atom = event.receiver.single
        if not isinstance(atom, Instance) or isinstance(atom.cls, ClassAtom):
            return None
        return (atom.node, atom.context) if has_parameters(atom.cls) else None
