"""Checkstyle XML, which Jenkins (Warnings), SonarQube and reviewdog read: a file, and its findings below it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from xml.sax.saxutils import quoteattr

from dslint.core.finding import Finding
from dslint.report.options import ReportOptions
from dslint.report.place import NO_XML, one_line, told, where_in_file
from dslint.report.sources import SourceReader


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """One document."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<checkstyle version="4.3">']
    for path, own in groupby(findings, key=lambda finding: finding.location.path):
        lines.append(f"  <file name={quoteattr(one_line(path))}>")
        lines += [_error(finding) for finding in own]
        lines.append("  </file>")
    return NO_XML.sub("\ufffd", "\n".join([*lines, "</checkstyle>"])) + "\n"


def _error(finding: Finding) -> str:
    region = finding.location.region
    # A cell of a notebook has no lines in the file.
    place = {
        "line": str(where_in_file(finding)[0]),
        **({} if region.cell is not None else {"column": str(region.column)}),
    }
    named = {**place, "severity": finding.severity.value, "message": told(finding), "source": f"dslint.{finding.code}"}
    return f"    <error {' '.join(f'{name}={quoteattr(value)}' for name, value in named.items())}/>"
