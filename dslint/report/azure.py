"""Logging commands of Azure Pipelines. They know errors and warnings only: a note is a plain line of the log."""

from __future__ import annotations

from collections.abc import Sequence

from dslint.core.finding import Finding, Severity
from dslint.report.options import ReportOptions
from dslint.report.place import further, one_line, place, told, where_in_file
from dslint.report.sources import SourceReader

_ESCAPES = (("%", "%AZP25"), ("\r", "%0D"), ("\n", "%0A"), (";", "%3B"), ("]", "%5D"))


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """One logging command a finding."""
    return "".join(f"{_line(finding)}\n" for finding in findings)


def _line(finding: Finding) -> str:
    if finding.severity is Severity.INFO:
        return f"{place(finding.location)}: {finding.code} info: {told(finding)}"
    properties = {
        "type": finding.severity.value,
        "sourcepath": one_line(finding.location.path),
        "linenumber": str(where_in_file(finding)[0]),
        "columnnumber": str(1 if finding.location.region.cell is not None else finding.location.region.column),
        "code": finding.code,
    }
    listed = "".join(f"{name}={_escaped(value)};" for name, value in properties.items())
    text = ". ".join((told(finding), *further(finding)))
    return f"##vso[task.logissue {listed}]{_escaped(text, len(_ESCAPES) - 2)}"


def _escaped(text: str, number: int = len(_ESCAPES)) -> str:
    for character, code in _ESCAPES[:number]:
        text = text.replace(character, code)
    return text
