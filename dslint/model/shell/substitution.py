"""The output of a ``$( )`` whose commands need not be run: ``dirname``, ``cd ... && pwd``, text tools on known text."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass

from dslint.model.shell.filters import FILTERS
from dslint.model.shell.pieces import Lookup, UnknownWordError
from dslint.model.shell.printers import PRINTERS
from dslint.parse.shelllex import UnfinishedWordError, simple_command, word_part_end

Expand = Callable[[str, Lookup], list[str]]

_PLACES = frozenset({"cd", "pwd", "realpath", "readlink"})
_FIRST = re.compile(r"\s*(?:IFS=\S*\s*(?:;|\n)\s*)?(\w+)\b")
_AFTER = re.compile(r"[ \t]*(&&|\|(?![|&])|;|\n|$)\s*")
_QUIET = re.compile(r"\s*(?:2>\s*/dev/null|2>&1)\s*")
_IFS = re.compile(r"""IFS=(?:(["'])(.?)\1|([^\s"'\\$`]?))""")
_HERE = re.compile(r"\s*<<<\s*")


@dataclass(frozen=True, slots=True)
class _Command:
    """The words of one command, the text on its standard input, and the operator behind it."""

    words: list[str]
    given: str | None
    after: str


def output_of(body: str, lookup: Lookup, expand: Expand) -> str:
    """What the commands between the brackets print. Paths of the project are relative to its top, as everywhere.

    Raises:
        UnknownWordError: the commands have to be run to know.
    """
    first = _FIRST.match(body)
    readable = PRINTERS.keys() | FILTERS.keys() | (_PLACES if lookup.script is not None else set())
    if first is None or first[1] not in readable:
        name = re.match(r"\s*([^\s;|&()<>]+)", body)
        raise UnknownWordError(f"output of `{name[1]}`" if name else "")
    ifs, split = lookup.ifs, lookup.split
    try:
        return _run(body, lookup, expand).rstrip("\n")
    finally:
        lookup.ifs, lookup.split = ifs, split


def _run(body: str, lookup: Lookup, expand: Expand) -> str:
    """The commands one after the other, a pipeline at a time."""
    printed: list[str] = []
    folder: str | None = None
    piped: str | None = None
    at = 0
    while at < len(body):
        joined = _IFS.match(body, at)
        if joined and (after := _AFTER.match(body, joined.end())) and after[1] != "|":
            # Unquoted words would be divided at it too.
            lookup.ifs, lookup.split = joined[2] or joined[3] or "", False
            at = after.end()
            continue
        command, at = _next(body, at, lookup, expand)
        name, arguments = command.words[0], command.words[1:]
        given = command.given if command.given is not None else piped
        if name in _PLACES and (given is not None or command.after == "|"):
            raise UnknownWordError
        if name == "cd":
            folder = _joined(folder or "", _operand(arguments))
        elif folder is not None and name != "pwd":
            raise UnknownWordError
        elif name in _PLACES:
            printed.append(_place(name, arguments, folder, lookup) + "\n")
        else:
            output = _output(name, arguments, given)
            if output is None:
                raise UnknownWordError(f"output of `{name}`")
            piped = output if command.after == "|" else None
            printed += [] if command.after == "|" else [output]
    if piped is not None or not printed:
        raise UnknownWordError
    return "".join(printed)


def _output(name: str, arguments: list[str], given: str | None) -> str | None:
    if name in PRINTERS:
        return PRINTERS[name](arguments)
    return FILTERS[name](arguments, given) if name in FILTERS and given is not None else None


def _next(body: str, at: int, lookup: Lookup, expand: Expand) -> tuple[_Command, int]:
    """The command at an offset and the offset after it.

    Raises:
        UnknownWordError: it is no plain command, or its output goes elsewhere.
    """
    try:
        found = simple_command(body, at)
        given, gap_from = None, at
        for start, end in [*((s.start, s.end) for s in found.words), (found.end, found.end)]:
            gap = body[gap_from:start]
            if gap.strip():
                given = _given(gap, lookup, expand)
            gap_from = end
    except UnfinishedWordError:
        raise UnknownWordError from None
    words = [w for s in found.words for w in expand(body[s.start : s.end], lookup)]
    after = _AFTER.match(body, found.end)
    if after is None or not words:
        raise UnknownWordError
    return _Command(words, given, after[1]), after.end()


def _given(gap: str, lookup: Lookup, expand: Expand) -> str | None:
    """What a redirection puts on standard input; messages that are thrown away make no difference."""
    if _QUIET.fullmatch(gap) or not gap.replace("\\\n", "").strip():
        return None
    here = _HERE.match(gap)
    if here is None:
        raise UnknownWordError
    at = here.end()
    while at < len(gap) and not gap[at].isspace():
        at = word_part_end(gap, at)
    texts = expand(gap[here.end() : at], lookup)
    if len(texts) != 1 or gap[at:].strip():
        raise UnknownWordError
    return texts[0] + "\n"


def _operand(arguments: list[str]) -> str:
    operands = [a for a in arguments if not a.startswith("-")]
    if len(operands) != 1 or any(a not in ("-P", "-L", "--") for a in arguments if a.startswith("-")):
        raise UnknownWordError
    return operands[0]


def _place(name: str, arguments: list[str], folder: str | None, lookup: Lookup) -> str:
    operands = [a for a in arguments if not a.startswith("-")]
    if name == "pwd":
        if operands:
            raise UnknownWordError
        return _own_folder(lookup) if folder is None else folder
    if len(operands) != 1:
        raise UnknownWordError
    return posixpath.normpath(operands[0])


def _own_folder(lookup: Lookup) -> str:
    if lookup.folder is None:
        raise UnknownWordError
    return lookup.folder


def _joined(folder: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(folder, target)) if target else folder
