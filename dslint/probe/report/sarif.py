"""SARIF 2.1.0: a result for each probed finding; the verdict stands in its message and properties."""

from __future__ import annotations

import json
from typing import Any

from dslint import __version__
from dslint.core.finding import Finding
from dslint.probe.outcome import Verdict
from dslint.probe.report import Run
from dslint.probe.runner import Report
from dslint.rules.registry import BY_CODE

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_KINDS = {
    Verdict.CONFIRMED: ("fail", "error"), Verdict.NOT_REPRODUCED: ("pass", "none"), Verdict.NEEDS: ("open", "none"),
    Verdict.INCONCLUSIVE: ("open", "none"),
}  # fmt: skip


def render(run: Run) -> str:
    """One SARIF log."""
    codes = sorted({finding.code for report in run.reports for finding in report.findings})
    summary = run.summary
    driver = {
        "name": "dslint probe",
        "version": __version__,
        "rules": [
            {"id": code, "name": BY_CODE[code].name, "shortDescription": {"text": BY_CODE[code].summary}}
            for code in codes
            if code in BY_CODE
        ],
    }
    log = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "properties": {"versions": dict(summary.versions), "backend": summary.backend, "gpus": summary.gpus},
        "results": [_result(report, finding) for report in run.reports for finding in report.findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [log]}, indent=2) + "\n"


def _result(report: Report, finding: Finding) -> dict[str, Any]:
    kind, level = _KINDS[report.verdict]
    region = finding.location.region
    text = f"{report.verdict.value}: {report.reason}" + (f" ({report.explanation})" if report.explanation else "")
    where = {
        "artifactLocation": {"uri": finding.location.path},
        "region": {
            "startLine": region.line, "startColumn": region.column, "endLine": region.end_line,
            "endColumn": region.end_column,
        },
    }  # fmt: skip
    return {
        "ruleId": finding.code,
        "kind": kind,
        "level": level,
        "message": {"text": text},
        "locations": [{"physicalLocation": where}],
        "properties": {
            "verdict": report.verdict.value, "experiment": f"{report.experiment}/{report.case}",
            "seconds": round(report.seconds, 3),
        },
    }  # fmt: skip
