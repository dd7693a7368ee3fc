"""YAML: text -> :class:`~dslint.parse.data.DataDoc`, as ``yaml.safe_load`` reads it.

tree-sitter-yaml finds the structure and survives mistakes; the scalars follow YAML 1.1 as PyYAML does. What cannot be
told for certain (unknown tags, aliases without an anchor, keys that are no scalars) is left out with a problem.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dslint.core.source import SourceFile, Span
from dslint.parse import yamlscalar
from dslint.parse.data import DataDoc, Duplicate, ParseProblem, join_pointer
from dslint.parse.limits import MAX_DEPTH
from dslint.parse.yamltree import YamlTree

if TYPE_CHECKING:
    from tree_sitter import Node

# Aliases of aliases grow without bound ("billion laughs"); no config has this many values.
_MOST_VALUES = 50_000
_MOST_PROBLEMS = 50
_PAIRS = ("block_mapping_pair", "flow_pair")
_CONTAINERS = ("block_mapping", "block_sequence", "flow_mapping", "flow_sequence")
_SCALARS = ("plain_scalar", "double_quote_scalar", "single_quote_scalar", "block_scalar")
# ``!`` alone is no tag for PyYAML.
_STANDARD_TAGS = frozenset(("!!str", "!!int", "!!float", "!!bool", "!!null", "!!seq", "!!map"))
_TAB = re.compile(r"^ *\t", re.M)
_CLOSERS = {"[": "]", "{": "}", '"': '"', "'": "'"}
_ABSENT = object()


def parse_yaml(source: SourceFile) -> DataDoc:
    """Read the first document of a YAML text; never raises.

    Keys are text as written (``on`` stays ``"on"``), dates are text. A key that stands twice has its later value.
    A merged or aliased member has the place of the text it comes from.
    """
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: SourceFile) -> None:
        self.text = source.text
        self.tree = YamlTree(source.text)
        self.doc = DataDoc(source, None, values={"": Span(0, 0)})
        self.problems: list[ParseProblem] = []
        self.duplicates: list[Duplicate] = []
        self.anchors: dict[str, tuple[str, Any]] = {}

    def read(self) -> DataDoc:
        doc = self.doc
        nul = self.text.find("\0")
        if nul >= 0:
            self._problem(Span(nul, nul + 1), "the file holds a NUL byte: it is no text")
        if self.tree.too_deep:
            self._problem(self.tree.too_deep, "nested too deeply: the file is not read")
        root = self.tree.root
        comments, errors = self.tree.comments_and_errors()
        doc.comments = tuple(self._span(node) for node in comments)
        for node in errors:
            self._error(node)
        first = next((child for child in root.children if child.type == "document"), root)
        content = next((c for c in first.children if c.type in ("block_node", "flow_node")), None)
        if content is not None:
            doc.data = self._value(content, "", -1, 0)
        elif any(child.type in _PAIRS for child in first.children):
            doc.data = self._mapping(first, "", 0, 0)
            doc.values[""] = self._span(first)
        if doc.data is _ABSENT:
            doc.data = None
            doc.values[""] = Span(0, 0)
        doc.duplicates = tuple(self.duplicates)
        doc.problems = tuple(sorted(self.problems, key=lambda p: p.span))
        return doc

    def _span(self, node: Node) -> Span:
        return self.tree.span(node)

    def _text(self, node: Node) -> str:
        span = self._span(node)
        return self.text[span.start : span.end]

    def _problem(self, span: Span, message: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(ParseProblem(span, message))

    def _error(self, node: Node) -> None:
        span = self._span(node)
        if node.parent is None:  # nothing but pieces: the reading stopped at their end
            rest = self.text[span.end :]
            stop = span.end + len(rest) - len(rest.lstrip())
            span = Span(stop, stop + 1) if rest.strip() else span
        line_start = self.text.rfind("\n", 0, span.start) + 1
        line_end = self.text.find("\n", span.start)
        end = max(span.start, min(span.end, line_end if line_end >= 0 else len(self.text)))
        opened = self.text[span.start : span.start + 1]
        if node.is_missing:
            message = f"missing `{node.type}`"
        elif _TAB.search(self.text, line_start, max(span.end, end) + 1):
            message = "a tab cannot indent YAML"
        elif opened == "\\":
            message = "no such escape in a YAML string: a backslash itself is written `\\\\`"
        elif opened in _CLOSERS and _CLOSERS[opened] not in self.text[span.start + 1 : span.end]:
            message = f"unclosed `{opened}`"
        else:
            message = "this is no YAML: check the indentation, the colons and the quotes around here"
        self._problem(Span(span.start, end), message)

    def _value(self, node: Node, pointer: str, indent: int, depth: int) -> Any:
        """The value of a block or flow node, its spans filed under ``pointer``; ``_ABSENT`` when nobody can tell."""
        span = self._span(node)
        anchor = tag = ""
        content: Node | None = None
        for child in node.children:
            if child.type == "anchor":
                anchor = self._text(child)[1:]
            elif child.type == "tag":
                tag = self._text(child).removeprefix("!") and self._text(child)
            elif child.type in _CONTAINERS or child.type in _SCALARS or child.type == "alias":
                content = child
        if tag and tag not in _STANDARD_TAGS:
            self._problem(span, f"the tag `{tag}` has no meaning here")
            return _ABSENT
        if depth > MAX_DEPTH or len(self.doc.values) > _MOST_VALUES:
            what = f"nested deeper than {MAX_DEPTH} levels" if depth > MAX_DEPTH else "too many values"
            self._problem(Span(span.start, span.start + 1), f"{what}: the rest is not read")
            return _ABSENT
        self.doc.values[pointer] = span if content is None else self._span(content)
        value = self._content(content, tag, pointer, indent, depth)
        if value is _ABSENT:
            del self.doc.values[pointer]
        elif anchor:
            self.anchors[anchor] = (pointer, value)
        return value

    def _content(self, node: Node | None, tag: str, pointer: str, indent: int, depth: int) -> Any:
        kind = node.type if node is not None else ""
        if node is None:
            return "" if tag == "!!str" else None
        if kind == "alias":
            return self._alias(node, pointer)
        if kind.endswith("_mapping"):
            column = node.start_point.column if kind == "block_mapping" else indent
            return self._mapping(node, pointer, column, depth + 1)
        if kind.endswith("_sequence"):
            column = node.start_point.column if kind == "block_sequence" else indent
            return self._sequence(node, pointer, column, depth + 1)
        text = self._scalar(node, indent)
        if text is None:
            self._problem(self._span(node), "this text has an escape or header that YAML does not know")
            return _ABSENT
        if tag in ("", "!!int", "!!float", "!!bool", "!!null") and (kind == "plain_scalar" or tag):
            value = yamlscalar.plain(text)
            return float(value) if tag == "!!float" and type(value) is int else value
        return text

    def _scalar(self, node: Node, indent: int) -> str | None:
        if node.type == "block_scalar":
            return yamlscalar.block(self.text, self._span(node).start, indent)
        text = self._text(node)
        if node.type == "double_quote_scalar":
            return yamlscalar.double_quoted(text[1:-1])
        return yamlscalar.single_quoted(text[1:-1]) if text.startswith("'") else yamlscalar.fold(text)

    def _sequence(self, node: Node, pointer: str, indent: int, depth: int) -> list[Any]:
        items: list[Any] = []
        for child in node.children:
            at = join_pointer(pointer, len(items))
            value: Any = _ABSENT
            if child.type == "block_sequence_item":
                inner = next((c for c in child.children if c.type in ("block_node", "flow_node")), None)
                if inner is None:
                    end = self._span(child).end
                    self.doc.values[at] = Span(end, end)
                    value = None
                else:
                    value = self._value(inner, at, indent, depth)
            elif child.type == "flow_node":
                value = self._value(child, at, indent, depth)
            elif child.type == "flow_pair":
                # ``[a: b]`` is a list of one mapping
                self.doc.values[at] = self._span(child)
                value = {}
                self._pair(child, value, at, indent, depth)
            else:
                continue
            if value is _ABSENT:
                # Later items keep their numbers.
                self.doc.values[at] = self._span(child)
                value = None
            items.append(value)
        return items

    def _mapping(self, node: Node, pointer: str, indent: int, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: list[tuple[str, Any]] = []
        children = [c for c in node.children if c.type != "comment"]
        for index, child in enumerate(children):
            follower = children[index + 1] if index + 1 < len(children) else None
            if child.type in _PAIRS:
                broken = follower is not None and follower.is_error
                merged += self._pair(child, data, pointer, indent, depth, broken)
            elif child.type == "flow_node":  # ``{a, b}``: keys without values
                key = self._key(child, indent)
                if key is not None:
                    self._put(data, key, None, join_pointer(pointer, key), self._span(child), self._span(child))
                    end = self._span(child).end
                    self.doc.values[join_pointer(pointer, key)] = Span(end, end)
        for origin, mapping in merged:
            for key, value in mapping.items():
                if key not in data:
                    data[key] = value
                    self._copy_spans(join_pointer(origin, key), join_pointer(pointer, key))
        return data

    def _pair(
        self, node: Node, data: dict[str, Any], pointer: str, indent: int, depth: int, broken: bool = False
    ) -> list[tuple[str, Any]]:
        """Read a ``key: value`` into ``data``; gives the mappings of a ``<<`` key instead, with their pointers."""
        key_node, value_node = node.child_by_field_name("key"), node.child_by_field_name("value")
        key = self._key(key_node, indent) if key_node is not None else ""
        if key is None or (value_node is None and (broken or node.has_error)):
            return []
        at = join_pointer(pointer, key)
        span = self._span(node)
        key_span = self._span(key_node) if key_node is not None else Span(span.start, span.start)
        if key == "<<" and value_node is not None and key_node is not None and self._text(key_node) == "<<":
            return self._merge(value_node, at, indent, depth)
        if key in data:
            self._forget(at, key_span)
        value: Any = None
        if value_node is None:
            self.doc.values[at] = Span(span.end, span.end)
        else:
            value = self._value(value_node, at, indent, depth)
        if value is not _ABSENT:
            self._put(data, key, value, at, key_span, span)
        return []

    def _put(self, data: dict[str, Any], key: str, value: Any, at: str, key_span: Span, member: Span) -> None:
        data[key] = value
        self.doc.keys[at] = key_span
        self.doc.members[at] = member

    def _key(self, node: Node, indent: int) -> str | None:
        scalar = next((c for c in node.children if c.type in _SCALARS), None)
        text = self._scalar(scalar, indent) if scalar is not None else None
        if text is None:
            self._problem(self._span(node), "a key of this kind cannot be read")
        return text

    def _merge(self, node: Node, at: str, indent: int, depth: int) -> list[tuple[str, Any]]:
        """The mappings behind ``<<: *a`` or ``<<: [*a, *b]``."""
        value = self._value(node, at, indent, depth)
        found = [(at, value)]
        if isinstance(value, list):
            found = [(join_pointer(at, index), item) for index, item in enumerate(value)]
        good = [(origin, item) for origin, item in found if isinstance(item, dict)]
        if len(good) < len(found) and value is not _ABSENT:
            self._problem(self._span(node), "`<<` merges mappings only")
        return good

    def _alias(self, node: Node, pointer: str) -> Any:
        name = self._text(node)[1:]
        if name not in self.anchors:
            self._problem(self._span(node), f"no anchor `&{name}` comes before this")
            return _ABSENT
        origin, value = self.anchors[name]
        span = self.doc.values[pointer]
        if not self._copy_spans(origin, pointer):
            self._problem(span, "too many values: the rest is not read")
            return _ABSENT
        self.doc.values[pointer] = span
        return value

    def _copy_spans(self, origin: str, target: str) -> bool:
        """File the spans of a value under another pointer too; False when that would be too many."""
        if origin == target:
            return True
        below = origin + "/"
        for table in (self.doc.values, self.doc.keys, self.doc.members):
            found = [(p, s) for p, s in table.items() if p == origin or p.startswith(below)]
            if len(found) + len(table) > _MOST_VALUES:
                return False
            for pointer, span in found:
                table[target + pointer[len(origin) :]] = span
        return True

    def _forget(self, pointer: str, second: Span) -> None:
        """A later member replaces what an earlier one of the same name said."""
        doc = self.doc
        if pointer in doc.keys:
            self.duplicates.append(Duplicate(pointer, doc.keys[pointer], second))
        doc.forget(pointer)
