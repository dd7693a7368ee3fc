"""One finding a line, as flake8 prints it: ``path:line:col: CODE [*] severity: message (name)``."""

from __future__ import annotations

from collections.abc import Sequence

from dslint.core.finding import Finding
from dslint.report.links import rule_url
from dslint.report.options import ReportOptions
from dslint.report.place import confidence_mark, fix_mark, message_of, place, suggestion_of
from dslint.report.sources import SourceReader

_COLORS = {"error": "\x1b[31m", "warning": "\x1b[33m", "info": "\x1b[34m"}
_BOLD, _CYAN, _DIM, _OFF = "\x1b[1m", "\x1b[36m", "\x1b[2m", "\x1b[0m"


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """The findings, one a line."""
    if not options.color:
        return "".join(f"{_plain(finding)}\n" for finding in findings)
    return "".join(f"{_colored(finding, options.hyperlinks)}\n" for finding in findings)


def _plain(finding: Finding) -> str:
    mark = f" {mark}" if (mark := fix_mark(finding)) else ""
    name = f"{finding.name}{confidence_mark(finding)}"
    return f"{place(finding.location)}: {finding.code}{mark} {finding.severity.value}: {_message(finding)} ({name})"


def _message(finding: Finding) -> str:
    return message_of(finding) + suggestion_of(finding)


def _colored(finding: Finding, has_links: bool) -> str:
    path, colon, position = place(finding.location).partition(":")
    mark = f" {_CYAN}{mark}{_OFF}" if (mark := fix_mark(finding)) else ""
    color = _COLORS[finding.severity.value]
    page = rule_url(finding.code) if has_links else ""
    linked = f"\x1b]8;;{page}\x1b\\{finding.code}\x1b]8;;\x1b\\" if page else finding.code
    code, severity = f"{color}{_BOLD}{linked}{_OFF}", f"{color}{finding.severity.value}:{_OFF}"
    where = f"{_BOLD}{path}{_OFF}{_DIM}{colon}{position}:{_OFF}"
    return f"{where} {code}{mark} {severity} {_message(finding)} {_DIM}({finding.name}{confidence_mark(finding)}){_OFF}"
