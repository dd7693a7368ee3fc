"""The walk with a clock at every handler, and at every question to the model that a handler asks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cached_property, wraps
from importlib import import_module
from pkgutil import walk_packages
from time import perf_counter
from typing import Any

import dslint.model.script
from dslint.core.profile import Profile
from dslint.rules.walk import ScriptContext

# These are asked so often, and answer so fast, that a clock would cost more than what it measures.
_UNWATCHED = frozenset({"Tree", "Flat"})


class _Clock:
    """Time in the model, of outermost questions only."""

    inside = False
    seconds = 0.0


def timed(profile: Profile, code: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """A handler whose time its rule pays, apart from that of its questions."""

    def run(*arguments: Any) -> Any:
        before, start = _Clock.seconds, perf_counter()
        try:
            return call(*arguments)
        finally:
            asked = _Clock.seconds - before
            profile.charge(code, "model", asked)
            profile.charge(code, "handlers", perf_counter() - start - asked)

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
                    setattr(owner, attribute, _watched(method))
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


def _watched(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def run(*arguments: Any, **keywords: Any) -> Any:
        if _Clock.inside:
            return method(*arguments, **keywords)
        _Clock.inside, start = True, perf_counter()
        try:
            return method(*arguments, **keywords)
        finally:
            _Clock.inside = False
            _Clock.seconds += perf_counter() - start

    return run
