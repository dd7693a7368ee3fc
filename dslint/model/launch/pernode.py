"""Whether each node of a run reads a launch text for itself, and the values that the text computes there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.source import Location, Span
from dslint.model.launch.around import nodes_at
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.meeting import meeting
from dslint.model.launch.otherhosts import reaches_other_hosts

_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_CONDITIONAL = frozenset({"if_statement", "case_statement", "list", "while_statement", "function_definition"})
# How many values of variables are followed.
_MOST = 6


@dataclass(frozen=True, slots=True)
class Written:
    """What stands in a text as a value, and where."""

    text: str
    location: Location


def runs_on_every_node(doc: LaunchDoc, command: LaunchCommand) -> bool:
    """The words of the command are expanded on each node of its run, not once for all of them.

    So it is inside the quotes of ``srun bash -c '...'``, and in a script that knows the number of its node from
    outside and starts nothing on other hosts.
    """
    if doc.is_rewritten or doc.shell.anchor is not None or command.location.path != doc.source.path:
        return False
    if command.outer == "srun":
        return any(node.type == "raw_string" for node in nodes_at(doc, command.location))
    if command.outer or command.wrappers or "SBATCH_NODES" in command.env or "#SBATCH" in doc.shell.text:
        return False
    if command.conditions or command.called_from or reaches_other_hosts(doc.shell):
        return False
    how = meeting(command)
    numbers_itself = how.backend.get_or("static") not in ("static", "")
    return numbers_itself or (how.node_rank.is_unknown or "$" in _raw(command, "--node_rank", "--machine_rank"))


def _raw(command: LaunchCommand, *names: str) -> str:
    flag = command.launcher_flag(*names)
    return flag.value.raw if flag is not None and flag.value is not None else ""


def written(doc: LaunchDoc, word: Word) -> Iterator[Written]:
    """The word as it stands there, and the values of variables in it that the text sets once and under no condition."""
    found: list[Written] = [Written(word.raw, word.location)]
    for value in found:
        yield value
        names = _VARIABLE.findall(value.text) if len(found) < _MOST else ()
        found += [inner for name in names if (inner := _set_once(doc, name)) is not None]


def _set_once(doc: LaunchDoc, name: str) -> Written | None:
    sets = rf"^[ \t]*(?:export[ \t]+)?{name}=(?P<value>[^\n]*?)[ \t]*;?[ \t]*$"
    found = list(re.finditer(sets, doc.shell.text, re.MULTILINE))
    if len(found) != 1 or doc.shell.anchor is not None:
        return None
    begin = found[0].start() + len(found[0][0]) - len(found[0][0].lstrip())
    place = doc.source.location(Span(begin + doc.shell.base, found[0].end("value") + doc.shell.base))
    if any(node.type in _CONDITIONAL for node in nodes_at(doc, place)):
        return None
    return Written(found[0]["value"], place)
