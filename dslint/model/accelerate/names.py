"""Which release of accelerate knows which key, argument and word.

``schemas/accelerate.history.json`` is generated from the sources of all releases
(``scripts/generate_accelerate_schema.py``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from dslint.core.schemafiles import load_file
from dslint.model.context import VersionFact
from dslint.model.versions.resolve import covers

FILE = "accelerate.history.json"


@lru_cache(maxsize=1)
def _history() -> dict[str, Any]:
    return load_file(FILE)


def newest() -> str:
    """The newest release that the table covers."""
    return str(_history()["releases"][-1])


def names(table: str) -> tuple[str, ...]:
    """The names of a table that the newest release knows.

    ``table``: ``keys`` of a file, ``sagemaker_keys``, ``arguments`` of the command, ``distributed_types``,
    ``precisions``, ``launchers``.
    """
    return tuple(name for name, span in _history()[table].items() if len(span) < 2)


def releases_of(table: str, name: str) -> tuple[str | None, str | None] | None:
    """The release that brought a name and the one that removed it; ``None``: no release knows it."""
    span = _history()[table].get(name)
    if span is None:
        return None
    since, until = (*span, None, None)[:2]
    return since, until


def is_known(table: str, name: str, version: VersionFact) -> bool:
    """Some release that may be installed knows the name. Nobody states the version: any release may be installed."""
    known = releases_of(table, name)
    if known is None:
        return False
    limits = [f">={known[0]}"] if known[0] else []
    limits += [f"<{known[1]}"] if known[1] else []
    return not limits or covers(version, ",".join(limits), "accelerate") != "no"
