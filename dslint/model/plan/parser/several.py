"""Several calls that parse the command line: together they take no more than all their options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from dslint.core.fact import Fact, unknown
from dslint.model.plan.parser.options import LETS_PASS, Option
from dslint.python.commandlines import CommandLine
from dslint.python.events import Event

Parsing = Sequence[tuple[Event, CommandLine]]


def joined(parsing: Parsing, certain: Collection[Event]) -> CommandLine:
    """The options of all calls; what only some have is required where such a call is certain.

    Whether one call reads words after another or in its place: what none of them takes is refused as soon as one runs
    that refuses words.
    """
    first = parsing[0][1]
    lines = [line for _, line in parsing]
    options: dict[tuple[str, ...], Option] = {}
    for _, line in parsing:
        for option in line.options:
            key = option.flags or (option.dest,)
            options[key] = _either(options[key], option) if key in options else option
    needed = _certainly(parsing, certain, lambda option: option.required)
    there = _certainly(parsing, certain, lambda _: True)
    kept = tuple(
        replace(option, required=key in needed, default=option.default if key in there else _nobody_knows(option))
        for key, option in options.items()
    )
    strict = next((line for line in lines if not line.passes), first)
    return replace(
        strict,
        options=kept,
        open_because=next((line.open_because for line in lines if line.open_because), ""),
        passes=any(line.passes for line in lines) and not any(e in certain and not line.passes for e, line in parsing),
        own_words=any(line.own_words for line in lines),
        abbreviates=any(line.abbreviates for line in lines),
        helps=any(line.helps for line in lines),
        classes=tuple(dict.fromkeys(path for line in lines for path in line.classes)),
        reads_config=any(line.reads_config for line in lines),
    )


def _certainly(parsing: Parsing, certain: Collection[Event], holds: Callable[[Option], bool]) -> set[tuple[str, ...]]:
    """The options of which something holds in all calls, or in one that is certain."""
    found = [(event, {o.flags or (o.dest,) for o in line.options if holds(o)}) for event, line in parsing]
    return set.intersection(*(names for _, names in found)).union(*(names for e, names in found if e in certain))


def because(parsing: Parsing, found: CommandLine) -> str:
    """Why the command line may hold more than the options of all calls."""
    if len({line.parser for _, line in parsing}) > 1 and any(line.command is not None for _, line in parsing):
        return "several parsers read the command line"
    if found.open_because:
        return found.open_because
    if found.own_words:
        return "it parses words that the script chooses"
    return LETS_PASS if found.passes else ""


def _either(first: Option, second: Option) -> Option:
    """One option that two parsers declare: where they differ nobody knows what it makes of its words."""
    if first == replace(second, location=first.location, default=first.default, required=first.required):
        same = first.default.state == second.default.state and first.default.value == second.default.value
        return first if same else replace(first, default=_nobody_knows(first))
    return replace(first, default=_nobody_knows(first), type="", choices=None, action="store", is_opaque=True)


def _nobody_knows(option: Option) -> Fact[object]:
    return unknown("only some of the parsers declare it so", option.location)
