"""Degrees of tensor, pipeline, context and expert parallelism that a command states, beside its processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from dslint.core.fact import Fact, known
from dslint.core.schemafiles import load_file
from dslint.core.source import Location, SourceFile, Span
from dslint.model.launch.command import LaunchCommand, Word, canonical
from dslint.model.plan.files import Files
from dslint.model.versions.manifests import read_toml

_WORD = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(-?\d{1,6})$")
_NUMBER = re.compile(r"-?\d{1,6}")
# What is worth a look: every row has an option of such a name.
_NAMES = re.compile(r"parallel|ring_attn|job\.config")


@dataclass(frozen=True, slots=True)
class Degrees:
    """The degrees of one library that do not fit ``world``, each with its number and place.

    ``is_whole``: their product must be the number of processes, else a divisor of it.
    """

    library: str
    named: tuple[tuple[str, int, Location], ...]
    world: Fact[int]
    is_whole: bool

    @property
    def product(self) -> int:
        """All degrees multiplied."""
        result = 1
        for _, number, _ in self.named:
            result *= number
        return result


@cache
def _rows() -> tuple[dict[str, Any], ...]:
    return tuple(load_file("parallel_degrees.json")["rows"])


def misfit_degrees(command: LaunchCommand, files: Files, world: Fact[int]) -> Degrees | None:
    """The first degrees of the command that its processes cannot have; ``None`` where all numbers fit or are lost."""
    if command.may_hide_flags() or not any(_NAMES.search(word.raw) for word in command.script_args):
        return None
    given = dict(_given(command))
    for row in _rows():
        said = {**_of_file(row, command, files), **given}
        found = _judged(row, said, world)
        if found is not None:
            return found
    return None


def _judged(
    row: Mapping[str, Any], said: Mapping[str, tuple[int | None, Location]], world: Fact[int]
) -> Degrees | None:
    if "processes" in row:
        world = _started(row["processes"], said)
    named = [(name, *said[canonical(name)]) for name in row["degrees"] if canonical(name) in said]
    if not named or not world.is_known or ("needs" in row and row["needs"] not in said):
        return None
    rest = said.get(canonical(row["rest"])) if "rest" in row else None
    is_whole = rest is not None and rest[0] is not None and rest[0] > 0
    if rest is not None and is_whole:
        named.append((row["rest"], *rest))
    if any(number is None or number < 1 for _, number, _ in named) or (rest is not None and rest[0] is None):
        return None
    told = tuple((name, number, place) for name, number, place in named if number is not None)
    found = Degrees(row["library"], told, world, is_whole)
    fits = found.product == world.get() if is_whole else world.get() % found.product == 0
    return None if fits else found


def _started(counts: Mapping[str, int | None], said: Mapping[str, tuple[int | None, Location]]) -> Fact[int]:
    """The processes that the program starts itself, where the command says how many."""
    total, places = 1, []
    for name, default in counts.items():
        number, place = said.get(canonical(name), (default, None))
        if number is None or number < 1:
            return Fact("unknown")
        total *= number
        places += [place] if place is not None else []
    return known(total, *places)


def _given(command: LaunchCommand) -> Iterator[tuple[str, tuple[int | None, Location]]]:
    """Options and overrides with numbers, by canonical names without dashes; `None`: not known."""
    for word in command.script_args:
        found = _WORD.fullmatch(word.text or "")
        if found is not None:
            yield canonical(found[1]), (int(found[2]), word.location.labelled(word.text or ""))
        elif word.text is None and (lost := re.match(r"\"?\+{0,2}([A-Za-z_][\w.]*)=", word.raw)):
            yield canonical(lost[1]), (None, word.location)
    for flag in command.script_flags:
        yield canonical(flag.name).lstrip("-"), (_number(flag.value), flag.location)


def _number(word: Word | None) -> int | None:
    text = word.text if word is not None else None
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _of_file(row: Mapping[str, Any], command: LaunchCommand, files: Files) -> dict[str, tuple[int | None, Location]]:
    """The same of the TOML file that an option of the row names."""
    flag = command.script_flag(*row["config"]) if "config" in row else None
    text = flag.value.text if flag is not None and flag.value is not None else None
    path = files.find(text) if text is not None and text.endswith(".toml") else None
    source = files.workspace.read(path) if path is not None else None
    data = read_toml(source.text) if source is not None else {}
    found: dict[str, tuple[int | None, Location]] = {}
    for name in (*row["degrees"], row.get("rest", "")):
        section, _, key = name.partition(".")
        value = data.get(section, {}).get(key) if isinstance(data.get(section, {}), dict) else None
        if source is not None and value is not None:
            found[canonical(name)] = (value if type(value) is int else None, _place(source, section, key))
    return found


def _place(source: SourceFile, section: str, key: str) -> Location:
    head = re.search(rf"^\[{re.escape(section)}\]", source.text, re.MULTILINE)
    line = re.compile(rf"^\s*({re.escape(key)}\s*=\s*[^\n#]*)", re.MULTILINE).search(
        source.text, head.end() if head else 0
    )
    return source.location(Span(line.start(1), line.end(1)) if line else Span(0, 1))
