"""Builtins that give variables values: ``read NAME <<< text``, ``mapfile``, ``printf -v``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dslint.core.source import Location
from dslint.model.shell.pieces import Lookup, UnknownWordError, Value
from dslint.model.shell.printers import PRINTERS
from dslint.model.shell.substitution import output_of
from dslint.model.shell.words import NAME, expand, expand_assignment

# What a builtin sets: values by name.
Values = dict[str, Value]

_HERE_STRING = re.compile(r"\s*<<<\s*(.+)", re.DOTALL)
_PROCESS = re.compile(r"\s*<\s*<\((.+)\)\s*", re.DOTALL)


def values_set(name: str, raws: Sequence[str], given: str, ifs: str | None, lookup: Lookup, place: Location) -> Values:
    """What the builtin ``name`` (``read``, ``mapfile``, ``readarray``, ``printf``) with these words sets.

    ``given`` is the redirection of its input as written, "" without one, ``ifs`` the raw value of ``IFS=`` in front.

    Raises:
        UnknownWordError: nobody can say.
    """
    words = [text for raw in raws for text in expand(raw, lookup)]
    if name == "printf":
        return _printf(words, lookup, place)
    if name == "read":
        return _read(words, given, None if ifs is None else expand_assignment(ifs, lookup), lookup, place)
    return _mapfile(words, given, lookup, place)


def _input(given: str, lookup: Lookup) -> str:
    """The text on standard input, without the line end behind it."""
    here = _HERE_STRING.fullmatch(given)
    if here is not None:
        return expand_assignment(here[1].strip(), lookup)
    process = _PROCESS.fullmatch(given)
    if process is None:
        raise UnknownWordError
    return output_of(process[1], lookup, expand)


def _printf(words: Sequence[str], lookup: Lookup, place: Location) -> Values:
    if len(words) < 3 or words[0] != "-v" or not NAME.fullmatch(words[1]):
        raise UnknownWordError
    text = PRINTERS["printf"](list(words[2:]))
    if text is None:
        raise UnknownWordError
    return {words[1]: Value(text, None, (place, *lookup.used))}


def _read(words: Sequence[str], given: str, ifs: str | None, lookup: Lookup, place: Location) -> Values:
    flags = [w for w in words if w.startswith("-")]
    names = [w for w in words if not w.startswith("-")]
    if not set("".join(flags)) <= set("-ra") or not names or not all(map(NAME.fullmatch, names)):
        raise UnknownWordError
    line = _input(given, lookup).partition("\n")[0]
    if "\\" in line and not any("r" in f for f in flags):
        raise UnknownWordError
    if ifs is None and not lookup.split:
        raise UnknownWordError
    into_array = any("a" in f for f in flags)
    parts = _fields(line, ifs, None if into_array else len(names))
    places = (place, *lookup.used)
    if into_array:
        if len(names) != 1:
            raise UnknownWordError
        return {names[0]: Value("", tuple(parts), places, (place,) * len(parts))}
    parts += [""] * (len(names) - len(parts))
    return {name: Value(text, None, places) for name, text in zip(names, parts, strict=True)}


def _fields(line: str, ifs: str | None, count: int | None) -> list[str]:
    """The parts of a line; with a ``count`` the last one is the rest."""
    if ifs is None or ifs == " ":
        line = line.strip(" \t" if ifs is None else " ")
        blanks = r"[ \t]+" if ifs is None else " +"
        if count == 1 or not line:
            return [line] if line else []
        return re.split(blanks, line, maxsplit=count - 1 if count else 0)
    if ifs == "":
        return [line] if line or count else []
    # What a separator at the end means depends on how many there are.
    if len(ifs) != 1 or ifs.isspace() or line.endswith(ifs):
        raise UnknownWordError
    return line.split(ifs, count - 1 if count else -1) if line else []


def _mapfile(words: Sequence[str], given: str, lookup: Lookup, place: Location) -> Values:
    if list(words[:-1]) != ["-t"] or not NAME.fullmatch(words[-1]):
        raise UnknownWordError
    lines = tuple(_input(given, lookup).split("\n"))
    if not any(lines):
        raise UnknownWordError
    return {words[-1]: Value("", lines, (place, *lookup.used), (place,) * len(lines))}
