"""Jobs of Volcano: manifests whose pods come by tasks."""

from __future__ import annotations

from typing import Any

from dslint.parse.data import DataDoc


def is_volcano(doc: DataDoc) -> bool:
    """A manifest is one of Volcano's batch resources."""
    return str(doc.get("/apiVersion")).startswith("batch.volcano.sh/")


def tasks_of(doc: DataDoc) -> list[Any]:
    """The tasks of a job, as they are written."""
    tasks = doc.get("/spec/tasks")
    return tasks if isinstance(tasks, list) else []
