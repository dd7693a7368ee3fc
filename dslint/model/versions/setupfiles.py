"""Versions in ``setup.cfg`` and ``setup.py``, which is read and never run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dslint.core.source import SourceFile, Span
from dslint.model.versions.requirements import PYTHON, Statement, requirement

if TYPE_CHECKING:
    import ast

_CFG_KEY = re.compile(r"([A-Za-z_][\w.-]*)\s*[=:]\s*")


def setup_cfg(source: SourceFile) -> Iterator[Statement]:
    """``install_requires`` and ``extras_require`` of ``setup.cfg``."""
    section = key = ""
    for line in re.finditer(r"^[^\r\n]*", source.text, re.M):
        text, start = line[0], line.start()
        if text.startswith("["):
            section, key = text.strip().strip("[]"), ""
            continue
        head = _CFG_KEY.match(text)
        if (head and section != "options.extras_require") or (head and not text[:1].isspace()):
            key = head[1]
            start += head.end()
            text = text[head.end() :]
        if section == "options" and key == "python_requires" and text.strip():
            yield Statement(PYTHON, text.strip().replace(" ", ""), Span(start, start + len(text.rstrip())))
        if section == "options.extras_require" or (section == "options" and key == "install_requires"):
            found = requirement(text.split(" #")[0], start, certain=section == "options")
            if found:
                yield found if section == "options" else replace(found, group=f"extra {key}")


def setup_py(source: SourceFile) -> Iterator[Statement]:
    """Strings with a requirement in ``setup.py``; those outside of ``install_requires`` are marked as others."""
    import ast

    from dslint.parse.nesting import syntax_tree

    try:
        tree = syntax_tree(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    listed = frozenset(_listed(tree))
    base = frozenset(_installed(tree))
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            line = source.line_text(node.lineno) if node.lineno <= len(source.line_starts) else ""
            column = len(line.encode("utf-8", "surrogatepass")[: node.col_offset].decode("utf-8", "replace"))
            start = source.offset(node.lineno, column + 1)
            quote = source.text.find(node.value, start)
            found = requirement(node.value, quote) if quote >= 0 else None
            # A name alone may be a keyword or a key; among requirements it is one.
            if found and (found.specifier or found.taken_from or node in listed):
                yield found if node in base else replace(found, group="other")
        elif isinstance(node, ast.keyword) and node.arg == "python_requires":
            python = node.value.value if isinstance(node.value, ast.Constant) else None
            start = source.text.find("python_requires")
            if isinstance(python, str) and python and start >= 0:
                yield Statement(PYTHON, python.replace(" ", ""), Span(start, source.line_after(start) - 1))
        elif not isinstance(node, ast.JoinedStr):
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _installed(tree: ast.AST) -> Iterator[ast.AST]:
    """The texts of ``install_requires``, written there or in a list of the module that it names."""
    import ast

    lists = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.List, ast.Tuple))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "install_requires":
            value = lists.get(node.value.id) if isinstance(node.value, ast.Name) else node.value
            yield from value.elts if isinstance(value, (ast.List, ast.Tuple)) else ()


_OF_REQUIREMENTS = re.compile(r"requires?(_|$)|requirements|(^|_)deps$|dependencies", re.I)


def _listed(tree: ast.AST) -> Iterator[ast.AST]:
    """The items of lists that are called requirements: ``install_requires=[...]``, ``REQUIREMENTS = [...]``."""
    import ast

    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            names = [node.arg or ""]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        else:
            continue
        if any(_OF_REQUIREMENTS.search(name) for name in names):
            for inner in ast.walk(node.value):
                yield from inner.elts if isinstance(inner, (ast.List, ast.Tuple, ast.Set)) else ()
