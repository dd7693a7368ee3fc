"""How deep the blocks of a YAML text nest, counted before it is parsed.

The scanner of tree-sitter-yaml (0.7.2) keeps its stack of indentations in a buffer of 1,024 bytes without a
bounds check: some 250 nested blocks end the whole process with a segmentation fault.
"""

from __future__ import annotations

import re

from dslint.core.source import Span

# A column holds at most two blocks (a list may stand in the column of its key): far below the 250.
MAX_COLUMNS = 100
# ``- - ? key``: each indicator at the begin of a line opens a block of its own.
_LINE = re.compile(r"^(?P<blank> *)(?P<marks>(?:[-?:][ \t]+)*)(?=[^\s#])", re.MULTILINE)
_MARK = re.compile(r"[-?:][ \t]+")


def too_deep(text: str, limit: int = MAX_COLUMNS) -> Span | None:
    """The first line whose blocks begin in more than ``limit`` columns.

    An upper bound: the lines of a multi-line string count as if they were blocks.
    """
    columns: list[int] = []
    for match in _LINE.finditer(text):
        column = len(match["blank"])
        while columns and columns[-1] >= column:
            columns.pop()
        columns.append(column)
        for mark in _MARK.finditer(match["marks"]):
            column += len(mark[0])
            columns.append(column)
        if len(columns) > limit:
            return Span(match.start() + len(match["blank"]), match.end())
    return None
