"""Whether one line of a text starts the same command on several nodes: `pdsh`, `srun`, a loop of `ssh` over hosts."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING

from dslint.core.source import Location
from dslint.model.launch.around import LOOPS, nodes_at
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.devices import number
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.slurmjob import on_a_part, step_tasks
from dslint.parse.shell import expansions, in_order

if TYPE_CHECKING:
    from tree_sitter import Node

# They run the words behind their options on every host that they are given.
_FAN_OUT = frozenset({"pdsh", "pssh", "parallel-ssh", "clush"})
_SEVERAL = re.compile(
    r"\s(?:-w|-H|--hosts?|--nodeset)[ =]?[\"']?(?:[\w.-]+(?:,|\[)|[\w.-]+[ ]+[\w.-]+[^\"'\n]*[\"']|\$|\^)"
    r"|\s(?:-h|-g|-a)(?:[ =]|$)"
)
# They run a command on the host, in the pod or in the container that their words name.
_REMOTE = frozenset({"ssh", "rsh", "kubectl", "oc", "gcloud", "docker", "podman"})
# They run a command one time for each word that they are given: `xargs -I{} ssh {} ...`.
_EACH = frozenset({"xargs", "parallel"})
_EACH_HOST = re.compile(r"\s(?:ssh|rsh)\s[^\n\"']*\{\d?\}|\s--(?:onall|nonall)\b")
_SHELLS = frozenset({"bash", "sh", "/bin/bash", "/bin/sh"})
# Programs before `ssh`, and its options that have a value.
_BEFORE = frozenset({"sudo", "nohup", "timeout", "sshpass", "env"})
_WITH_VALUE = re.compile(r"-[bcDEeFIiJLlmOopQRSWw]")
# What decides inside a loop for which hosts a command is.
_BRANCHES = ("if_statement", "elif_clause", "else_clause", "case_item", "case_statement")
# The variables of a word, also those that number its arrays.
_VARIABLES = re.compile(r"[$\[{]\{?([A-Za-z_]\w*)")
# What sets variables under names that do not stand there.
_SETS_ANY = re.compile(r"(?:^|[\s;&|])(?:source|eval|\.)\s", re.MULTILINE)


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
    line, words = _starter(doc, around)
    if line is None or not words:
        return None
    if words[0] in _FAN_OUT:
        return doc.source.location(doc.shell.span(line)) if _SEVERAL.search(doc.shell.raw(line)) else None
    if words[0] in _EACH:
        return doc.source.location(doc.shell.span(line)) if _EACH_HOST.search(doc.shell.raw(line)) else None
    if words[0] not in _REMOTE:
        return None
    loop = _loop(doc, around, line, _destination(doc, command, line, words))
    return doc.source.location(doc.shell.span(loop)) if loop is not None else None


def expanded_once(doc: LaunchDoc, place: Location, name: str) -> bool:
    """This shell puts a variable into the command at a place, and nothing in the text gives it a value in a loop.

    So it has one value for all hosts of the loop. It does not where the word is for the other shell: `\\$RANK`, '...'.
    """
    around = list(nodes_at(doc, place))
    line, _ = _starter(doc, around)
    loop = next((node for node in around if node.type in LOOPS), None)
    if line is None or loop is None or _SETS_ANY.search(doc.shell.raw(loop)):
        return False
    functions = (doc.shell.raw(node) for node in doc.shell.root.children if node.type == "function_definition")
    if any(_gives(name, text) for text in (doc.shell.raw(loop), *functions)):
        return False
    return any(found == name for _, found in expansions(line, doc.shell))


def turns_of(doc: LaunchDoc, loop: Location) -> str:
    """The variable of a loop `for host in ...`; ``""`` for others."""
    found = re.match(r"for\s+(\w+)\s+in\b", doc.source.text[loop.span.start : loop.span.end])
    return found[1] if found else ""


def _starter(doc: LaunchDoc, around: list[Node]) -> tuple[Node | None, list[str]]:
    """The command of the text around a place, also one that reads the place from its input, and its words."""
    line = None
    for node in around:
        if node.type == "command":
            line = node
        elif node.type == "redirected_statement" and line is None:
            line = next((child for child in node.named_children if child.type == "command"), None)
        elif node.type in (*LOOPS, *_BRANCHES, "function_definition"):
            break
        if line is not None:
            break
    words = [doc.shell.raw(child) for child in line.named_children] if line is not None else []
    while words and (words[0] in _BEFORE or "=" in words[0] or words[0][:1].isdigit() or words[0].startswith("-")):
        words = words[1:]
    return line, words


def _destination(doc: LaunchDoc, command: LaunchCommand, line: Node, words: list[str]) -> list[str]:
    """The words that say where the command runs: of `ssh` the first behind its options, of others all before it."""
    if words[0] in ("ssh", "rsh"):
        words = words[1:]
        while words and words[0].startswith("-"):
            words = words[2:] if _WITH_VALUE.fullmatch(words[0]) else words[1:]
        return words[:1]
    if command.called_from or not command.argv:
        return list(takewhile(lambda word: word not in _SHELLS and not word.endswith(".sh"), words))
    end = command.argv[0].location.span.start - doc.shell.base
    return [doc.shell.raw(child) for child in line.named_children if doc.shell.local(child).end <= end]


def _loop(doc: LaunchDoc, around: list[Node], line: Node, words: list[str]) -> Node | None:
    """The loop around a command, or around the one call of its function, that goes over the hosts in these words.

    None where a test inside of the loop decides whether the command runs.
    """
    for node in around:
        if node.type in LOOPS:
            names = {name for word in words for name in _VARIABLES.findall(word)}
            return node if any(_gives(name, doc.shell.raw(node)) for name in names) else None
        if node.type in _BRANCHES:
            return None
        if node.type == "function_definition":
            calls = _calls(doc, node) if line.type == "command" and any("$" in word for word in words) else []
            if len(calls) != 1:
                return None
            around = list(nodes_at(doc, doc.source.location(doc.shell.span(calls[0]))))
            is_looped = not any(other.type == "function_definition" for other in around)
            return _loop(doc, around, calls[0], doc.shell.raw(calls[0]).split()[1:]) if is_looped else None
    return None


def _calls(doc: LaunchDoc, function: Node) -> list[Node]:
    name = function.child_by_field_name("name")
    called = [doc.shell.raw(name)] if name is not None else []
    commands = (node for node in in_order(doc.shell.root) if node.type == "command")
    return [node for node in commands if called and doc.shell.raw(node).split(maxsplit=1)[:1] == called]


def _gives(name: str, text: str) -> bool:
    """A text gives a variable a value: its name stands there without a `$`."""
    return re.search(rf"(?<![$\w{{./-]){re.escape(name)}\b(?![-.\w/])", text) is not None
