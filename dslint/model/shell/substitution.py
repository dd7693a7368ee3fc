"""The output of the few commands in ``$( )`` that say where a script stands: ``dirname``, ``cd ... && pwd``."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from dslint.model.shell.pieces import Lookup, UnknownWordError


def output_of(commands: Sequence[Sequence[str]], lookup: Lookup) -> str:
    """What the commands print. Paths of the project are relative to its top, as everywhere in dslint.

    Raises:
        UnknownWordError: the commands have to be run to know.
    """
    folder: str | None = None
    for at, words in enumerate(commands):
        if not words:
            raise UnknownWordError
        name, operands = words[0], [w for w in words[1:] if not w.startswith("-")]
        last = at == len(commands) - 1
        if name == "cd" and len(operands) == 1 and not last:
            folder = _joined(folder or "", operands[0])
        elif name == "pwd" and not operands and last:
            return _own_folder(lookup) if folder is None else folder
        elif folder is None and last and len(operands) == 1:
            return _one_operand(name, operands[0])
        else:
            raise UnknownWordError
    raise UnknownWordError


def _one_operand(name: str, operand: str) -> str:
    if name == "dirname":
        if posixpath.basename(operand) in (".", ".."):
            raise UnknownWordError  # the folder above the project, if the path was absolute
        return posixpath.dirname(operand.rstrip("/")) or "."
    if name == "basename":
        return posixpath.basename(operand.rstrip("/"))
    if name in ("realpath", "readlink"):
        return posixpath.normpath(operand)
    raise UnknownWordError


def _own_folder(lookup: Lookup) -> str:
    if lookup.folder is None:
        raise UnknownWordError
    return lookup.folder


def _joined(folder: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(folder, target)) if target else folder
