"""The syntax tree of a YAML text by tree-sitter, with positions in code points."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from dslint.core.source import Span
from dslint.parse.yamldepth import too_deep

if TYPE_CHECKING:
    from tree_sitter import Node

_WIDE = re.compile(r"[^\x00-\x7f]")


class YamlTree:
    """Structure and places; what the scalars mean is :mod:`dslint.parse.yamlscalar`'s business."""

    def __init__(self, text: str) -> None:
        import tree_sitter
        import tree_sitter_yaml

        self.text = text
        parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_yaml.language()))
        # Where the blocks nest so deep that the grammar's scanner would crash; then nothing is parsed.
        self.too_deep = too_deep(text.replace("\r", "\n"))
        self._tree = parser.parse(b"" if self.too_deep else text.encode("utf-8", "surrogatepass"))
        # Byte offsets behind the characters of more than one byte, and the surplus bytes up to there.
        self._wide: list[int] = []
        self._surplus: list[int] = []
        if not text.isascii():
            found = [(m.start(), len(m[0].encode("utf-8", "surrogatepass")) - 1) for m in _WIDE.finditer(text)]
            self._surplus = list(accumulate(extra for _, extra in found))
            self._wide = [at + 1 + total for (at, _), total in zip(found, self._surplus, strict=True)]

    @property
    def root(self) -> Node:
        """The stream, or an error node when nothing could be read."""
        return self._tree.root_node

    def span(self, node: Node) -> Span:
        """The code points of a node, without the blank lines that the grammar counts to a block."""
        start, end = self._offset(node.start_byte), self._offset(node.end_byte)
        return Span(start, start + len(self.text[start:end].rstrip(" \t\r\n")))

    def _offset(self, byte: int) -> int:
        if not self._wide:
            return byte
        index = bisect_right(self._wide, byte)
        return byte - (self._surplus[index - 1] if index else 0)

    def comments_and_errors(self) -> tuple[list[Node], list[Node]]:
        """All comments, and every outermost place that the grammar could not read, in text order."""
        comments: list[Node] = []
        errors: list[Node] = []
        stack = [self.root]
        while stack:
            node = stack.pop()
            if node.type == "comment":
                comments.append(node)
            elif node.is_missing or (node.is_error and not (node.parent and node.parent.is_error)):
                errors.append(node)
            stack.extend(reversed(node.children))
        return comments, errors
