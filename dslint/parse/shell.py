"""Shell text to a syntax tree with positions in code points of the host file (tree-sitter, error tolerant)."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from dslint.core.source import Location, SourceFile, Span
from dslint.parse.shelllex import PLACEHOLDER

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

# Nodes whose inside never holds a comment or a syntax error that matters.
_LEAVES = frozenset({"word", "string", "raw_string", "number", "variable_name", "heredoc_body", "comment"})


@dataclass(slots=True)
class ShellDoc:
    """A parsed shell text: a whole file, a fenced block of Markdown, or a string that a shell runs.

    ``text`` is the fragment, which begins at ``base`` in ``source.text``. Spans of this class and of its methods
    count from the begin of the host file. ``errors`` are the places that the grammar could not read.
    """

    source: SourceFile
    text: str
    base: int
    tree: Tree
    comments: tuple[Span, ...] = ()
    errors: tuple[Span, ...] = ()
    # Set for a text that stands nowhere as it is (the value of a variable): every node is reported here.
    anchor: Span | None = None
    # Code-point offset of every byte, empty for ASCII, where both are the same.
    _points: array[int] = field(default_factory=lambda: array("L"), repr=False)

    def local(self, node: Node) -> Span:
        """The range of a node in ``text``."""
        if self._points:
            return Span(self._points[node.start_byte], self._points[node.end_byte])
        return Span(node.start_byte, node.end_byte)

    def span(self, node: Node) -> Span:
        """The range of a node in the host file."""
        if self.anchor is not None:
            return self.anchor
        return self.local(node).shifted(self.base)

    def source_span(self, start: int, end: int) -> Span:
        """The range in the host file of a range of ``text``."""
        return self.anchor if self.anchor is not None else Span(start, end).shifted(self.base)

    def raw(self, node: Node) -> str:
        """The text of a node as written."""
        span = self.local(node)
        return self.text[span.start : span.end]

    def location(self, node: Node, label: str = "") -> Location:
        """The place of a node in the host file."""
        return self.source.location(self.span(node), label)

    @property
    def span_in_source(self) -> Span:
        """The whole fragment in the host file."""
        return Span(self.base, self.base + len(self.text))


def parse_shell(source: SourceFile, text: str | None = None, base: int = 0, anchor: Span | None = None) -> ShellDoc:
    """Parse the shell text of a file, or the fragment ``text`` that begins at ``base`` in it.

    ``text`` must be as long as the range it stands for (a caller may have blanked prompts in it), unless
    ``anchor`` says where to report it.
    """
    code = source.text if text is None else text
    # The parser loses the rest of a command over ``<x>``; a variable of the same length keeps all positions.
    data = PLACEHOLDER.sub(lambda m: "$" + "_" * (len(m[0]) - 1), code).encode("utf-8", "surrogatepass")
    tree = _parser().parse(data)
    doc = ShellDoc(source, code, base, tree, anchor=anchor, _points=_code_points(code, len(data)))
    comments: list[Span] = []
    errors: list[Span] = []
    for node in _notable(tree.root_node):
        (comments if node.type == "comment" else errors).append(doc.span(node))
    doc.comments, doc.errors = tuple(comments), tuple(errors)
    return doc


def _notable(root: Node) -> Iterator[Node]:
    """Comments and errors in the order of the text."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "comment" or node.is_error or node.is_missing:
            yield node
        if node.type not in _LEAVES:
            stack.extend(reversed(node.children))


def _code_points(text: str, size: int) -> array[int]:
    """Byte offset -> code-point offset, also for the end of the text."""
    if size == len(text):
        return array("L")
    points = array("L")
    for run in re.finditer(r"[\0-\x7f]+|[^\0-\x7f]+", text):
        # Nearly all characters are one byte: whole stretches of them at once.
        if run[0].isascii():
            points.extend(range(*run.span()))
            continue
        for index, char in enumerate(run[0], run.start()):
            points.extend((index,) * (2 if char < "\u0800" else 3 if char < "\U00010000" else 4))
    points.append(len(text))
    return points


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))
