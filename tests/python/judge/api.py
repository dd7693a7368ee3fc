"""How a stand-in says that it was called: events, with the place of the call in the program."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from .ranks import EventId, WorldEndedError, current

Made = TypeVar("Made", bound=Callable[..., Any])
_FOLDER = __file__.rsplit("/", 1)[0]


def record(path: str) -> None:
    """Note an event of the running rank, unless stand-in code made the call."""
    rank = current()
    if rank.world.ended:
        raise WorldEndedError(rank.world.ended)
    if rank.inside:
        return
    place = _place() if rank.recorder is None else rank.recorder.event_place()
    if place is not None:
        rank.trace.append(EventId(path, *place))


def _place() -> tuple[str, int, int] | None:
    """File and line of the program that called: what is known without instruments."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_FOLDER):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno, -1)


def api(path: str) -> Callable[[Made], Made]:
    """Mark a function of a stand-in: its calls by the program are events under this path."""

    def mark(function: Made) -> Made:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            record(path)
            rank = current()
            rank.inside += 1
            try:
                return function(*args, **kwargs)
            finally:
                rank.inside -= 1

        called.__judge_api__ = path  # type: ignore[attr-defined]
        return called  # type: ignore[return-value]

    return mark


def outside(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of the program from a stand-in: what it calls are events again."""
    rank = current()
    before, rank.inside = rank.inside, 0
    try:
        return function(*args, **kwargs)
    finally:
        rank.inside = before


def api_class(path: str, *, constructor: bool = True, call: str = "") -> Callable[[type], type]:
    """Mark a class of a stand-in: its constructor, and the public methods it defines, are events.

    `call` names the method that `__call__` stands for (`forward`).
    """

    def mark(cls: type) -> type:
        for name, member in list(vars(cls).items()):
            if callable(member) and not name.startswith("_") and not isinstance(member, type):
                setattr(cls, name, api(f"{path}.{name}")(member))
        if call:
            setattr(cls, "__call__", api(f"{path}.{call}")(cls.__call__))  # type: ignore[operator]  # noqa: B010
        if constructor:
            cls.__judge_api__ = path  # type: ignore[attr-defined]
        cls.__module__, _, cls.__qualname__ = path.rpartition(".")
        return cls

    return mark


class Constructed(type):
    """Metaclass: making an object of a stand-in class (or of a class of the program that inherits) is an event."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        path = cls.__dict__.get("__judge_api__")
        if path is None:  # a class of the program: its own __init__ is the program's code
            return super().__call__(*args, **kwargs)
        record(path)
        rank = current()
        rank.inside += 1
        try:
            return super().__call__(*args, **kwargs)
        finally:
            rank.inside -= 1
