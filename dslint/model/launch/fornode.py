"""Names of launch files that are meant for one node: ``train_node0.sh``, ``run_master.sh``, ``worker-1.sh``."""

from __future__ import annotations

import re

_FOR_ONE = re.compile(r"(?:node|rank|worker|host|machine|master|head|main|slave|client)s?[-_]?\d*(?=[-_.]|$)", re.I)


def is_for_one_node(path: str) -> bool:
    """Whether the name of a file says for which node it is."""
    return _FOR_ONE.search(path.rpartition("/")[2]) is not None


def without_node(path: str) -> str:
    """The path without the node in its name: the same for all files of one job. ``""`` where the name has no node."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{_FOR_ONE.sub('*', name)}" if _FOR_ONE.search(name) else ""
