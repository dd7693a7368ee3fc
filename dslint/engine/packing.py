"""What travels between processes, as bytes: the many small objects of a command in a quarter of the usual time.

A text that both ends have does not travel: places in it are made again from the text at the other end.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from dslint.core.fact import Fact
from dslint.core.finding import Finding
from dslint.core.source import Location, Region, SourceFile, Span
from dslint.model.launch.command import Flag, LaunchCommand, Word


def pack(what: object, shared: Mapping[str, SourceFile] | None = None) -> bytes:
    """The bytes of an object; equal parts that are one object stay one object.

    ``shared`` are the texts by path that the other end has as well.
    """
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**_TABLE, **_with_texts(shared)} if shared else _TABLE
    pickler.dump(what)
    return stream.getvalue()


def unpack(packed: bytes, source_of: Callable[[str], SourceFile] | None = None) -> Any:
    """The object that :func:`pack` was given, in a process of the same program.

    ``source_of`` gives the shared text of a path.
    """
    if source_of is None:
        return pickle.loads(packed)
    return _Unpickler(packed, source_of).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, packed: bytes, source_of: Callable[[str], SourceFile]) -> None:
        super().__init__(io.BytesIO(packed))
        self._source_of = source_of

    def find_class(self, module: str, name: str) -> Any:
        """Classes by name, and the one function that knows the texts of this end."""
        if name == _shared_source.__name__ and module == __name__:
            return self._source_of
        return super().find_class(module, name)


def _shared_source(path: str) -> SourceFile:
    """Stands in the bytes for the ``source_of`` of the other end."""
    raise LookupError(path)


def _with_texts(shared: Mapping[str, SourceFile]) -> dict[type[Any], Callable[[Any], Any]]:
    def source(text: SourceFile) -> Any:
        if shared.get(text.path) is text:
            return _shared_source, (text.path,)
        return text.__reduce_ex__(pickle.HIGHEST_PROTOCOL)

    def place(where: Location) -> Any:
        text = where.counted_in
        if text is not None and shared.get(text.path) is text:
            return _place, (where.path, where.label, where.span.start, where.span.end, text)
        return _location(where)

    return {SourceFile: source, Location: place}


def _location(place: Location) -> tuple[Any, ...]:
    return _place, (place.path, place.label, place.span.start, place.span.end, place.region)


def _place(path: str, label: str, start: int, end: int, region: Any) -> Location:
    return Location(path, Span(start, end), region, label)


def _by_fields(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Made again by its class from its fields: the state that dataclasses with slots write is slow to read."""
    values = attrgetter(*(field.name for field in fields(kind) if field.init))
    return lambda one: (kind, values(one))


_TABLE: dict[type[Any], Callable[[Any], Any]] = {
    Location: _location,
    **{kind: _by_fields(kind) for kind in (Fact, Finding, Flag, LaunchCommand, Region, Span, Word)},
}
