"""One finding a line, as flake8 prints it: ``path:line:col: CODE[*] message (name)``."""

from __future__ import annotations

from collections.abc import Sequence

from dslint.core.finding import Finding
from dslint.report.options import ReportOptions
from dslint.report.place import confidence_mark, fix_mark, message_of, place
from dslint.report.sources import SourceReader

_COLORS = {"error": "\x1b[31m", "warning": "\x1b[33m", "info": "\x1b[34m"}
_BOLD, _CYAN, _DIM, _OFF = "\x1b[1m", "\x1b[36m", "\x1b[2m", "\x1b[0m"


def render(findings: Sequence[Finding], sources: SourceReader, options: ReportOptions) -> str:  # noqa: ARG001
    """The findings, one a line."""
    line = _colored if options.color else _plain
    return "".join(f"{line(finding)}\n" for finding in findings)


def _plain(finding: Finding) -> str:
    mark = f" {mark}" if (mark := fix_mark(finding)) else ""
    name = f"{finding.name}{confidence_mark(finding)}"
    return f"{place(finding.location)}: {finding.code}{mark} {message_of(finding)} ({name})"


def _colored(finding: Finding) -> str:
    path, colon, position = place(finding.location).partition(":")
    mark = f" {_CYAN}{mark}{_OFF}" if (mark := fix_mark(finding)) else ""
    code = f"{_COLORS[finding.severity.value]}{_BOLD}{finding.code}{_OFF}"
    where = f"{_BOLD}{path}{_OFF}{_DIM}{colon}{position}:{_OFF}"
    return f"{where} {code}{mark} {message_of(finding)} {_DIM}({finding.name}{confidence_mark(finding)}){_OFF}"
