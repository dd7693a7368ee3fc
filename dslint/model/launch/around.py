"""What stands around a launch command in the shell: the pipe that it writes into, the `&` behind it, loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.source import Location
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc

if TYPE_CHECKING:
    from tree_sitter import Node


def enclosing(doc: LaunchDoc, command: LaunchCommand) -> Iterator[Node]:
    """The nodes around the first word of the command, or of the call that starts it, from the inside out.

    None for a text that stands nowhere.
    """
    return nodes_at(doc, next(iter(command.called_from), command.location))


def nodes_at(doc: LaunchDoc, place: Location) -> Iterator[Node]:
    """The nodes around the begin of a place, from the inside out."""
    shell = doc.shell
    offset = place.span.start - shell.base
    if shell.anchor is not None or place.path != doc.source.path or not 0 <= offset < len(shell.text):
        return
    node, path = shell.root, [shell.root]
    while True:
        inner = next((c for c in node.children if shell.local(c).start <= offset < shell.local(c).end), None)
        if inner is None:
            break
        path.append(inner)
        node = inner
    yield from reversed(path)


def piped_into(doc: LaunchDoc, command: LaunchCommand) -> str:
    """The name of the last program of the pipe that the command writes into; ``""`` without one."""
    for node in enclosing(doc, command):
        if node.type == "pipeline" and node.named_children:
            last = node.named_children[-1]
            span = doc.shell.local(last)
            inside = span.start <= command.location.span.start - doc.shell.base < span.end
            words = doc.shell.raw(last).split()
            return "" if inside or not words else words[0]
        if node.type in ("program", "subshell", "function_definition"):
            break
    return ""


LOOPS = ("for_statement", "while_statement", "c_style_for_statement")


def is_behind(node: Node) -> bool:
    """``&`` follows: what comes next starts while this runs."""
    return node.next_sibling is not None and node.next_sibling.type == "&"


def in_background(doc: LaunchDoc, command: LaunchCommand) -> bool:
    """``command &``: the next one starts while this one runs."""
    for node in enclosing(doc, command):
        if is_behind(node):
            return True
        if node.type in ("program", "function_definition"):
            break
    return False


def branches(doc: LaunchDoc, command: LaunchCommand) -> frozenset[int]:
    """The conditions and functions that the command stands in, by identity: others may not run with it."""
    kinds = ("if_statement", "elif_clause", "else_clause", "case_item", "function_definition", "while_statement")
    return frozenset(node.id for node in enclosing(doc, command) if node.type in kinds)
