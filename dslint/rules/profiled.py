"""The walk with a clock at every handler, and at every question to the model that a handler asks.

An answer is kept, and the next rule that asks has it for nothing. So the time of the analyses that several rules share
is kept by analysis and divided, file by file, among the rules that asked for it; a rule pays for what it asks alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cached_property, wraps
from importlib import import_module
from pkgutil import walk_packages
from time import perf_counter
from typing import Any, ClassVar, TypeVar

import dslint.model.script
from dslint.core.profile import WALK, Profile
from dslint.rules.scriptcontext import ScriptContext

# These are asked so often, and answer so fast, that a clock would cost more than what it measures. All but the first
# two are asked in the midst of other answers alone, whose clocks run already.
_UNWATCHED = frozenset(
    {
        *("Tree", "Flat"),
        *("Binding", "CallTraces", "Ground", "Instances", "Marked", "Parting", "Recorder", "Symbols"),
    }
)
# The analyses that rules share: by the room of the model in which the question is answered, and by what the context of
# the rules calls it.
_ROOMS = {
    "traces": "traces of the ranks",
    "objects": "kinds of objects",
    "ranks": "rank guards",
    "collective": "calls that wait",
    "across": "imported functions",
    "zero": "ZeRO stage and parameters",
    "callers": "calls of functions",
    "names": "names",
    "bindings": "names",
    "constants": "constants",
    "arguments": "constants",
    "places": "places of nodes",
}
_QUESTIONS = {
    **dict.fromkeys(("divergences",), "traces"),
    **dict.fromkeys(("objects", "kind", "excludes", "implies"), "objects"),
    **dict.fromkeys(("guards", "guard"), "ranks"),
    **dict.fromkeys(("zero", "zero3", "zero3_evidence", "stage"), "zero"),
    **dict.fromkeys(("names", "qualified_name", "class_bases", "imports"), "names"),
    **dict.fromkeys(("constants", "constant"), "constants"),
    "summaries": "collective",
    "project": "across",
    **dict.fromkeys(("span", "location"), "places"),
}


T = TypeVar("T")


class _Clock:
    """Time in the model, of outermost questions only; ``shared`` is what of it rules share, since the last look.

    ``apart`` is time within all this that a stage of its own counts: other files are parsed for a question, too.
    """

    inside = False
    seconds = 0.0
    apart = 0.0
    shared: ClassVar[dict[str, float]] = {}


def timed(profile: Profile, code: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """A handler whose time its rule pays, apart from that of its questions, and of these what others ask, too."""

    def run(*arguments: Any) -> Any:
        _Clock.shared.clear()  # what was asked before this handler is in a stage of its own
        before, apart, start = _Clock.seconds, _Clock.apart, perf_counter()
        try:
            return call(*arguments)
        finally:
            asked = _Clock.seconds - before
            shared = sum(_Clock.shared.values())
            for room, seconds in _Clock.shared.items():
                profile.ask(code, _ROOMS[room], seconds)
            _Clock.shared.clear()
            profile.charge(code, "model", asked - shared)
            profile.charge(code, "handlers", perf_counter() - start - asked - (_Clock.apart - apart))

    profile.walking.add(code)
    return run


def counted_apart(profile: Profile, stage: str, call: Callable[..., T], *, is_walk: bool = False) -> Callable[..., T]:
    """A call in the midst of a question whose time no rule pays, but a stage of its own; ``is_walk``: and the walk."""

    def run(*arguments: Any) -> T:
        start = perf_counter()
        try:
            return call(*arguments)
        finally:
            spent = perf_counter() - start
            _Clock.apart += spent
            profile.spend(stage, spent)
            if not is_walk:
                profile.spend(WALK, -spent, 0)

    return run


@contextmanager
def watched_model() -> Iterator[None]:
    """The classes of the model with a clock at their public methods, as long as the block runs."""
    kept: list[tuple[Any, str, Any]] = []
    try:
        for kind in _classes():
            for name, found in list(vars(kind).items()):
                if name.startswith("_") and name != "__init__":
                    continue
                owner, attribute = (found, "func") if isinstance(found, cached_property) else (kind, name)
                method = found.func if isinstance(found, cached_property) else found
                # What a generator does is done where it is walked.
                if inspect.isfunction(method) and not inspect.isgeneratorfunction(method):
                    kept.append((owner, attribute, method))
                    setattr(owner, attribute, _watched(method, _room(kind, name)))
        yield
    finally:
        for kind, name, method in kept:
            setattr(kind, name, method)


def _classes() -> Iterator[type]:
    yield ScriptContext
    for found in walk_packages(dslint.model.script.__path__, "dslint.model.script."):
        module = import_module(found.name)
        for kind in vars(module).values():
            if not inspect.isclass(kind) or kind.__module__ != module.__name__ or kind.__name__ in _UNWATCHED:
                continue
            if not issubclass(kind, Enum) and not kind.__name__.startswith("_"):
                yield kind


def _room(kind: type, name: str) -> str:
    """The shared analysis that answers a method; empty when rules do not share it."""
    if kind is ScriptContext:
        return _QUESTIONS.get(name, "")
    inside = kind.__module__.removeprefix("dslint.model.script.").partition(".")[0]
    return inside if inside in _ROOMS else ""


def _watched(method: Callable[..., Any], room: str) -> Callable[..., Any]:
    @wraps(method)
    def run(*arguments: Any, **keywords: Any) -> Any:
        if _Clock.inside:
            return method(*arguments, **keywords)
        _Clock.inside, apart, start = True, _Clock.apart, perf_counter()
        try:
            return method(*arguments, **keywords)
        finally:
            _Clock.inside = False
            spent = perf_counter() - start - (_Clock.apart - apart)
            _Clock.seconds += spent
            if room:
                _Clock.shared[room] = _Clock.shared.get(room, 0.0) + spent

    return run
