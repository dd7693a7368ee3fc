"""What a check found, as other programs get it: ``dslint.Report``."""

from __future__ import annotations

from dataclasses import dataclass

from dslint.core.finding import Finding, Severity


@dataclass(frozen=True, slots=True)
class Report:
    """What dslint says about files, or about a command that is about to start.

    ``findings`` in the order of files and lines; ``files`` is the number of files that were judged. ``problems`` are
    lines that say what could not be checked: a path that does not exist, a script for which there was no time, whose
    path is in ``unjudged``.
    ``fail_on`` is the threshold that flags and settings name (``error`` | ``warning`` | ``info``; ``never`` where the
    settings say ``exit-zero``). ``text`` is the report as a person reads it: what will run, if a command was judged,
    then the findings.
    """

    findings: tuple[Finding, ...] = ()
    problems: tuple[str, ...] = ()
    files: int = 0
    fail_on: str = "warning"
    text: str = ""
    unjudged: tuple[str, ...] = ()

    @property
    def failing(self) -> tuple[Finding, ...]:
        """The findings at or above the threshold."""
        if self.fail_on == "never":
            return ()
        least = Severity(self.fail_on).rank
        return tuple(finding for finding in self.findings if finding.severity.rank >= least)

    @property
    def ok(self) -> bool:
        """Nothing was found at or above the threshold."""
        return not self.failing
