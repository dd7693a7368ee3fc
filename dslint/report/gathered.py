"""Notes that say the same of several places, as one note.

What is true of a project as a whole (no timeout at any process group, a deprecated launcher in each README) would
otherwise be most of a report. Errors and warnings stand for themselves, and so do notes of which each says something of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix


def gathered(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings in their order, equal notes at the first of their places."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        if finding.severity is Severity.INFO:
            groups.setdefault((finding.code, finding.message, finding.aside), []).append(finding)
    told: list[Finding] = []
    for finding in findings:
        group = groups.get((finding.code, finding.message, finding.aside), [])
        if finding.severity is not Severity.INFO or len(group) == 1:
            told.append(finding)
        elif finding is group[0]:
            told.append(_together(group))
    return told


def _together(group: Sequence[Finding]) -> Finding:
    first, *others = group
    more = "one more place" if len(others) == 1 else f"{len(others)} more places"
    places = tuple(other.location.labelled("here too") for other in others)
    return replace(
        first,
        message=f"{first.message} (the same at {more})",
        related=(*first.related, *places),
        fix=_one_fix([finding.fix for finding in group if finding.fix is not None]),
    )


def _one_fix(fixes: Sequence[Fix]) -> Fix | None:
    """Return the fix of all places; fixes of different kinds stay with their own places, for ``--fix`` sees them."""
    if not fixes or any((fix.title, fix.safety) != (fixes[0].title, fixes[0].safety) for fix in fixes):
        return None
    edits = dict.fromkeys(edit for fix in fixes for edit in fix.edits)
    return replace(fixes[0], edits=tuple(edits))
