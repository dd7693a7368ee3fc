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
    line = _colored if options.color else _plain
    return "".join(f"{line(finding, options)}\n" for finding in findings)


def _plain(finding: Finding, options: ReportOptions) -> str:
    mark = f" {mark}" if (mark := fix_mark(finding)) else ""
    name = f"{finding.name}{confidence_mark(finding)}"
    message = _message(finding, options)
    return f"{place(finding.location)}: {finding.code}{mark} {finding.severity.value}: {message} ({name})"


def _message(finding: Finding, options: ReportOptions) -> str:
    return message_of(finding) + suggestion_of(finding, options.translate)


def _colored(finding: Finding, options: ReportOptions) -> str:
    path, colon, position = place(finding.location).partition(":")
    mark = f" {_CYAN}{mark}{_OFF}" if (mark := fix_mark(finding)) else ""
    color = _COLORS[finding.severity.value]
    page = rule_url(finding.code) if options.hyperlinks else ""
    linked = f"\x1b]8;;{page}\x1b\\{finding.code}\x1b]8;;\x1b\\" if page else finding.code
    code, severity = f"{color}{_BOLD}{linked}{_OFF}", f"{color}{finding.severity.value}:{_OFF}"
    where = f"{_BOLD}{path}{_OFF}{_DIM}{colon}{position}:{_OFF}"
    name = f"{_DIM}({finding.name}{confidence_mark(finding)}){_OFF}"
    return f"{where} {code}{mark} {severity} {_message(finding, options)} {name}"
