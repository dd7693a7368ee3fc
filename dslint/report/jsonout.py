"""Findings for programs: an object with a version and a flat list. Its keys are stable within version 1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from dslint import __version__
from dslint.core.finding import Finding
from dslint.core.fix import Edit, Fix
from dslint.core.source import Location, SourceFile
from dslint.report.links import rule_url
from dslint.report.options import ReportOptions
from dslint.report.sources import SourceReader

FORMAT_VERSION = 1


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """One JSON object; lines and columns are 1-based code points, end columns exclusive."""
    listed = list(objects(findings, sources))
    report = {"version": FORMAT_VERSION, "dslint": __version__, "findings": listed}
    return json.dumps(report, indent=2, ensure_ascii=True) + "\n"


def objects(findings: Sequence[Finding], sources: SourceReader) -> Iterator[dict[str, Any]]:
    """The findings as objects."""
    files: dict[str, SourceFile] = {}
    for finding in findings:
        yield _finding(finding, sources, files)


def _finding(finding: Finding, sources: SourceReader, files: dict[str, SourceFile]) -> dict[str, Any]:
    return {
        **_place(finding.location),
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "assumptions": list(finding.assumptions),
        "message": finding.message,
        "hint": finding.hint,
        "related": [{**_place(other), "label": other.label} for other in finding.related],
        "fix": _fix(finding.fix, sources, files) if finding.fix else None,
        "pointer": finding.pointer,
        "aside": finding.aside or None,
        "url": rule_url(finding.code) or None,
    }


def _place(location: Location) -> dict[str, Any]:
    region = location.region
    place: dict[str, Any] = {"path": location.path}
    if region.cell is not None:
        place["cell"] = region.cell
    place.update(line=region.line, column=region.column, end_line=region.end_line, end_column=region.end_column)
    return place


def _fix(fix: Fix, sources: SourceReader, files: dict[str, SourceFile]) -> dict[str, Any]:
    return {
        "title": fix.title,
        "safety": fix.safety.value,
        "edits": [_edit(edit, sources, files) for edit in fix.edits],
    }


def _edit(edit: Edit, sources: SourceReader, files: dict[str, SourceFile]) -> dict[str, Any]:
    if edit.path not in files:
        files[edit.path] = SourceFile(edit.path, sources.text(edit.path))
    region = files[edit.path].region(edit.span)
    return {
        "path": edit.path,
        "start": edit.span.start,
        "end": edit.span.end,
        "line": region.line,
        "column": region.column,
        "end_line": region.end_line,
        "end_column": region.end_column,
        "text": edit.text,
    }
