"""Output formats, one module each; a format is imported only when it is asked for.

Every module has ``render(findings, sources, options) -> str``: the whole text for stdout, which ends in a
newline unless it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from dslint.core.words import counted

if TYPE_CHECKING:
    from dslint.core.finding import Finding
    from dslint.report.options import ReportOptions
    from dslint.report.sources import SourceReader

    Renderer = Callable[[Sequence[Finding], SourceReader, ReportOptions], str]

FORMATS: dict[str, str] = {
    "concise": "dslint.report.concise",
    "full": "dslint.report.full",
    "json": "dslint.report.jsonout",
    "github": "dslint.report.github",
    "sarif": "dslint.report.sarif",
}
STATISTICS = "dslint.report.statistics"
# A format for one finding a line, or for a foreign program, has no place for counts.
STATISTICS_FORMATS = ("concise", "full", "json")


def renderer(name: str) -> Renderer:
    """The ``render`` function of a format.

    Raises:
        KeyError: no format has this name.
    """
    return _render_of(FORMATS[name])


def statistics_renderer(name: str = "concise") -> Renderer:
    """What ``--statistics`` prints in place of the report in one of ``STATISTICS_FORMATS``."""
    return _render_of(STATISTICS, "render_json" if name == "json" else "render")


def _render_of(module: str, function: str = "render") -> Renderer:
    from importlib import import_module

    return cast("Renderer", getattr(import_module(module), function))


def summary_line(findings: Sequence[Finding], files: int) -> str:
    """The last line of a run, for stderr: what was found, where, and what ``--fix`` could mend."""
    checked = counted(files, "file")
    if not findings:
        return f"No problems in {checked}."
    parts = [
        counted(number, severity)
        for severity in ("error", "warning", "info")
        if (number := sum(finding.severity.value == severity for finding in findings))
    ]
    paths = len({finding.location.path for finding in findings})
    line = f"Found {', '.join(parts)} in {paths} of {checked}."
    safe, unsafe = (_fixable(findings, safety) for safety in ("safe", "unsafe"))
    if safe:
        line += f" {safe} fixable with `--fix`."
    if unsafe:
        line += f" {unsafe} {'more ' if safe else ''}fixable with `--fix --unsafe-fixes`."
    return line


def unsafe_line(findings: Sequence[Finding]) -> str:
    """What ``--fix-only`` and ``--diff`` leave alone without a word in their output; empty if that is nothing."""
    unsafe = _fixable(findings, "unsafe")
    return f"{counted(unsafe, 'finding')} fixable with `--unsafe-fixes` only" if unsafe else ""


def _fixable(findings: Sequence[Finding], safety: str) -> int:
    return sum(finding.fix is not None and finding.fix.safety.value == safety for finding in findings)
