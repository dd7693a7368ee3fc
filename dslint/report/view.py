"""Which findings a report shows, and in which order.

People see errors and warnings, and how many notes there are beside them; programs get everything. A stated
``min-severity`` holds for all formats. The exit code never depends on what is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.finding import Severity
from dslint.translate import language_of

if TYPE_CHECKING:
    from dslint.core.finding import Finding

# Formats that a person reads.
PEOPLE = frozenset({"concise", "full"})


@dataclass(frozen=True, slots=True)
class View:
    """What is shown, and what is only counted."""

    shown: tuple[Finding, ...]
    left_out: tuple[Finding, ...] = ()


def language_for(stated: str | None, output_format: str, environ: Mapping[str, str]) -> str:
    """The language of a report: the one that somebody states, else for people that of their environment."""
    return stated or (language_of(environ) if output_format in PEOPLE else "en")


def view_of(
    findings: Sequence[Finding], output_format: str, least: str | None, fail_on: str, is_counted: bool = False
) -> View:
    """The view of findings that are in the order of files and lines; ``is_counted``: only counts of them are shown.

    Whatever makes the exit code 1 is shown, unless ``least`` (min-severity) says otherwise.
    """
    is_for_people = output_format in PEOPLE
    if least is not None:
        threshold = Severity(least).rank
    elif is_for_people and not is_counted:
        # `never` stands for no threshold.
        wanted = [Severity.WARNING.rank] + [s.rank for s in Severity if s.value == fail_on]
        threshold = min(wanted)
    else:
        threshold = 0
    shown = [finding for finding in findings if finding.severity.rank >= threshold]
    if is_for_people:
        shown.sort(key=lambda finding: finding.severity is Severity.INFO)
    return View(tuple(shown), tuple(finding for finding in findings if finding.severity.rank < threshold))
