"""Where the nodes of ``ast`` stand: it counts columns in UTF-8 bytes, dslint offsets in code points."""

from __future__ import annotations

import ast
import re

from dslint.core.source import SourceFile, Span

# For Python a carriage return alone ends a line too.
_LONE_RETURN = re.compile(r"\r(?!\n)")


class AstPlaces:
    """Answers for one Python file."""

    def __init__(self, source: SourceFile) -> None:
        text = _LONE_RETURN.sub("\n", source.text) if "\r" in source.text else source.text
        self._lines = source if text is source.text else SourceFile(source.path, text)

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> Span:
        """The range of a node in the text."""
        start = self._offset(node.lineno, node.col_offset)
        return Span(start, self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset))

    def _offset(self, line: int, column: int) -> int:
        text = self._lines.line_text(line)
        chars = column if text.isascii() else len(text.encode()[:column].decode(errors="ignore"))
        return self._lines.offset(line, chars + 1)
