"""Workflow commands, which GitHub shows as annotations beside the changed lines."""

from __future__ import annotations

from collections.abc import Sequence

from dslint.core.finding import Finding
from dslint.report.options import ReportOptions
from dslint.report.place import further, one_line, told
from dslint.report.sources import SourceReader

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """One workflow command a finding."""
    return "".join(f"{_command(finding)}\n" for finding in findings)


def _command(finding: Finding) -> str:
    region = finding.location.region
    # Annotations count the lines of the file as stored, and a cell of a notebook has none there.
    where = {"line": 1} if region.cell is not None else {"line": region.line, "endLine": region.end_line}
    # GitHub refuses columns when the two lines differ.
    if region.cell is None and region.line == region.end_line:
        where |= {"col": region.column, "endColumn": region.end_column}
    properties = {"file": one_line(finding.location.path), **where, "title": f"dslint {finding.code} ({finding.name})"}
    text = "\n".join((told(finding), *further(finding)))
    listed = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    return f"::{_COMMANDS[finding.severity.value]} {listed}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
