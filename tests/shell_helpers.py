"""Helpers for tests that ask what a shell script runs."""

from __future__ import annotations

from collections.abc import Callable

from dslint.model.shell.commands import Invocation
from dslint.model.shell.values import read_statements
from dslint.parse.shell import ShellDoc


def read_invocations(doc: ShellDoc, wanted: Callable[[str], bool]) -> list[Invocation]:
    """The commands whose raw text is wanted, in the order of the text."""
    return [item for item in read_statements(doc, wanted) if isinstance(item, Invocation)]
