"""Makes a program smaller while something still holds of it: a statement less, or a block in place of its statement."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator, Mapping

from .engine import Believe
from .verdict import judge
from .worlds import Job

Files = dict[str, str]


def shrink(files: Mapping[str, str], holds: Callable[[Files], bool], *, tries: int = 400) -> Files:
    """The smallest program that greedy removal finds for which `holds` (which must not raise)."""
    best = dict(files)
    while tries > 0:
        for candidate in _smaller(best):
            tries -= 1
            if tries <= 0:
                break
            if holds(candidate):
                best = candidate
                break
        else:
            return best
    return best


def smallest(files: Mapping[str, str], job: Job, believe: Believe, kind: str, *, tries: int = 400) -> Files:
    """The smallest program for which the judge finds a violation of this kind."""

    def holds(candidate: Files) -> bool:
        return any(v.kind == kind for v in judge(candidate, job, believe).violations)

    return shrink(files, holds, tries=tries)


def _smaller(files: Files) -> Iterator[Files]:
    """Programs with one statement less, the largest statements first."""
    for path in sorted(files, key=lambda p: -len(files[p])):
        if not path.endswith("main.py"):
            yield {p: text for p, text in files.items() if p != path}
        for text in _without_one(files[path]):
            if _parses(text):
                yield {**files, path: text}


def _parses(text: str) -> bool:
    try:
        compile(text, "shrunk", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _without_one(text: str) -> Iterator[str]:
    lines = text.splitlines()
    found: list[tuple[int, int, ast.stmt]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(d.lineno for d in decorators)]) - 1
            found.append((first, node.end_lineno or node.lineno, node))
    found.sort(key=lambda f: f[0] - f[1])
    for first, end, node in found:
        indent = " " * node.col_offset
        yield _joined([*lines[:first], *lines[end:]])
        for body in _blocks(node):
            start, stop = body[0].lineno - 1, body[-1].end_lineno or body[-1].lineno
            inner = textwrap.indent(textwrap.dedent("\n".join(lines[start:stop])), indent).splitlines()
            yield _joined([*lines[:first], *inner, *lines[end:]])
        if not isinstance(node, ast.Pass) and lines[first].strip() != "pass":
            yield _joined([*lines[:first], f"{indent}pass", *lines[end:]])


def _blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    """Blocks of a compound statement that may stand in its place."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    return [body for name in ("body", "orelse", "finalbody") if (body := getattr(node, name, None))]


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
