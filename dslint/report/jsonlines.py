"""The findings of the format ``json``, one object a line: for ``jq``, ``grep`` and logs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dslint.core.finding import Finding
from dslint.report.jsonout import objects
from dslint.report.options import ReportOptions
from dslint.report.sources import SourceReader


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """A line for each finding; nothing where there is none."""
    return "".join(f"{json.dumps(row, ensure_ascii=True)}\n" for row in objects(findings, sources))
