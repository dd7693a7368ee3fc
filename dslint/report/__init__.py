"""Output formats, one module each; a format is imported only when it is asked for.

Every module has ``render(findings, sources, options) -> str``: the whole text for stdout, which ends in a
newline unless it is empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, cast

from dslint.core.words import counted
from dslint.translate import Translator, english

if TYPE_CHECKING:
    from dslint.core.finding import Finding
    from dslint.report.options import ReportOptions
    from dslint.report.sources import SourceReader

    Renderer = Callable[[Sequence[Finding], SourceReader, ReportOptions], str]

FORMATS: dict[str, str] = {
    "concise": "dslint.report.concise",
    "full": "dslint.report.full",
    "json": "dslint.report.jsonout",
    "json-lines": "dslint.report.jsonlines",
    "github": "dslint.report.github",
    "sarif": "dslint.report.sarif",
    "gitlab": "dslint.report.gitlab",
    "junit": "dslint.report.junit",
    "checkstyle": "dslint.report.checkstyle",
    "rdjson": "dslint.report.rdjson",
    "azure": "dslint.report.azure",
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


def summary_line(
    findings: Sequence[Finding],
    files: int,
    left_out: Sequence[Finding] = (),
    judged: Set[str] | None = None,
    translate: Translator = english,
) -> str:
    """The last line of a run, for stderr: what was found, where, and what ``--fix`` could mend.

    ``left_out`` are findings below the severity that is shown; ``judged`` are the paths of the checked files, beside
    which a finding may lie (a settings file), ``None`` where they hold all of them.
    """
    sentences = [f"Found {_counts(findings)} {_where(findings, files, judged)}."] if findings else []
    if not findings:
        sentences = [f"No {'errors or warnings' if left_out else 'problems'} in {counted(files, 'file')}."]
    safe, unsafe = (_fixable(findings, safety) for safety in ("safe", "unsafe"))
    if safe:
        sentences.append(f"[*] {safe} fixable with `--fix`.")
    if unsafe:
        sentences.append(f"{unsafe} {'more ' if safe else ''}fixable with `--fix --unsafe-fixes`.")
    if left_out:
        lowest = min((finding.severity for finding in left_out), key=lambda severity: severity.rank)
        them = "it" if len(left_out) == 1 else "them"
        sentences.append(f"{_counts(left_out)}{_beside(left_out)}; `--min-severity {lowest.value}` shows {them}.")
    return " ".join(map(translate, sentences))


def _beside(findings: Sequence[Finding]) -> str:
    """How many are notes only because of where they stand."""
    number = sum(bool(finding.aside) for finding in findings)
    return f" ({number} in tests, archived folders, copies or notebooks)" if number else ""


def _counts(findings: Sequence[Finding]) -> str:
    """``"1 error, 2 warnings"``."""
    numbers = Counter(finding.severity.value for finding in findings)
    return ", ".join(counted(numbers[name], name) for name in ("error", "warning", "info") if numbers[name])


def _where(findings: Sequence[Finding], files: int, judged: Set[str] | None) -> str:
    """``"in 1 of 2 files"``; what lies in none of the checked files is counted apart."""
    paths = {finding.location.path for finding in findings}
    beside = len(paths - judged) if judged is not None else 0
    inside = len(paths) - beside
    checked = f"{inside} of {counted(files, 'file')}"
    if not beside:
        return f"in {checked}"
    others = counted(beside, "other file")
    return f"in {checked} and {others}" if inside else f"in {others} ({counted(files, 'file')} checked)"


def unsafe_line(findings: Sequence[Finding]) -> str:
    """What ``--fix-only`` and ``--diff`` leave out of their output; empty if that is nothing."""
    unsafe = _fixable(findings, "unsafe")
    return f"{counted(unsafe, 'finding')} fixable with `--unsafe-fixes` only" if unsafe else ""


def _fixable(findings: Sequence[Finding], safety: str) -> int:
    return sum(finding.fix is not None and finding.fix.safety.value == safety for finding in findings)
