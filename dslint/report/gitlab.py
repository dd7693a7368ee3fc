"""Code Quality of GitLab: a list of issues, each with a fingerprint that is its own in the report."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dslint.core.finding import Finding
from dslint.report.fingerprints import Fingerprints
from dslint.report.options import ReportOptions
from dslint.report.place import told, where_in_file
from dslint.report.sources import SourceReader

_SEVERITIES = {"error": "critical", "warning": "major", "info": "info"}


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """One JSON list."""
    fingerprints = Fingerprints(sources)
    issues = []
    for finding in findings:
        first, last = where_in_file(finding)
        issues.append(
            {
                "check_name": finding.code,
                "description": f"{finding.code} {told(finding)}",
                "severity": _SEVERITIES[finding.severity.value],
                "fingerprint": fingerprints.of(finding),
                "location": {"path": finding.location.path, "lines": {"begin": first, "end": last}},
            }
        )
    return json.dumps(issues, indent=2) + "\n"
