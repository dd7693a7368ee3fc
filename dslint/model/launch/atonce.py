"""Launch commands that run several times at the same time: in a loop, in a function, by ``xargs`` or ``parallel``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from dslint.core.source import Location
from dslint.model.launch.around import LOOPS, branches, enclosing, in_background, is_behind
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.meeting import meeting
from dslint.parse.shell import in_order

if TYPE_CHECKING:
    from tree_sitter import Node

_WAITS = re.compile(r"\b(?:wait|sem|fg)\b")
_BETWEEN = re.compile(r"\b(?:wait|kill|pkill|killall|done|exit)\b|\bsleep\s+(?!\d{1,3}s?\b|[1-9]m\b)")
# So short that no training ends meanwhile.
_SLEEPS = re.compile(r"\bsleep\b")


def at_once(doc: LaunchDoc, first: LaunchCommand, second: LaunchCommand) -> bool:
    """The second of two commands of a text starts while the first one runs."""
    between = _between(doc, first, second)
    if between is None or _BETWEEN.search(between):
        return False
    return in_background(doc, first) and branches(doc, first) == branches(doc, second)


def sleeps(doc: LaunchDoc, first: LaunchCommand, second: LaunchCommand) -> bool:
    """The text sleeps between two commands."""
    return _SLEEPS.search(_between(doc, first, second) or "") is not None


def _between(doc: LaunchDoc, first: LaunchCommand, second: LaunchCommand) -> str | None:
    """What stands between two commands, or the calls that start them; ``None`` where the second does not follow."""
    end, begin = (next(iter(c.called_from), c.location).span for c in (first, second))
    return doc.source.text[end.end : begin.start] if end.end <= begin.start else None


def agents_at_once(doc: LaunchDoc, commands: Sequence[LaunchCommand]) -> Iterator[list[LaunchCommand]]:
    """The launchers of a machine that are nodes of one run: the turns of a loop, or commands one behind the other."""
    alone: list[LaunchCommand] = []
    for _, group in groupby(commands, key=lambda c: next(iter(c.called_from), c.location).span):
        turns = list(group)
        ranks = {meeting(turn).node_rank.get_or("") for turn in turns}
        again = repeated_at_once(doc, turns[0]) is not None
        if again or (len(ranks) > 1 and in_background(doc, turns[0])):
            yield turns
        else:
            alone.append(turns[0])
    for first, second in pairwise(alone):
        one, two = meeting(first), meeting(second)
        is_same = one.port == two.port or one.port.get_or("") == two.port.get_or("-")
        if is_same and at_once(doc, first, second):
            yield [first, second]


def repeated_at_once(doc: LaunchDoc, command: LaunchCommand) -> Location | None:
    """Where the text says that the command runs a second time while it still runs; ``None`` where it does not."""
    by = _by_program(command)
    if by is not None:
        return by
    is_left_running = False
    for node in enclosing(doc, command):
        is_left_running |= is_behind(node)
        if node.type in LOOPS and is_left_running:
            return None if _waits(doc, node, command) else doc.shell.location(node, "each turn starts one more")
        if node.type == "function_definition":
            return _called_twice(doc, node, is_left_running)
    return None


def _by_program(command: LaunchCommand) -> Location | None:
    """``xargs -P 4`` and ``parallel`` start several at once."""
    for words in command.wrappers:
        texts = [word.text or "" for word in words]
        name = texts[0].rpartition("/")[2]
        told = " ".join(texts[1:])
        found = re.search(r"(?:^| )(?:-P|-j|--jobs|--max-procs)[ =]?(\d+)", told)
        is_one = found is not None and found[1] == "1"
        if (name == "parallel" and not is_one) or (name == "xargs" and found is not None and not is_one):
            return words[0].location.labelled("it starts several at once")
    return None


def _waits(doc: LaunchDoc, loop: Node, command: LaunchCommand) -> bool:
    """The loop waits behind the command, also every few turns."""
    return _WAITS.search(doc.shell.raw(loop)) is not None or bool(command.conditions)


def _called_twice(doc: LaunchDoc, function: Node, is_left_running: bool) -> Location | None:
    """The second call of a function in the background, or of one that leaves its command running."""
    name = next((doc.shell.raw(child) for child in function.named_children if child.type == "word"), "")
    calls = [
        node
        for node in in_order(doc.shell.root)
        if node.type == "command" and doc.shell.raw(node).split()[:1] == [name]
    ]
    if is_left_running and _WAITS.search(doc.shell.raw(function)):
        return None
    behind = [node for node in calls if is_left_running or is_behind(node)]
    for first, second in zip(behind, calls[calls.index(behind[0]) + 1 :] if behind else (), strict=False):
        between = doc.shell.text[doc.shell.local(first).end : doc.shell.local(second).start]
        if first.parent == second.parent and not re.search(r"\b(?:wait|kill|pkill)\b", between):
            return doc.shell.location(second, "started while the first one runs")
    return None
