"""A line that a gate found, with what a tracker needs to look around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dslint.triage.blocks import Block
from dslint.triage.clock import stamp
from dslint.triage.hit import Hit
from dslint.triage.ranks import Label

QUOTE = 600


class Line(NamedTuple):
    """One line of a block; a line that is not kept costs no time stamp."""

    path: str
    block: Block
    start: int
    end: int
    number: int
    label: Label

    def hit(self, symptom: str, groups: dict[str, str] | None = None) -> Hit:
        """The line as a hit; a group ``rank`` wins over the label of the line."""
        given = groups or {}
        named = given.get("rank")
        rank = int(named) if named and len(named) < 7 else self.label.rank
        when = stamp(self.block.data, self.start, self.end)
        return Hit(symptom, self.path, self.number, rank, self.label.host, when, self.label.text.strip()[:QUOTE], given)

    def following(self, count: int) -> Iterator[tuple[int, int, str]]:
        """Start, end and text of the next lines that carry the same tag."""
        tag = self.label.tag
        for start, end in self.block.following(self.end, count):
            text = self.block.data[start:end].decode("utf-8", "replace")
            if not tag:
                yield start, end, text
            elif tag in text[:200]:
                yield start, end, text[text.index(tag) + len(tag) :]
