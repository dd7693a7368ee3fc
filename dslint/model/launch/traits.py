"""What the commands of a launch document are made of, by name: enough to say which rules cannot concern it."""

from __future__ import annotations

from functools import lru_cache

from dslint.model.launch.command import LaunchCommand, canonical
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.ncclnames import is_nccl

# There is a command; one of which somebody says that it runs on several nodes, or on a number that nobody can read.
COMMAND, NODES = "command", "nodes"
# The text is not that of one script: a recipe of make or just, a notebook, a list of words.
REWRITTEN = "rewritten"
# The file starts containers of one job; some of them do not find the others.
PARTIES, LOST_ADDRESSES = "parties", "lost_addresses"
# A variable of a family of names: of NCCL, also where its prefix is misspelt.
NCCL, PYTORCH, XTUNER = "NCCL_*", "PYTORCH_*", "XTUNER_*"


def traits(doc: LaunchDoc) -> set[str]:
    """The traits of all commands of a document and of those that it calls.

    Launchers (also the one around another), options of both with ``_`` (``--nproc_per_node``), variables that the file
    sets, their families, ``COMMAND`` and ``NODES``; ``REWRITTEN``, ``PARTIES`` and ``LOST_ADDRESSES`` of the document.
    """
    found: set[str] = {REWRITTEN} if doc.is_rewritten else set()
    if doc.parties:
        found.add(PARTIES)
    if doc.lost_addresses:
        found.add(LOST_ADDRESSES)
    names: set[str] = set()
    for command in (*doc.commands, *doc.called) if doc.called else doc.commands:
        found.update((COMMAND, command.launcher, command.outer))
        found.update(_options(command))
        names.update(command.env)
        if not command.nodes.is_absent and command.nodes.get_or(2) > 1:
            found.add(NODES)
    return found.union(names, map(_family, names))


def _options(command: LaunchCommand) -> list[str]:
    return [canonical(flag.name) for flags in (command.launcher_flags, command.outer_flags) for flag in flags]


@lru_cache(maxsize=10_000)
def _family(name: str) -> str:
    if is_nccl(name):
        return NCCL
    return next((family for family in (PYTORCH, XTUNER) if name.startswith(family[:-1])), "")
