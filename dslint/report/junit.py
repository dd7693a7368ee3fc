"""JUnit XML, which Jenkins, GitLab, Azure and CircleCI show as test results: a suite a file, a case a finding.

Errors and warnings are failures; a note is a case that passes and says something.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from xml.sax.saxutils import escape, quoteattr

from dslint.core.finding import Finding, Severity
from dslint.report.options import ReportOptions
from dslint.report.place import NO_XML, further, message_of, one_line, place, told
from dslint.report.sources import SourceReader


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """One document; without findings a suite whose only case passes: some readers take an empty one for broken."""
    suites = [(path, list(own)) for path, own in groupby(findings, key=lambda finding: finding.location.path)]
    failed = sum(map(_is_failure, findings))
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(f'<testsuites name="dslint" tests="{max(1, len(findings))}" failures="{failed}" errors="0">')
    for path, own in suites:
        lines += _suite(path, own)
    if not suites:
        lines += ['  <testsuite name="dslint" tests="1" failures="0" errors="0" skipped="0">']
        lines += ['    <testcase name="no findings" classname="dslint"/>', "  </testsuite>"]
    return NO_XML.sub("\ufffd", "\n".join([*lines, "</testsuites>"])) + "\n"


def _suite(path: str, findings: Sequence[Finding]) -> Iterable[str]:
    name = quoteattr(one_line(path))
    failed = sum(map(_is_failure, findings))
    yield f'  <testsuite name={name} tests="{len(findings)}" failures="{failed}" errors="0" skipped="0">'
    for finding in findings:
        at = place(finding.location).removeprefix(one_line(path)).lstrip(":")
        case = quoteattr(f"{finding.code} {finding.name} ({at})")
        text = escape("\n".join((f"{place(finding.location)}: {told(finding)}", *further(finding))))
        yield f"    <testcase name={case} classname={name}>"
        if _is_failure(finding):
            kind, message = quoteattr(finding.severity.value), quoteattr(message_of(finding))
            yield f"      <failure type={kind} message={message}>{text}</failure>"
        else:
            yield f"      <system-out>{text}</system-out>"
        yield "    </testcase>"
    yield "  </testsuite>"


def _is_failure(finding: Finding) -> bool:
    return finding.severity is not Severity.INFO
