"""Whether a launch text writes to a file of the project before it starts a run: then that is not what the run reads."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.model.launch.command import LaunchCommand
from dslint.model.workspace import Workspace
from dslint.parse.shell import ShellDoc, in_order, parse_shell

if TYPE_CHECKING:
    from tree_sitter import Node

    from dslint.core.source import SourceFile

_EDITORS = frozenset({"yq", "sed", "gsed", "perl", "ex", "crudini"})
_IN_PLACE = re.compile(r"-[a-zA-Z]*i\S*|--in-?place\S*")
_MAY = re.compile(r"\b(?:yq|g?sed|perl|ex|crudini)\b|>")


def is_edited(path: str, command: LaunchCommand, workspace: Workspace) -> bool:
    """The text in which the command stands, or one that calls it, edits a file of this name or writes it anew."""
    name = posixpath.basename(path)
    places = (command.location, *command.called_from)
    texts = [workspace.memo("edited files", place.path, _edited) or frozenset() for place in places]
    return any(name in names for names in texts)


def _edited(source: SourceFile) -> frozenset[str]:
    is_shell = source.path.endswith((".sh", ".bash", ".sbatch", ".slurm", ".pbs"))
    if not is_shell or not _MAY.search(source.text):
        return frozenset()
    shell = parse_shell(source)
    return frozenset(posixpath.basename(word.strip("\"'")) for word in _written(shell))


def _written(shell: ShellDoc) -> Iterator[str]:
    for node in in_order(shell.root):
        target = node.child_by_field_name("destination") if node.type == "file_redirect" else None
        if target is not None and ">" in shell.raw(node):
            yield shell.raw(target)
        elif node.type == "command":
            yield from _in_place(node, shell)


def _in_place(node: Node, shell: ShellDoc) -> Iterator[str]:
    words = [shell.raw(child) for child in node.named_children]
    if words and words[0].rpartition("/")[2] in _EDITORS and any(_IN_PLACE.fullmatch(word) for word in words[1:]):
        yield from words[1:]
