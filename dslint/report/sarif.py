"""SARIF 2.1.0 as GitHub code scanning and other viewers read it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from dslint import __version__
from dslint.core.finding import Confidence, Finding, Severity
from dslint.core.fix import Fix
from dslint.core.source import Location, Region, SourceFile
from dslint.core.suppressed import Suppressed
from dslint.report.fingerprints import Fingerprints
from dslint.report.links import PROJECT, rule_url
from dslint.report.options import ReportOptions
from dslint.report.place import assumption_lines, one_line, told
from dslint.report.sources import SourceReader

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
# Of 100: what viewers sort by within a level.
_RANKS = {Confidence.CERTAIN: 100.0, Confidence.LIKELY: 50.0}
_PROBLEM = {"error": "error", "warning": "warning", "info": "recommendation"}


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:
    """One SARIF log with one run, valid for zero findings too; suppressed findings are results that say so."""
    rows: list[tuple[Finding, Suppressed | None]] = [(finding, None) for finding in findings] + [
        (s.finding, s) for s in options.suppressed
    ]
    if options.suppressed:
        # In the order of the places: a suppression more or less must not renumber the fingerprints of equal lines.
        rows.sort(key=lambda row: row[0].sort_key)
    codes = sorted({finding.code for finding, _ in rows})
    index = {code: number for number, code in enumerate(codes)}
    fingerprints = Fingerprints(sources)
    run = {
        "tool": {
            "driver": {
                "name": "dslint",
                "semanticVersion": __version__,
                "informationUri": PROJECT,
                "rules": [_rule(code) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [
            # Present on all results or on none, as the standard asks: an empty list says "not suppressed".
            {**_result(finding, index[finding.code], fingerprints, sources), "suppressions": _suppressions(suppressed)}
            for finding, suppressed in rows
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str) -> dict[str, Any]:
    from dslint.rules.registry import BY_CODE, explanation

    info = BY_CODE[code]
    prose = explanation(code)
    return {
        "id": code,
        "name": info.name,
        "shortDescription": {"text": info.summary},
        "fullDescription": {"text": _first_paragraph(prose) or info.summary},
        "help": {"text": prose or info.summary, "markdown": prose or info.summary},
        **({"helpUri": url} if (url := rule_url(code)) else {}),
        "defaultConfiguration": {"level": _LEVELS[info.severity]},
        "properties": {
            "tags": ["distributed-training", info.kind],
            "precision": "medium" if Severity(info.severity) is Severity.INFO else "high",
            "problem.severity": _PROBLEM[info.severity],
        },
    }


def _first_paragraph(prose: str) -> str:
    paragraph = " ".join(prose.partition("\n\n")[0].split())
    return paragraph.replace("**", "").replace("What. ", "", 1)


def _result(finding: Finding, rule: int, fingerprints: Fingerprints, sources: SourceReader) -> dict[str, Any]:
    text = told(finding)
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity.value],
        "message": {"text": ". ".join((text, *_further(finding)))},
        "locations": [{"physicalLocation": _physical(finding.location)}],
        "partialFingerprints": {"primaryLocationLineHash": fingerprints.of(finding)},
        "rank": _RANKS[finding.confidence],
        "properties": {"confidence": finding.confidence.value},
    }
    if finding.assumptions:
        result["properties"]["assumptions"] = [one_line(words) for words in finding.assumptions]
    if finding.pointer is not None:
        result["properties"]["pointer"] = finding.pointer
    if finding.related:
        result["relatedLocations"] = [
            {
                "id": number,
                "physicalLocation": _physical(other),
                **({"message": {"text": one_line(other.label)}} if other.label else {}),
            }
            for number, other in enumerate(finding.related, 1)
        ]
    if finding.fix:
        result["fixes"] = [_fix(finding.fix, sources)]
    return result


def _further(finding: Finding) -> Iterator[str]:
    for line in assumption_lines(finding):
        yield f"{finding.confidence.value.capitalize()}: {line}"
    if finding.hint:
        yield one_line(finding.hint)


def _suppressions(suppressed: Suppressed | None) -> list[dict[str, Any]]:
    if suppressed is None:
        return []
    entry: dict[str, Any] = {"kind": suppressed.kind}
    if suppressed.reason:
        entry["justification"] = one_line(suppressed.reason)
    if suppressed.location is not None:
        entry["location"] = {"physicalLocation": _physical(suppressed.location)}
    return [entry]


def _physical(location: Location) -> dict[str, Any]:
    return {"artifactLocation": _artifact(location.path), "region": _region(location.region)}


def _artifact(path: str) -> dict[str, str]:
    """A URI relative to the source root; a file outside of it can only be named absolutely."""
    if os.path.isabs(path) or path.split("/", 1)[0] == "..":
        return {"uri": f"file://{quote(os.path.abspath(path), errors='surrogateescape')}"}
    # A colon in the first segment would read as a scheme.
    return {"uri": quote(path, errors="surrogateescape"), "uriBaseId": "%SRCROOT%"}


def _region(region: Region) -> dict[str, int]:
    if region.cell is not None:  # its lines are no lines of the file
        return {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1}
    return {
        "startLine": region.line,
        "startColumn": region.column,
        "endLine": region.end_line,
        "endColumn": region.end_column,
    }


def _fix(fix: Fix, sources: SourceReader) -> dict[str, Any]:
    changes = []
    for path in dict.fromkeys(edit.path for edit in fix.edits):
        source = SourceFile(path, sources.text(path))
        replacements = [
            {"deletedRegion": _region(source.region(edit.span)), "insertedContent": {"text": edit.text}}
            for edit in fix.edits
            if edit.path == path
        ]
        changes.append({"artifactLocation": _artifact(path), "replacements": replacements})
    return {"description": {"text": fix.title}, "artifactChanges": changes}
