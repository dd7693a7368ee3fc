"""A dict of a Python file -> the positioned document that the rules about configs read."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from typing import Any

from dslint.core.source import SourceFile, Span
from dslint.parse.data import DataDoc, Duplicate, join_pointer
from dslint.python.snapshots import Dictionary, Held, Hidden, Item, Items, Known
from dslint.python.source import Module


class DocumentMaker:
    """Makes the documents of one module; `source` is what the user sees of it."""

    def __init__(self, module: Module, source: SourceFile) -> None:
        self.module = module
        self.source = source

    def document(self, found: Dictionary, consumer: str) -> DataDoc | None:
        """Return the document of a dict; `None` where nothing is known about it."""
        if found.is_lost:
            return None
        maker = _Maker(self.module)
        doc = DataDoc(self.source, {}, dialect="python", consumer=consumer, is_embedded=True)
        doc.data = maker.fill(doc, "", found, found.node)
        doc.opaque, doc.open_objects = maker.opaque, frozenset(maker.open)
        doc.computed = frozenset(maker.computed)
        doc.duplicates = tuple(maker.doubled)
        displays = sorted({self.module.span(node) for node in maker.displays})
        doc.comments = tuple(c for span in displays if not _inside(span, displays) for c in self._comments(span))
        return doc

    def _comments(self, span: Span) -> Iterator[Span]:
        """Yield the comments inside a display."""
        text = self.source.text[span.start : span.end]
        if "#" not in text:
            return
        starts = [0]
        for line in io.StringIO(text):
            starts.append(starts[-1] + len(line))
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    start = span.start + starts[token.start[0] - 1] + token.start[1]
                    yield Span(start, start + len(token.string))
        except (tokenize.TokenError, SyntaxError):
            return


class _Maker:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.opaque: dict[str, str] = {}
        self.open: set[str] = set()
        self.computed: set[str] = set()
        self.doubled: list[Duplicate] = []
        self.displays: list[ast.Dict] = []

    def fill(self, doc: DataDoc, pointer: str, found: Dictionary, at: ast.AST) -> dict[str, Any]:
        """Put a dict and all below it into the document; return its plain data."""
        data: dict[str, Any] = {}
        doc.values[pointer] = self.module.span(at)
        if isinstance(found.node, ast.Dict):
            self.displays.append(found.node)
            self.doubled += self._doubles(found.node, pointer)
        if found.is_open:
            self.open.add(pointer)
        for key, item in found.items.items():
            inner = join_pointer(pointer, key)
            self._place(doc, inner, key, item)
            plain = self._plain(doc, inner, item.value, item.places[0].value)
            if plain is _UNKNOWN:
                self.opaque[inner] = item.value.reason if isinstance(item.value, Hidden) else Hidden().reason
            else:
                data[key] = plain
                if len(item.places) > 1:
                    self.computed.add(inner)
        return data

    def _place(self, doc: DataDoc, pointer: str, key: str, item: Item) -> None:
        place = item.places[0]
        span = self.module.span(place.key)
        if isinstance(place.key, ast.keyword):
            span = Span(span.start, span.start + len(key))
        doc.keys[pointer] = span
        doc.values[pointer] = value = self.module.span(place.value)
        if place.in_display and len(item.places) == 1:
            doc.members[pointer] = Span(span.start, value.end)

    def _plain(self, doc: DataDoc, pointer: str, held: Held, at: ast.AST) -> Any:
        if isinstance(held, Known):
            if not _is_literal(at, held.value):
                self.computed.add(pointer)
            return held.value
        if isinstance(held, Dictionary):
            return self.fill(doc, pointer, held, at)
        if isinstance(held, Items):
            return self._items(doc, pointer, held, at)
        return _UNKNOWN

    def _items(self, doc: DataDoc, pointer: str, held: Items, at: ast.AST) -> Any:
        is_written = isinstance(at, ast.List | ast.Tuple) and len(at.elts) == len(held.items)
        nodes: list[ast.AST] = list(at.elts) if is_written else [at] * len(held.items)  # type: ignore[attr-defined]
        if not isinstance(at, ast.List):
            self.computed.add(pointer)
        found = []
        for number, (item, node) in enumerate(zip(held.items, nodes, strict=True)):
            inner = join_pointer(pointer, number)
            doc.values[inner] = self.module.span(node)
            found.append(self._plain(doc, inner, item, node))
        return _UNKNOWN if _UNKNOWN in found else found

    def _doubles(self, node: ast.Dict, pointer: str) -> Iterator[Duplicate]:
        """Yield the keys that stand twice in a display; `{**base, "key": 1}` replaces one on purpose."""
        written: dict[str, ast.Constant] = {}
        for key in node.keys:
            if key is None:
                written.clear()
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                first = written.get(key.value)
                if first is not None:
                    inner = join_pointer(pointer, key.value)
                    yield Duplicate(inner, self.module.span(first), self.module.span(key))
                written[key.value] = key


_UNKNOWN = object()


def _is_literal(node: ast.AST, value: object) -> bool:
    """Return whether the text is the value itself, so that another one can be written in its place."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    return isinstance(node, ast.Constant) and node.value == value and type(node.value) is type(value)


def _inside(span: Span, others: list[Span]) -> bool:
    return any(o != span and o.start <= span.start and span.end <= o.end for o in others)
