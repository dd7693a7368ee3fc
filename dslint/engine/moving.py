"""Findings of a text that has changed since: they move with it, and are dropped where it was changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dslint.core.source import Location, SourceFile, Span

if TYPE_CHECKING:
    from dslint.core.finding import Finding
    from dslint.core.fix import Edit, Fix


@dataclass(frozen=True, slots=True)
class Change:
    """Lines of a text were replaced: offsets below ``start`` stay, those from ``end`` move by ``offset``.

    ``source`` is the text as it is now.
    """

    source: SourceFile
    start: int
    end: int
    offset: int

    def moved(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings at their places in the text as it is now, without those in the changed lines."""
        return [moved for finding in findings for moved in self._finding(finding)]

    def _finding(self, finding: Finding) -> Iterator[Finding]:
        fix = finding.fix
        touched = {finding.location.path, *(place.path for place in finding.related)}
        touched.update(edit.path for edit in (fix.edits if fix is not None else ()))
        if self.source.path not in touched:
            yield finding
            return
        location = self._location(finding.location)
        if location is None:
            return
        related = tuple(place for other in finding.related if (place := self._location(other)) is not None)
        yield replace(finding, location=location, related=related, fix=self._fix(fix) if fix is not None else None)

    def _span(self, span: Span) -> Span | None:
        if span.end <= self.start and span.start < self.start:
            return span
        return span.shifted(self.offset) if span.start >= self.end else None

    def _location(self, place: Location) -> Location | None:
        if place.path != self.source.path or place.region.cell is not None:
            return place
        span = self._span(place.span)
        return None if span is None else Location(place.path, span, self.source, place.label)

    def _fix(self, fix: Fix) -> Fix | None:
        edits: list[Edit] = []
        for edit in fix.edits:
            span = self._span(edit.span) if edit.path == self.source.path else edit.span
            if span is None:
                return None
            edits.append(replace(edit, span=span))
        return replace(fix, edits=tuple(edits))


def change_of(path: str, old: str, new: str) -> Change:
    """What has changed in the text of a file, as whole lines: from the first that differs to the last."""
    before, after = SourceFile(path, old), SourceFile(path, new)
    first, lines, others = 0, old.split("\n"), new.split("\n")
    most = min(len(lines), len(others))
    while first < most and lines[first] == others[first]:
        first += 1
    last = 0
    while last < most - first and lines[-1 - last] == others[-1 - last]:
        last += 1
    starts = before.line_starts
    start = starts[first] if first < len(starts) else len(old) + 1
    end = starts[len(lines) - last] if last else len(old) + 1
    return Change(after, start, end, len(new) - len(old))
