"""What two readers say of one place: each mistake once, with all that is known about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dslint.core.finding import Finding

# How the label of a launch command begins in which a finding holds, while it does not in others.
IN_LAUNCH = "in this launch"


def told_once(told: Sequence[Finding], more: Iterable[Finding], others: Mapping[str, tuple[str, ...]]) -> list[Finding]:
    """The findings of the visitors, and what rules about runs say of other lines.

    A line counts as told by the same rule or by a relative (``others``, by code). Where both readers speak, the
    visitor's finding gets the assumptions and launch commands of the run, which knows where the values come from.
    """
    lines = {
        (finding.code, place.path, place.region.line)
        for finding in told
        for place in (finding.location, *finding.related)
    }
    known: dict[tuple[str, str, int], Finding] = {}
    kept = []
    for finding in more:
        codes = (finding.code, *others.get(finding.code, ()))
        places = (finding.location, *finding.related)
        if any((code, place.path, place.region.line) in lines for code in codes for place in places):
            for code in codes:
                known.setdefault((code, finding.location.path, finding.location.region.line), finding)
        else:
            kept.append(finding)
    joined = (_joined(finding, known.get(_line(finding))) for finding in told)
    return [*dict.fromkeys(joined), *kept]


def _joined(told: Finding, known: Finding | None) -> Finding:
    if known is None:
        return told
    launches = tuple(place for place in known.related if place.label.startswith(IN_LAUNCH))
    if launches and known.severity.rank > told.severity.rank:
        return known  # the visitor knows nothing of the launches, so that it cannot be sure
    if known.code != told.code:
        return replace(told, related=(*told.related, *launches))
    return replace(told, assumptions=told.assumptions or known.assumptions, related=(*told.related, *launches))


def _line(finding: Finding) -> tuple[str, str, int]:
    return finding.code, finding.location.path, finding.location.region.line


def own_first(judged: Iterable[tuple[str, Finding]]) -> list[Finding]:
    """The findings of all scripts, each with the path of the script that was judged, without those told before.

    What is said of a place in an imported module counts once: as the one says it that says it gravest, and as the
    module itself tells it where others say no more.
    """
    pairs = list(judged)
    own = [finding for path, finding in pairs if finding.location.path == path]
    others = [(path, finding) for path, finding in pairs if finding.location.path != path]
    told: dict[tuple[str, str, int], tuple[str, int]] = {}
    for finding in own:
        known = told.get(_line(finding))
        rank = max(finding.severity.rank, known[1]) if known is not None else finding.severity.rank
        told[_line(finding)] = finding.location.path, rank
    kept = []
    for path, finding in sorted(others, key=lambda pair: (-pair[1].severity.rank, pair[0])):
        teller, rank = told.get(_line(finding), ("", -1))
        if rank < finding.severity.rank or teller == path:
            told[_line(finding)] = path, finding.severity.rank
            kept.append(finding)
    return [*(finding for finding in own if told[_line(finding)][0] == finding.location.path), *kept]
