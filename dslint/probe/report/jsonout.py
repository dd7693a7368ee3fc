"""The report for programs: an object with a version. Its keys are stable within version 1."""

from __future__ import annotations

import json
from typing import Any

from dslint import __version__
from dslint.core.finding import Finding
from dslint.probe.outcome import ArmOutcome
from dslint.probe.report import Run, why
from dslint.probe.runner import Report

FORMAT_VERSION = 1


def render(run: Run) -> str:
    """One JSON object."""
    return json.dumps(document(run), indent=2) + "\n"


def document(run: Run) -> dict[str, Any]:
    """The report as plain data."""
    return {
        "version": FORMAT_VERSION,
        "dslint": __version__,
        "versions": dict(run.summary.versions),
        "backend": run.summary.backend,
        "gpus": run.summary.gpus,
        "machine": run.summary.machine,
        "results": [_result(report) for report in run.reports],
        "without_experiment": [{**_finding(finding), "why": why(finding)} for finding in run.without],
    }


def _result(report: Report) -> dict[str, Any]:
    return {
        "experiment": report.experiment,
        "case": report.case,
        "rules": list(report.rules),
        "verdict": report.verdict.value,
        "expected": report.expected.value,
        "reason": report.reason,
        "explanation": report.explanation,
        "seconds": round(report.seconds, 3),
        "backend": report.backend,
        "params": dict(report.params),
        "findings": [_finding(finding) for finding in report.findings],
        "fixed": _arm(report.fixed) if report.fixed else None,
        "written": [_arm(arm) for arm in report.written],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    region = finding.location.region
    return {
        "code": finding.code, "name": finding.name, "path": finding.location.path, "line": region.line,
        "column": region.column,
    }  # fmt: skip


def _arm(arm: ArmOutcome) -> dict[str, Any]:
    return {
        "outcome": arm.kind.value,
        "seconds": round(arm.seconds, 3),
        "reason": arm.reason,
        "ranks": [
            {
                "rank": rank.rank, "outcome": rank.kind.value, "value": rank.value, "text": rank.text,
                "stack": list(rank.stack), "marks": list(rank.marks), "output": rank.output,
            }
            for rank in arm.ranks
        ],
    }  # fmt: skip
