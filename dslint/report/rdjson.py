"""The Diagnostic Format of reviewdog (rdjson): columns count bytes of UTF-8."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dslint.core.finding import Finding
from dslint.core.source import Location, Region, SourceFile
from dslint.report.links import rule_url
from dslint.report.options import ReportOptions
from dslint.report.place import one_line, told
from dslint.report.sources import SourceReader

_SEVERITIES = {"error": "ERROR", "warning": "WARNING", "info": "INFO"}


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """One ``DiagnosticResult``."""
    rows = [_diagnostic(finding, sources) for finding in findings]
    return json.dumps({"source": {"name": "dslint"}, "diagnostics": rows}, indent=2) + "\n"


def _diagnostic(finding: Finding, sources: SourceReader) -> dict[str, Any]:
    code = {"value": finding.code}
    if url := rule_url(finding.code):
        code["url"] = url
    row: dict[str, Any] = {
        "message": told(finding),
        "location": _location(finding.location, sources),
        "severity": _SEVERITIES[finding.severity.value],
        "code": code,
    }
    if finding.related:
        row["related_locations"] = [
            {"message": one_line(other.label), "location": _location(other, sources)} for other in finding.related
        ]
    edits = finding.fix.edits if finding.fix else ()
    if len(edits) == 1 and edits[0].path == finding.location.path and finding.location.region.cell is None:
        # Several suggestions would be taken for alternatives.
        source = SourceFile(edits[0].path, sources.text(edits[0].path))
        where = _range(source.region(edits[0].span), edits[0].path, sources)
        row["suggestions"] = [{"range": where, "text": edits[0].text}]
    return row


def _location(location: Location, sources: SourceReader) -> dict[str, Any]:
    if location.region.cell is not None:  # its lines are no lines of the file
        return {"path": location.path, "range": {"start": {"line": 1}}}
    return {"path": location.path, "range": _range(location.region, location.path, sources)}


def _range(region: Region, path: str, sources: SourceReader) -> dict[str, Any]:
    lines = sources.lines(path)

    def point(line: int, column: int) -> dict[str, int]:
        text = lines[line - 1] if 1 <= line <= len(lines) else ""
        before = text[: column - 1] if text else " " * (column - 1)
        return {"line": line, "column": len(before.encode("utf-8", "surrogatepass")) + 1}

    return {"start": point(region.line, region.column), "end": point(region.end_line, region.end_column)}
