"""Plain data with positions: the document type of JSON and YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location, SourceFile, Span


@dataclass(frozen=True, slots=True)
class ParseProblem:
    """A place where the text is not what its format allows."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that stands twice in one object; the later one wins in plain ``json.load``."""

    pointer: str
    first: Span
    second: Span


@dataclass(slots=True)
class DataDoc:
    """A JSON or YAML file as plain Python data plus the span of every key and value by JSON pointer.

    ``data`` holds dict, list, str, int, float, bool and None only; ``""`` is the pointer of the whole document.
    ``keys[p]`` is the span of the key (with its quotes) whose value has pointer ``p``;
    ``values[p]`` the span of that value; ``members[p]`` the span of the whole ``key: value`` pair.
    ``comments`` are the spans of all comments, ``trailing_commas`` of all commas before a closing bracket.
    ``problems`` are the places that could not be read; data around them is kept.
    ``relaxed`` are the places, besides comments and trailing commas, that Hjson accepts and plain JSON does not.
    A config inside a program may hold values that only a run knows: ``opaque`` names their pointers and says why. They
    have spans but no entry in ``data``. ``open_objects`` are objects that a run may give more members (``**more``).
    ``computed`` are values that are known but whose text is no literal (a name, ``$VARIABLE``).
    ``dialect``: ``json`` | ``yaml`` | ``python`` | ``none``, how edits are worded, none where they cannot be written
    back.
    ``elsewhere``: where a member is set that another file than ``source`` brings in (a filter of ``jq`` in a script);
    its spans are those of what it changes, and it has no text that could be edited.
    ``consumer``: who the program around hands the config to, empty for a file. ``is_embedded``: it stands inside
    another file.
    """

    source: SourceFile
    data: Any
    keys: dict[str, Span] = field(default_factory=dict)
    values: dict[str, Span] = field(default_factory=dict)
    members: dict[str, Span] = field(default_factory=dict)
    duplicates: tuple[Duplicate, ...] = ()
    comments: tuple[Span, ...] = ()
    trailing_commas: tuple[Span, ...] = ()
    problems: tuple[ParseProblem, ...] = ()
    relaxed: tuple[ParseProblem, ...] = ()
    opaque: Mapping[str, str] = field(default_factory=dict)
    open_objects: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()
    elsewhere: Mapping[str, Location] = field(default_factory=dict)
    dialect: str = "json"
    consumer: str = ""
    is_embedded: bool = False

    @property
    def is_dict(self) -> bool:
        """Whoever reads it gets Python's values, as a program hands them over, and no text."""
        return self.dialect in ("python", "yaml")

    def forget(self, pointer: str) -> None:
        """Leave out the places of a member, which a later one of the same name replaces."""
        below = pointer + "/"
        for table in (self.keys, self.values, self.members):
            for old in [p for p in table if p == pointer or p.startswith(below)]:
                del table[old]

    @property
    def name(self) -> str:
        """What tells this document from all others: the path, and where it begins inside another file."""
        return f"{self.path}#{self.values[''].start}" if self.is_embedded else self.path

    @property
    def path(self) -> str:
        """The path the user sees."""
        return self.source.path

    def key(self, pointer: str, label: str = "") -> Location:
        """The place of a key (of the value where there is no key, as for the root or a list item)."""
        span = self.keys.get(pointer) or self.values[pointer]
        if pointer in self.elsewhere:
            return self.elsewhere[pointer].labelled(label)
        return self.source.location(span, label)

    def value(self, pointer: str, label: str = "") -> Location:
        """The place of a value."""
        if pointer in self.elsewhere:
            return self.elsewhere[pointer].labelled(label)
        return self.source.location(self.values[pointer], label)

    def has(self, pointer: str) -> bool:
        """The document holds a value there, ``null`` included."""
        return pointer in self.values

    def get(self, pointer: str, default: Any = None) -> Any:
        """The plain value at a pointer."""
        at: Any = self.data
        for part in split_pointer(pointer):
            if isinstance(at, dict) and part in at:
                at = at[part]
            elif isinstance(at, list) and part.isdigit() and int(part) < len(at):
                at = at[int(part)]
            else:
                return default
        return at

    def fact(self, pointer: str, label: str = "") -> Fact[Any]:
        """The value at a pointer as a fact with its place. Callers decide what ``"auto"`` means."""
        hidden = self.hidden(pointer)
        if hidden is not None:
            return hidden
        if pointer not in self.values:
            return absent()
        return known(self.get(pointer), self.value(pointer, label))

    def hidden(self, pointer: str) -> Fact[Any] | None:
        """Why only a run knows the value at a pointer; ``None`` where the text itself says all."""
        if not (self.opaque or self.open_objects):
            return None
        at = pointer
        while True:
            if at in self.opaque:
                return unknown(self.opaque[at], self.value(at))
            if at != pointer and at in self.open_objects and not self.has(pointer):
                return unknown("the object may get more members at run time")
            if not at:
                return None
            at = at.rpartition("/")[0]

    def children(self, pointer: str) -> Iterator[tuple[str, str, Any]]:
        """``(key, pointer, value)`` of each member of the object at ``pointer``, in file order."""
        at = self.get(pointer)
        if isinstance(at, dict):
            for key, value in at.items():
                yield key, join_pointer(pointer, key), value


def join_pointer(parent: str, key: str | int) -> str:
    """``/zero_optimization`` + ``stage`` -> ``/zero_optimization/stage`` (RFC 6901 escapes)."""
    return f"{parent}/" + str(key).replace("~", "~0").replace("/", "~1")


def split_pointer(pointer: str) -> list[str]:
    """The unescaped parts of a JSON pointer; none for the root."""
    if not pointer:
        return []
    return [p.replace("~1", "/").replace("~0", "~") for p in pointer[1:].split("/")]


def dotted_key(pointer: str) -> str:
    """``/zero_optimization/stage`` -> ``zero_optimization.stage``, as messages name a key."""
    return ".".join(split_pointer(pointer))
