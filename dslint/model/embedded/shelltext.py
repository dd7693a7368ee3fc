"""A text that a shell script writes, in which every stretch knows the place of a file that it comes from."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from dslint.core.source import Location, SourceFile, Span
from dslint.model.shell.pieces import Lookup, UnknownWordError
from dslint.model.shell.words import expand_quoted
from dslint.parse.data import DataDoc, Duplicate, ParseProblem, join_pointer
from dslint.parse.jsondoc import parse_json

# What bash puts another text for: ``$X``, ``${X:-1}``, ``$(cmd)``, backquotes; and a backslash that it takes away.
_EXPANSION = re.compile(
    r"\\[$`\\\n]|\$\{(?:[^{}]|\{[^{}]*\})*\}|\$\(\(.*?\)\)|\$\([^()]*\)|\$\w+|\$[@*#?$!-]|`[^`]*`", re.S
)
# Between double quotes a backslash in front of one goes away, too.
_IN_QUOTES = re.compile(r"\\\"|" + _EXPANSION.pattern, re.S)
# Stands for a value that nobody knows; no config holds it.
MARK = "\ue000"
_BARE = re.compile(r"[\w.+\-\ue000]+")
REASON = "the shell script sets it when it runs"


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a written text: where it begins there, and what of the file it comes from.

    ``place``: where another file says what stands there now.
    """

    start: int
    host: Span
    is_literal: bool
    is_known: bool = True
    place: Location | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Another text for a range of a written one, which stands at a place of another file."""

    start: int
    end: int
    text: str
    place: Location | None = None


class Written:
    """A text that a program writes, and the way back from its offsets to those of a file."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.parts: list[Part] = []
        self.text = ""

    @classmethod
    def of_file(cls, source: SourceFile) -> Written:
        """Return the text of a file as it is."""
        made = cls(source)
        made.add(source.text, Span(0, len(source.text)), True)
        return made

    @classmethod
    def of_body(
        cls, source: SourceFile, body: str, base: int, lookup: Lookup | None, *, quoted: bool = False
    ) -> Written:
        """Return what bash makes of a text that begins at ``base``; it expands nothing without a ``lookup``.

        ``quoted``: it stands between double quotes.
        """
        made = cls(source)
        at = 0
        for match in (_IN_QUOTES if quoted else _EXPANSION).finditer(body):
            if lookup is None:
                break
            made.add(body[at : match.start()], Span(base + at, base + match.start()), True)
            at = match.end()
            try:
                text, known = '"' if match[0] == '\\"' else expand_quoted(match[0], lookup), True
            except (UnknownWordError, RecursionError):
                text, known = MARK, False
            made.add(text, Span(base + match.start(), base + at), False, known)
        made.add(body[at:], Span(base + at, base + len(body)), True)
        return made

    def add(
        self, text: str, host: Span, is_literal: bool, is_known: bool = True, place: Location | None = None
    ) -> None:
        """Put a stretch behind all others."""
        if text:
            self.parts.append(Part(len(self.text), host, is_literal, is_known, place))
            self.text += text

    def pieces(self) -> Iterator[tuple[Part, str]]:
        """Yield the stretches with their texts."""
        ends = [*(part.start for part in self.parts[1:]), len(self.text)]
        for part, end in zip(self.parts, ends, strict=False):
            yield part, self.text[part.start : end]

    def changed(self, changes: Iterable[Change]) -> Written:
        """Return the text with others in the place of some ranges, which are in order and apart."""
        made = Written(self.source)
        at = 0
        for change in changes:
            self._copy(at, change.start, made)
            known = MARK not in change.text
            host = self.span(Span(change.start, change.end))
            made.add(change.text if known else MARK, host, False, known, change.place)
            at = change.end
        self._copy(at, len(self.text), made)
        return made

    def _copy(self, start: int, end: int, other: Written) -> None:
        """Put a range behind what another text has."""
        for part, text in self.pieces():
            first, last = max(part.start, start), min(part.start + len(text), end)
            if first < last:
                begin = part.host.start + first - part.start
                host = Span(begin, begin + last - first) if part.is_literal else part.host
                other.add(self.text[first:last], host, part.is_literal, part.is_known, part.place)

    def document(self) -> DataDoc:
        """Return the JSON in the text, with its places in the file."""
        doc = parse_json(SourceFile(self.source.path, self._quoted()))
        opaque: dict[str, str] = {}
        unclear: set[str] = set()
        if MARK in self.text:
            doc.data = self._without(doc, doc.data, "", opaque, unclear)
        return replace(self.placed(doc), opaque=opaque, open_objects=frozenset(unclear))

    def placed(self, doc: DataDoc) -> DataDoc:
        """Return a document of this text with its places in the file."""
        elsewhere = {p: place for p, span in doc.values.items() if (place := self._place(doc, p, span)) is not None}
        unclear = (
            p for p, span in doc.values.items() if not isinstance(doc.get(p), dict) and not self._is_literal(span)
        )
        return replace(
            doc,
            source=self.source,
            keys=self._spans(doc.keys),
            values=self._spans(doc.values),
            members=self._spans(doc.members),
            duplicates=tuple(Duplicate(d.pointer, self.span(d.first), self.span(d.second)) for d in doc.duplicates),
            comments=tuple(map(self.span, doc.comments)),
            trailing_commas=tuple(map(self.span, doc.trailing_commas)),
            problems=self._problems(doc.problems),
            relaxed=self._problems(doc.relaxed),
            is_embedded=True,
            elsewhere=elsewhere,
            computed=doc.computed.union(unclear),
        )

    def _quoted(self) -> str:
        """The text with a number for every bare word that nobody knows, of the same length, so that offsets hold."""
        if MARK not in self.text:
            return self.text
        out: list[str] = []
        at, inside = 0, False
        while at < len(self.text):
            char = self.text[at]
            bare = None if inside else _BARE.match(self.text, at)
            if bare:
                out.append("9" * len(bare[0]) if MARK in bare[0] else bare[0])
                at = bare.end()
                continue
            if char == "\\" and inside:
                out.append(self.text[at : at + 2])
                at += 2
                continue
            inside ^= char == '"'
            out.append(char)
            at += 1
        return "".join(out)

    def _without(self, doc: DataDoc, data: Any, pointer: str, opaque: dict[str, str], unclear: set[str]) -> Any:
        """The data without what nobody knows."""
        if not isinstance(data, dict):
            return data
        kept = {}
        for key, value in data.items():
            inner = join_pointer(pointer, key)
            if not self._is_known(doc.keys[inner]):
                unclear.add(pointer)
            elif isinstance(value, dict):
                kept[key] = self._without(doc, value, inner, opaque, unclear)
            elif self._is_known(doc.values[inner]):
                kept[key] = value
            else:
                opaque[inner] = REASON
        return kept

    def _is_known(self, span: Span) -> bool:
        return MARK not in self.text[span.start : span.end]

    def _spans(self, table: dict[str, Span]) -> dict[str, Span]:
        return {pointer: self.span(span) for pointer, span in table.items() if MARK not in pointer}

    def _problems(self, problems: Iterable[ParseProblem]) -> tuple[ParseProblem, ...]:
        return tuple(ParseProblem(self.span(p.span), p.message) for p in problems)

    def span(self, span: Span) -> Span:
        """A range of the written text in the script."""
        start = self._at(span.start, False)
        return Span(start, max(start, self._at(span.end, True))) if span.end > span.start else Span(start, start)

    def _at(self, offset: int, is_end: bool) -> int:
        if not self.parts:
            return 0
        index = max(bisect_right(self.parts, offset - is_end, key=_begin) - 1, 0)
        part = self.parts[index]
        if not part.is_literal:
            return part.host.end if is_end else part.host.start
        return min(part.host.start + offset - part.start, part.host.end)

    def _place(self, doc: DataDoc, pointer: str, span: Span) -> Location | None:
        """Where another file says what a value or its key is."""
        if isinstance(doc.get(pointer), dict):
            span = doc.keys.get(pointer, Span(0, 0))
        found = (
            part.place for part, text in self.pieces() if part.start < span.end and part.start + len(text) > span.start
        )
        return next((place for place in found if place is not None), None)

    def _is_literal(self, span: Span) -> bool:
        return all(
            part.is_literal
            for part, text in self.pieces()
            if part.start < span.end and part.start + len(text) > span.start
        )


def _begin(part: Part) -> int:
    return part.start
