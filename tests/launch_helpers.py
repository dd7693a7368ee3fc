"""Helpers for tests that ask what a launch file starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dslint.core.fact import Fact
from dslint.core.source import SourceFile
from dslint.model.launch.document import read_launch_docs
from dslint.model.plan.runplan import RunPlan, build_plans
from dslint.model.workspace import Workspace


def shown(fact: Fact[int]) -> int | str:
    """The number, or the state of a fact without one."""
    return fact.get() if fact.is_known else fact.state


def plan_of(text: str, files: Mapping[str, str]) -> RunPlan:
    """The plan of the one command of a shell script, beside other files."""
    workspace = Workspace(Path("/nonexistent"), {"run.sh": text, **files})
    docs = read_launch_docs(SourceFile("run.sh", text), "shell", workspace)
    (plan,) = build_plans([c for d in docs for c in d.commands], workspace)
    return plan
