"""Cuts a program down while it still shows what it shows: statements go, branches give way to their bodies."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

_ROUNDS = 80


def shrink(source: str, still: Callable[[str], bool]) -> str:
    """The smallest program that was found for which ``still`` holds; ``still`` answers ``False`` for broken ones."""
    best = ast.unparse(ast.parse(source))
    for _ in range(_ROUNDS):
        smaller = next((s for s in _smaller(best) if still(s)), None)
        if smaller is None:
            return best + "\n"
        best = smaller
    return best + "\n"


def _smaller(source: str) -> Iterator[str]:
    """All programs with one statement less, larger cuts first."""
    count = sum(1 for _ in _edits(ast.parse(source)))
    for at in range(count):
        tree = ast.parse(source)
        for index, edit in enumerate(_edits(tree)):
            if index == at:
                edit()
                break
        text = ast.unparse(tree)
        if text != source:
            yield text


def _edits(tree: ast.AST) -> Iterator[Callable[[], None]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
                for at, statement in enumerate(statements):
                    yield _removed(node, name, at)
                    inner = getattr(statement, "body", None)
                    if isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try) and inner:
                        yield _replaced(node, name, at, inner)
        if isinstance(node, ast.If) and isinstance(node.test, ast.BoolOp):
            for value in node.test.values:
                yield _tested(node, value)


def _removed(node: ast.AST, name: str, at: int) -> Callable[[], None]:
    def edit() -> None:
        statements = getattr(node, name)
        del statements[at]
        if not statements and name == "body" and not isinstance(node, ast.Module):
            statements.append(ast.Pass())

    return edit


def _replaced(node: ast.AST, name: str, at: int, inner: list[ast.stmt]) -> Callable[[], None]:
    def edit() -> None:
        getattr(node, name)[at : at + 1] = inner

    return edit


def _tested(node: ast.If, value: ast.expr) -> Callable[[], None]:
    def edit() -> None:
        node.test = value

    return edit
