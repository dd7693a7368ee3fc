"""The ways that a command may look: its words, directory and environment, once for each world that they tell apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dslint.core.fact import Fact
from dslint.core.source import Span
from dslint.model.launch.command import Word
from dslint.model.shell.flow.choices import MAX_WORLDS, TOO_MANY, World, alternatives, resolve
from dslint.model.shell.flow.trees import is_same
from dslint.model.shell.scope import Scope

if TYPE_CHECKING:
    from dslint.model.shell.commands import CommandReader

Raws = Sequence[tuple[str, Span]]
_Ways = list[tuple[World, list[Word]]]


def alternatives_of(reader: CommandReader, raws: Raws, scope: Scope, inner: Scope) -> _Ways:
    """The words of a command in each world; ``inner`` is the state that it is started in."""
    from dslint.model.shell.commands import kept_template

    texts = [raw for raw, _ in raws]
    if texts[:1] == ["eval"]:
        texts = texts[1:]
    ways: _Ways = []
    kept = None
    if texts and inner.templates:
        kept = alternatives(lambda w: kept_template(texts, inner, w), inner.here(), MAX_WORLDS)
    for world, template in kept or [(inner.here(), None)]:
        if template is not None:
            # The text is read where it stands, with alternatives of its own.
            state = scope.at(world)
            ways.append((world, [word for raw, span in raws for word in reader.words(raw, span, state)]))
        else:
            ways += _words(reader, raws, scope, world, MAX_WORLDS - len(ways))
    if not isinstance(inner.directory, Fact):
        ways = _split(ways, lambda w: resolve(inner.directory, w)) or ways
    for name in inner.undecided():
        if len(ways) > MAX_WORLDS // 2:
            break  # more of them would be too many
        ways = _split(ways, partial(inner.exported, name)) or ways
    return ways


def _words(reader: CommandReader, raws: Raws, scope: Scope, world: World, limit: int) -> _Ways:
    ways: _Ways = [(world, [])]
    for raw, span in raws:
        if "$" not in raw and "`" not in raw:
            fixed = reader.words(raw, span, scope, world)
            for _, words in ways:
                words += fixed
            continue
        longer = _longer(reader, raw, span, scope, ways, limit)
        if longer is None:
            unknown = [replace(w, text=None, why=TOO_MANY) for w in reader.words(raw, span, scope)]
            longer = [(w, [*words, *unknown]) for w, words in ways]
        ways = longer
    return ways


def _longer(reader: CommandReader, raw: str, span: Span, scope: Scope, ways: _Ways, limit: int) -> _Ways | None:
    longer: _Ways = []
    for world, words in ways:
        found = alternatives(lambda w: reader.words(raw, span, scope, w), world.fresh(), MAX_WORLDS)
        if found is None:
            return None
        if len(found) > 1 and all(_texts(more) == _texts(found[0][1]) for _, more in found[1:]):
            longer.append((world, words + found[0][1]))
        else:
            longer += [(_with(w, world), words + more) for w, more in found]
        if len(longer) > limit:
            return None
    return longer


def _texts(words: Sequence[Word]) -> list[str | None]:
    return [word.text for word in words]


def _with(world: World, before: World) -> World:
    """The world, which remembers what was asked for before too."""
    return World(world.arms, world.limits, (*before.used, *world.used), world.depth)


def _split(ways: _Ways, compute: Callable[[World], Any]) -> _Ways | None:
    """The ways, told apart by one more thing; ``None`` when they become too many."""
    out: _Ways = []
    for world, words in ways:
        found = alternatives(compute, world.fresh(), MAX_WORLDS)
        if found is None:
            return None
        if len(found) > 1 and all(is_same(other, found[0][1]) for _, other in found[1:]):
            out.append((world, words))
        else:
            out += [(_with(w, world), words) for w, _ in found]
    return out if len(out) <= MAX_WORLDS else None
