"""Launch commands that run several times at the same time: in a loop, in a function, by ``xargs`` or ``parallel``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dslint.core.source import Location
from dslint.model.launch.around import LOOPS, enclosing, is_behind
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.parse.shell import in_order

if TYPE_CHECKING:
    from tree_sitter import Node

_WAITS = re.compile(r"\b(?:wait|sem|fg)\b")


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
            return None if is_left_running else _called_twice(doc, node)
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


def _called_twice(doc: LaunchDoc, function: Node) -> Location | None:
    """The second call of a function in the background, with the first still running."""
    name = next((doc.shell.raw(child) for child in function.named_children if child.type == "word"), "")
    calls = [
        node
        for node in in_order(doc.shell.root)
        if node.type == "command" and doc.shell.raw(node).split()[:1] == [name]
    ]
    behind = [node for node in calls if is_behind(node)]
    for first, second in zip(behind, calls[calls.index(behind[0]) + 1 :] if behind else (), strict=False):
        between = doc.shell.text[doc.shell.local(first).end : doc.shell.local(second).start]
        if first.parent == second.parent and not re.search(r"\b(?:wait|kill|pkill)\b", between):
            return doc.shell.location(second, "started while the first one runs")
    return None
