"""What two readers say of one place: each mistake once, with all that is known about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dslint.core.finding import Finding


def told_once(told: Sequence[Finding], more: Iterable[Finding], others: Mapping[str, tuple[str, ...]]) -> list[Finding]:
    """The findings of the visitors, and what rules about runs say of other lines.

    A line counts as told by the same rule or by a relative (``others``, by code). Where both readers speak, the
    visitor's finding gets the assumptions of the run, which knows where the values come from.
    """
    lines = {
        (finding.code, place.path, place.region.line)
        for finding in told
        for place in (finding.location, *finding.related)
    }
    assumptions: dict[tuple[str, str, int], tuple[str, ...]] = {}
    kept = []
    for finding in more:
        codes = (finding.code, *others.get(finding.code, ()))
        places = (finding.location, *finding.related)
        if not any((code, place.path, place.region.line) in lines for code in codes for place in places):
            kept.append(finding)
        elif finding.assumptions:
            assumptions.setdefault(_line(finding), finding.assumptions)
    known = [f if f.assumptions else replace(f, assumptions=assumptions.get(_line(f), ())) for f in told]
    return [*known, *kept]


def _line(finding: Finding) -> tuple[str, str, int]:
    return finding.code, finding.location.path, finding.location.region.line
