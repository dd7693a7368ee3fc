"""How deep a syntax tree nests, measured before LibCST sees the text.

LibCST (1.9) builds a chain (``a.b().c()``, ``a + b + c``) from the left and copies what it has at each link: 0.04 s for
a sum of 600 numbers, 4 s for one of 600 calls with 30 arguments, minutes for 5,000 links. Of 6,000 files of training
code and of site-packages, one nested 568 nodes deep and one 170 (tables of formulas), all others less than 100.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator

from dslint.core.source import SourceFile, Span
from dslint.parse import nestedtext

# Nodes between a statement and one inside it, and statements around a statement (a chain of ``elif``).
MAX_DEPTH = 650
# Expressions and statements of fewer characters are not looked into: a level of nesting takes one at least.
_SHORT = 200
# The sum of the depths of all nodes; LibCST takes about a second for a million.
_MAX_COST = 3_000_000
_SHALLOW = 20
# Up to Python 3.10, ``ast.parse`` has no limit of its own for chains.
_UNGUARDED = sys.version_info < (3, 11)
_UNGUARDED_LINKS = 10_000


def syntax_tree(text: str) -> ast.Module:
    """``ast.parse`` for a text of which nothing is known.

    Raises what ``ast.parse`` raises, and ``RecursionError`` where that would end the process.
    """
    if (
        _UNGUARDED
        and len(text) > _UNGUARDED_LINKS
        and nestedtext.deep_place(text, _UNGUARDED_LINKS, len(text)) is not None
    ):
        raise RecursionError
    with warnings.catch_warnings():
        # Invalid escapes in the analysed code are not our user's business here.
        warnings.simplefilter("ignore")
        return ast.parse(text)


def too_deep_to_guess(text: str) -> bool:
    """A text that Python refuses nests so deep that LibCST must not be asked for a second opinion."""
    return nestedtext.deep_pattern(text) is not None or nestedtext.deep_place(text, MAX_DEPTH) is not None


def deep_place(source: SourceFile) -> Span:
    """Where a text that no parser could read nests deepest, as far as one can tell without a parser."""
    at = nestedtext.deep_place(source.text, MAX_DEPTH)
    return _line(source, source.line_column(at)[0]) if at is not None else Span(0, 0)


def too_deep(source: SourceFile, tree: ast.Module, limit: int = MAX_DEPTH) -> Span | None:
    """The first line of a statement that nests too deep for LibCST, ``None`` for all code that people write."""
    at = nestedtext.deep_pattern(source.text)
    if at is not None and _is_in_match(tree, source.line_column(at)[0]):
        return _line(source, source.line_column(at)[0])
    found = _deep_statement(source, tree, limit)
    return _line(source, found.lineno) if found is not None else None


def _is_in_match(tree: ast.Module, line: int) -> bool:
    return any(isinstance(node, ast.Match) and node.lineno < line <= (node.end_lineno or 0) for node in ast.walk(tree))


def _line(source: SourceFile, number: int) -> Span:
    number = min(number, len(source.line_starts))  # Python ends a line at a lone carriage return too
    text = source.line_text(number)
    start = source.line_starts[number - 1]
    return Span(start + len(text) - len(text.lstrip()), start + len(text))


def _deep_statement(source: SourceFile, tree: ast.Module, limit: int) -> ast.stmt | None:
    cost = 0
    # A node, the statement that holds it, and how deep the statement and the node in it are.
    stack: list[tuple[ast.AST, ast.stmt | None, int, int]] = [(tree, None, 0, 0)]
    while stack:
        node, owner, level, depth = stack.pop()
        if isinstance(node, ast.stmt):
            owner, level = node, level + 1
            depth = (node.module or "").count(".") if isinstance(node, ast.ImportFrom) else 0
        else:
            depth += _links(node, source)
        if owner is not None and (level > limit or depth > limit or cost > _MAX_COST):
            return owner
        copies = max(0, depth - _SHALLOW)
        cost += copies
        for child in _children(node):
            size = _size(child, source)
            if size is None or size >= _SHORT:
                stack.append((child, owner, level, depth))
            elif copies:
                cost += copies * (size // 2 + 1)  # about two characters a node
    return None


def _children(node: ast.AST) -> Iterator[ast.AST]:
    # ``ast.iter_child_nodes`` asks for the fields by name, which takes three times as long.
    for value in node.__dict__.values():
        if value.__class__ is list:
            for item in value:
                if isinstance(item, ast.AST):
                    yield item
        elif isinstance(value, ast.AST):
            yield value


def _size(node: ast.AST, source: SourceFile) -> int | None:
    """About how many characters a node takes; ``None`` when the tree does not say so."""
    line = getattr(node, "lineno", None)
    if line is None:
        return None if node._fields else 0
    start, end = _extent(node, source)
    for decorator in node.__dict__.get("decorator_list", ()):  # the extent of a definition begins behind them
        start = min(start, _extent(decorator, source)[0])
    return max(0, end - start)


def _extent(node: ast.AST, source: SourceFile) -> tuple[int, int]:
    """Columns count bytes, a lone carriage return is a line of its own: near enough to tell long from short."""
    starts = source.line_starts
    line, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
    begin, end = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
    if line == last and line > len(starts):
        return begin, end
    if last > len(starts):
        return 0, len(source.text)
    return starts[line - 1] + begin, starts[last - 1] + end


def _links(node: ast.AST, source: SourceFile) -> int:
    """How many levels one node of this tree is in LibCST's, which nests what this one lists."""
    if isinstance(node, ast.BoolOp):
        return len(node.values)
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return len(node.generators)
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))):
        start, end = _extent(node, source)
        return max(1, nestedtext.literals(source.text[start:end]))
    if isinstance(node, ast.alias):
        return node.name.count(".")
    return 1
