"""Whether one line of a text starts the same command on several nodes: `pdsh`, `srun`, a loop of `ssh` over hosts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dslint.core.source import Location
from dslint.model.launch.around import LOOPS, nodes_at
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.devices import number
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.slurmjob import on_a_part, step_tasks

if TYPE_CHECKING:
    from tree_sitter import Node

# They run the words behind their options on every host that they are given.
_FAN_OUT = frozenset({"pdsh", "pssh", "parallel-ssh", "clush"})
_SEVERAL = re.compile(r"\s(?:-w|-H|--hosts?|--nodeset)[ =]?[\"']?(?:[\w.-]+(?:,|\[)|\$)|\s(?:-h|-g|-a)(?:[ =]|$)")
_SSH = frozenset({"ssh", "rsh"})
# Programs before `ssh`, and its options that have a value.
_BEFORE = frozenset({"sudo", "nohup", "timeout", "sshpass", "env"})
_WITH_VALUE = re.compile(r"-[bcDEeFIiJLlmOopQRSWw]")
# What decides inside a loop for which hosts a command is.
_BRANCHES = ("if_statement", "elif_clause", "else_clause", "case_item", "function_definition")


def repeated_at(doc: LaunchDoc, command: LaunchCommand, place: Location) -> Location | None:
    """What starts the command on several nodes with the same words: the loop, `pdsh`, `srun`; `None` where nothing.

    ``place`` is where the text starts it: the command itself, or the call of the script that holds it.
    """
    if command.outer == "mpirun":
        count = number(next((flag for flag in command.outer_flags if flag.name in ("-np", "-n", "--np")), None))
        return place if count is not None and 1 < count <= command.nodes.get_or(0) else None
    if command.outer == "srun":
        is_part = on_a_part(command) or any(flag.name in ("-w", "--nodelist") for flag in command.outer_flags)
        tasks = step_tasks(command).total
        return place if not is_part and tasks.get_or(0) > 1 and command.nodes.get_or(0) > 1 else None
    around = list(nodes_at(doc, place))
    line = next((node for node in around if node.type == "command"), None)
    words = [doc.shell.raw(child) for child in line.named_children] if line is not None else []
    while words and (words[0] in _BEFORE or "=" in words[0] or words[0][:1].isdigit() or words[0].startswith("-")):
        words = words[1:]
    if line is None or not words:
        return None
    if words[0] in _FAN_OUT:
        return doc.source.location(doc.shell.span(line)) if _SEVERAL.search(doc.shell.raw(line)) else None
    loop = _loop(around) if words[0] in _SSH and "$" in _host(words[1:]) else None
    return doc.source.location(doc.shell.span(loop)) if loop is not None else None


def _host(words: list[str]) -> str:
    """The host of `ssh`: the first word behind its options."""
    while words and words[0].startswith("-"):
        words = words[2:] if _WITH_VALUE.fullmatch(words[0]) else words[1:]
    return words[0] if words else ""


def _loop(around: list[Node]) -> Node | None:
    """The loop around a command, where no test inside of it decides whether the command runs."""
    for node in around:
        if node.type in LOOPS:
            return node
        if node.type in _BRANCHES:
            return None
    return None
