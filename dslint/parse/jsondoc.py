"""JSON, JSON with comments and Hjson: text -> :class:`~dslint.parse.data.DataDoc`, whatever the text.

A hand-written reader instead of a grammar library: it must accept what DeepSpeed's ``hjson`` accepts, say in words
what is missing where, and keep the keys around a mistake. tree-sitter-json 0.24.8 gives, for example:

* ``{"a": 1e+16}``, plain JSON: the number ends at 1, the rest is an error
* ``{a: 1}`` and ``{'a': 1}``, legal Hjson: no object at all, an error at the top and a loose number
* ``{"a": tru, "b": 2}``: the value of ``a`` is the string ``"b"``, and the key ``b`` is gone
* ``{"a": "x}`` without its quote: the whole document is one error without a pair in it
* ``{"a" 1, "b": 2}``: key and number in one error, which does not say that the colon is missing
* trailing commas, ``#`` comments, bare texts, line ends for commas, ``'''`` texts: an error each, in a tree whose
  shape depends on what follows

Everything after the first of these would have to be scanned again by code of our own, beside the code that reads the
tree; so the scanner stands alone.
Nothing recurses, so no input overflows the stack.
"""

from __future__ import annotations

import re
from typing import Any

from dslint.core.source import SourceFile, Span
from dslint.parse.data import DataDoc, Duplicate, join_pointer
from dslint.parse.hjson_scan import MAX_PROBLEMS, PLACEHOLDER, TEMPLATE, Scanner
from dslint.parse.limits import MAX_DEPTH

_BARE_KEY = re.compile(r"[^ \t\r\n{}\[\],:\"'][^ \t\r\n{}\[\],:]*(?=[ \t\r\n]*:)")
_KEY_LIKE = re.compile(r"[^\r\n{}\[\],:]+(?=:)")
_JUNK = re.compile(r"[^\r\n,}\]]*")
_BRACELESS = re.compile(
    # Behind the quotes of a key comments may stand; behind a bare key they would be a part of it.
    r"(?:(?:\"[^\"\n]*\"|'[^'\n]*')(?:[ \t\r\n]|(?:#|//)[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*"
    r"|[^ \t\r\n{}\[\],:\"'][^ \t\r\n{}\[\],:]*[ \t\r\n]*):"
)
_BRACKET = re.compile(r'"(?:[^"\\\n]|\\.)*"|([{\[])|([}\]])')
_CLOSER = {"{": "}", "[": "]"}


def parse_json(source: SourceFile) -> DataDoc:
    """Read a JSON, JSONC or Hjson text; never raises.

    A key that stands twice has its later value, as with ``json.load``. A member whose value cannot be read is left out.
    """
    return _Reader(source).read()


class _Frame:
    """An object or array that is being read."""

    __slots__ = ("at", "bracket", "comma", "items", "key", "pending", "pointer")

    def __init__(self, bracket: str, pointer: str, at: int, key: Span | None) -> None:
        self.bracket = bracket
        self.pointer = pointer
        self.at = at
        self.key = key
        self.items: Any = {} if bracket == "{" else []
        # Offset of the last comma, and whether something was read after it (or after the opening bracket).
        self.comma: int | None = None
        self.pending = False


class _Reader:
    def __init__(self, source: SourceFile) -> None:
        self.text = source.text
        self.scan = Scanner(source.text)
        self.doc = DataDoc(source, None, values={"": Span(0, 0)})
        self.duplicates: list[Duplicate] = []
        self.trailing: list[Span] = []
        self.stack: list[_Frame] = []
        # Hjson allows members without braces around them: their frame.
        self.braceless: _Frame | None = None
        self.at = 0
        # End of the last token.
        self.last = 0

    def read(self) -> DataDoc:
        doc, scan = self.doc, self.scan
        nul = self.text.find("\0")
        if nul >= 0:
            scan.problem(nul, nul + 1, "the file holds a NUL byte: it is no text")
        self.at = scan.skip(0)
        if self.at < len(self.text):
            self._document()
        else:
            scan.problem(0, 0, "the file is empty: a JSON value is needed")
        doc.duplicates = tuple(self.duplicates)
        doc.comments = tuple(scan.comments)
        doc.trailing_commas = tuple(self.trailing)
        doc.problems = tuple(sorted(scan.problems, key=lambda p: p.span))
        doc.relaxed = tuple(scan.relaxed)
        return doc

    def _document(self) -> None:
        text, scan = self.text, self.scan
        if text[self.at] not in "{[" and _BRACELESS.match(text, self.at):
            scan.relax(self.at, self.at, "plain JSON needs `{` and `}` around its members")
            self.braceless = _Frame("{", "", self.at, None)
            self.doc.data = self.braceless.items
            self.stack.append(self.braceless)
        else:
            self._value("", "", None)
        while self.stack and len(scan.problems) < MAX_PROBLEMS:
            self.at = scan.skip(self.at)
            if self.at >= len(text):
                break
            self._step(self.stack[-1])
        for frame in self.stack:
            if frame is not self.braceless:
                self._report_unclosed(frame)
            self._set_span(frame)
        self.at = scan.skip(self.at)
        if self.at < len(text) and not self.stack:
            closer = text[self.at] in "}]"
            message = f"this `{text[self.at]}` closes nothing" if closer else "text after the end of the document"
            scan.problem(self.at, self.at + 1 if closer else scan.line_end(self.at), message)

    def _step(self, frame: _Frame) -> None:
        """Read one member, item, comma or closing bracket of the innermost container."""
        char = self.text[self.at]
        if char in "}]":
            self._close(frame, char)
        elif char in ",;":
            if char == ";":
                self.scan.problem(self.at, self.at + 1, "expected `,`, found `;`")
            if not frame.pending:
                what = "a key" if frame.bracket == "{" else "a value"
                self.scan.problem(self.at, self.at + 1, f"expected {what} before this `,`")
            frame.comma, frame.pending = self.at, False
            self.at += 1
        elif frame.bracket == "{":
            self._separated(frame)
            self._member(frame)
        elif char == ":":
            self.scan.problem(self.at, self.at + 1, "found `:` in a list: a key needs `{` before it")
            frame.pending = False
            self.at += 1
        else:
            self._separated(frame)
            self._value(join_pointer(frame.pointer, len(frame.items)), "", None)

    def _separated(self, frame: _Frame) -> None:
        """Say that a comma is missing before this place; Hjson lets a line end or a closing quote stand for it."""
        before = self.last
        if frame.pending:
            message = "missing `,` between " + ("members" if frame.bracket == "{" else "items")
            if "\n" in self.text[before : self.at] or self.text[before - 1 : before] in ('"', "'", "}", "]"):
                self.scan.relax(before, before, message)
            else:
                self.scan.problem(before, self.at, message)
        frame.pending = True

    def _close(self, frame: _Frame, char: str) -> None:
        if char == _CLOSER[frame.bracket] and frame is not self.braceless:
            if frame.comma is not None and not frame.pending and frame.items:
                self.trailing.append(Span(frame.comma, frame.comma + 1))
            self.at += 1
            self.last = self.at
        elif any(f is not self.braceless and _CLOSER[f.bracket] == char for f in self.stack):
            # The bracket belongs to an outer container: the inner one was never closed.
            self._report_unclosed(frame)
        else:
            opener = "{" if char == "}" else "["
            self.scan.problem(self.at, self.at + 1, f"this `{char}` closes nothing: no `{opener}` is open")
            self.at += 1
            return
        self._set_span(frame)
        self.stack.pop()

    def _report_unclosed(self, frame: _Frame) -> None:
        closer = _CLOSER[frame.bracket]
        self.scan.problem(frame.at, frame.at + 1, f"unclosed `{frame.bracket}`: no `{closer}` ends it")

    def _set_span(self, frame: _Frame) -> None:
        self.doc.values[frame.pointer] = Span(frame.at, max(self.last, frame.at + 1))
        if frame.key:
            self.doc.members[frame.pointer] = Span(frame.key.start, max(self.last, frame.at + 1))

    def _member(self, frame: _Frame) -> None:
        text = self.text
        found = self._key()
        self.last = self.at
        if found is None:
            return
        key, span = found
        self.at = self.scan.skip(self.at)
        if text[self.at : self.at + 1] == ":":
            self.at += 1
        elif text[self.at : self.at + 1] == "=":
            self.scan.problem(self.at, self.at + 1, "expected `:` between key and value, found `=`")
            self.at += 1
        else:
            self.scan.problem(span.start, span.end, f"expected `:` and a value after the key `{_short(key)}`")
            if text[self.at : self.at + 1] in ("", ",", "}", "]") or "\n" in text[span.end : self.at]:
                return
        colon = self.at - 1
        self.at = self.scan.skip(self.at)
        if text[self.at : self.at + 1] == ":":
            self.scan.problem(self.at, self.at + 1, "expected a value after `:`, found another `:`")
            self.at = self.scan.skip(self.at + 1)
        if text[self.at : self.at + 1] in ("", ",", "}", "]"):
            self.scan.problem(colon, colon + 1, "expected a value after `:`")
            self.last = colon + 1
            return
        pointer = join_pointer(frame.pointer, key)
        if key in frame.items:
            self._forget(pointer, span)
        self.doc.keys[pointer] = span
        self._value(pointer, key, span)

    def _key(self) -> tuple[str, Span] | None:
        """The key at this place with its quotes; None after something that is no key, which is skipped."""
        text, at, scan = self.text, self.at, self.scan
        if text[at] in "\"'" and not text.startswith("'''", at):
            key, self.at = scan.string(at)
            return key, Span(at, self.at)
        match = _BARE_KEY.match(text, at) or _KEY_LIKE.match(text, at)
        if match:
            key = match[0].rstrip()
            self.at = at + len(key)
            if match.re is _BARE_KEY:
                scan.relax(at, self.at, "plain JSON needs quotes around a key")
            else:
                scan.problem(at, self.at, f"the key `{_short(key)}` needs quotes")
            return key, Span(at, self.at)
        placeholder = PLACEHOLDER.match(text, at)
        if placeholder:
            scan.problem(at, placeholder.end(), TEMPLATE)
            self.at = placeholder.end()
            return None
        if text[at] in "{[":
            scan.problem(at, at + 1, f"expected a key before `{text[at]}`")
            self.at = self._after_brackets(at)
            return None
        junk = _JUNK.match(text, at)
        self.at = max(at + 1, junk.end() if junk else 0)
        scan.problem(at, self.at, "expected a key in double quotes")
        return None

    def _after_brackets(self, at: int) -> int:
        """The offset after the bracket that closes the one at ``at``; the end of the text when none does."""
        depth = 0
        for match in _BRACKET.finditer(self.text, at):
            depth += 1 if match[1] else -1 if match[2] else 0
            if depth == 0:
                return match.end()
        return len(self.text)

    def _forget(self, pointer: str, second: Span) -> None:
        """A later member replaces what an earlier one of the same name said."""
        doc = self.doc
        self.duplicates.append(Duplicate(pointer, doc.keys[pointer], second))
        doc.forget(pointer)

    def _value(self, pointer: str, name: str, key: Span | None) -> None:
        """Read a scalar, or open a container; put it into the innermost container."""
        text, start, stack = self.text, self.at, self.stack
        char = text[start]
        if char in "{[" and not PLACEHOLDER.match(text, start):
            frame = _Frame(char, pointer, start, key)
            self._place(name, frame.items)
            stack.append(frame)
            self.at = self.last = start + 1
            if len(stack) > MAX_DEPTH:
                self._cut(start)
            return
        value, self.at = self.scan.string(start) if char in "\"'" else self.scan.word(start)
        self.last = self.at
        self.doc.values[pointer] = Span(start, self.at)
        if key:
            self.doc.members[pointer] = Span(key.start, self.at)
        self._place(name, value)

    def _place(self, name: str, value: object) -> None:
        if not self.stack:
            self.doc.data = value
        elif isinstance(self.stack[-1].items, dict):
            self.stack[-1].items[name] = value
        else:
            self.stack[-1].items.append(value)

    def _cut(self, at: int) -> None:
        """Stop reading a text that nests too deep: only data files and attacks do."""
        self.scan.problem(at, at + 1, f"nested deeper than {MAX_DEPTH} levels: the rest is not read")
        self.at = self.last = len(self.text)
        for frame in self.stack:
            self._set_span(frame)
        self.stack.clear()


def _short(key: str) -> str:
    """A key as a message can show it: one line, not endless."""
    return key.replace("\n", " ").replace("`", "'")[:40]
