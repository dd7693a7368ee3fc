"""One module of Python: its text, its tree, and places in it."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

from dslint.core.source import Location, SourceFile, Span
from dslint.parse.python import ScriptProblem, parse_ast
from dslint.python.scopes import statements

if TYPE_CHECKING:
    from collections.abc import Callable

    from dslint.python.importgraph import Names

_FUNCTIONS: tuple[type[ast.stmt], ...] = (ast.FunctionDef, ast.AsyncFunctionDef)
_Node = TypeVar("_Node", bound=ast.AST)
_Found = TypeVar("_Found")
# The folders that may be part of the name of a module.
_MOST_FOLDERS = 6
# Strings and comments, in the order of the text: a `#` in a string begins none.
_WORDS = re.compile(
    r'''"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*''', re.DOTALL
)


class Module:
    """A file that Python can read. Equal only to itself; one object a file, kept by whoever reads the project.

    `name` is the dotted name under which the project imports it (empty for a script); `is_package` says that relative
    imports count from its own folder.
    """

    def __init__(self, source: SourceFile, tree: ast.Module, *, absolute: str = "", name: str = "") -> None:
        self.source = source
        self.tree = tree
        self.absolute = absolute or source.path
        self.name = name
        # The words in the text of its functions, and what they call, for those who ask (`relevance.py`).
        self.words: dict[ast.AST, frozenset[str]] = {}
        self.names_in_code: dict[ast.AST, Names] = {}
        self.calls: dict[ast.AST, list[tuple[str, int]]] = {}
        self.called: frozenset[str] | None = None
        self._kinds: dict[tuple[type[ast.AST], ...], tuple[ast.AST, ...]] = {}
        # By identity: the hash of a pattern is computed from all of it each time.
        self._places: dict[int, tuple[re.Pattern[str], re.Match[str] | None]] = {}
        self._found: dict[Callable[[Module], object], object] = {}

    @property
    def path(self) -> str:
        """Return the path that the user sees."""
        return self.source.path

    @cached_property
    def imported(self) -> dict[str, list[tuple[str, str]]]:
        """Return where each name is imported from and as what, in functions too; of modules the whole path."""
        found: dict[str, list[tuple[str, str]]] = {}
        for node in statements(self.tree):
            if isinstance(node, ast.ImportFrom):
                home = f"{'.' * node.level}{node.module or ''}"
                for alias in node.names:
                    found.setdefault(alias.asname or alias.name, []).append((home, alias.name))
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    found.setdefault(alias.asname or alias.name, []).append((alias.name, ""))
        return found

    def path_of(self, node: ast.expr) -> str:
        """Return the path that a name or a chain of attributes means by the imports; empty where several may count."""
        if not isinstance(node, ast.Name | ast.Attribute):
            return ""
        first, _, rest = ast.unparse(node).partition(".")
        found = self.imported.get(first, [])
        if len(found) != 1:
            return ""
        home, inner = found[0]
        return ".".join(part for part in (home, inner, rest) if part)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Return all nodes of the tree, outer ones first, as `ast.walk` gives them; the tree is walked once."""
        return tuple(ast.walk(self.tree))

    def nodes_of(self, *kinds: type[_Node]) -> tuple[_Node, ...]:
        """Return the nodes of some kinds in the order of `nodes`."""
        found = self._kinds.get(kinds)
        if found is None:
            found = self._kinds[kinds] = tuple(node for node in self.nodes if isinstance(node, kinds))
        return cast("tuple[_Node, ...]", found)

    def once(self, find: Callable[[Module], _Found]) -> _Found:
        """Return what a function finds in the text of this module alone; it is asked one time."""
        if find not in self._found:
            self._found[find] = find(self)
        return cast("_Found", self._found[find])

    @property
    def functions(self) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
        """Return the functions and methods, those inside others too."""
        return cast("tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]", self.nodes_of(*_FUNCTIONS))

    def holds(self, node: ast.AST | None) -> bool:
        """Return whether a node is one of this module's tree."""
        return id(node) in self._numbers

    @cached_property
    def _numbers(self) -> frozenset[int]:
        return frozenset(map(id, self.nodes))

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Return the node around each node."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def attributes(self) -> dict[str, list[ast.Attribute]]:
        """Return where something of each name is read: `x.name`."""
        found: dict[str, list[ast.Attribute]] = {}
        for node in self.nodes_of(ast.Attribute):
            if isinstance(node.ctx, ast.Load):
                found.setdefault(node.attr, []).append(node)
        return found

    @cached_property
    def code(self) -> str:
        """Return the text with blanks for comments and for strings that are statements: what rules search for words."""
        told = [self.span(n) for n in statements(self.tree) if isinstance(n, ast.Expr) and _is_text(n.value)]
        parts, at = [], 0
        for span in sorted(told, key=lambda span: span.start):
            parts += [self.source.text[at : span.start], _blank(self.source.text[span.start : span.end])]
            at = span.end
        return _WORDS.sub(lambda m: _blank(m[0]) if m[0][0] == "#" else m[0], "".join((*parts, self.source.text[at:])))

    def search(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return where the code first holds a pattern, comments and docstrings aside; it is searched once."""
        known = self._places.get(id(pattern))
        if known is None:
            known = self._places[id(pattern)] = (pattern, pattern.search(self.code))
        return known[1]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the dotted names that it may be imported by, from one of the folders around it."""
        parts = [part for part in self.path.removesuffix(".py").split("/") if part not in ("", ".", "..")]
        if len(parts) > 1 and parts[-1] == "__init__":
            parts.pop()
        parts = parts[-_MOST_FOLDERS:]
        return tuple(".".join(parts[at:]) for at in range(len(parts)))

    @property
    def is_package(self) -> bool:
        """Return whether the file is the `__init__.py` of a package."""
        return self.absolute.endswith("__init__.py")

    @cached_property
    def _lines(self) -> list[str]:
        return self.source.text.split("\n")

    def offset(self, line: int, column: int) -> int:
        """Return the code point at a 1-based line and a column in UTF-8 bytes, as the tree has them."""
        starts = self.source.line_starts
        if line > len(starts):
            return len(self.source.text)
        start = starts[line - 1]
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        if text.isascii():
            return start + column
        return start + len(text.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "replace"))

    def span(self, node: ast.AST) -> Span:
        """Return where an expression or a statement is."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None) or column
        return Span(self.offset(line, column), self.offset(end_line, end_column))

    def location(self, node: ast.AST, label: str = "") -> Location:
        """Return the place of a node for a finding."""
        return self.source.location(self.span(node), label)

    def text(self, node: ast.AST) -> str:
        """Return the source text of a node."""
        span = self.span(node)
        return self.source.text[span.start : span.end]

    def lines(self, first: int, last: int) -> str:
        """Return these lines of the text, the last one included; a form feed ends none, as for Python."""
        return "\n".join(self._lines[max(first - 1, 0) : last])

    @cached_property
    def _statements(self) -> dict[int, ast.stmt]:
        found: dict[int, ast.stmt] = {}
        pending: list[tuple[ast.AST, ast.stmt | None]] = [(self.tree, None)]
        while pending:
            node, inside = pending.pop()
            inside = node if isinstance(node, ast.stmt) else inside
            if inside is not None:
                found[id(node)] = inside
            pending.extend((child, inside) for child in ast.iter_child_nodes(node))
        return found

    @cached_property
    def _functions(self) -> dict[int, ast.AST]:
        found: dict[int, ast.AST] = {}
        pending: list[tuple[ast.AST, ast.AST | None]] = [(self.tree, None)]
        while pending:
            node, inside = pending.pop()
            inside = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) else inside
            if inside is not None:
                found[id(node)] = inside
            pending.extend((child, inside) for child in ast.iter_child_nodes(node))
        return found

    def function(self, node: ast.AST) -> ast.AST | None:
        """Return the innermost function around a node, or the node itself where it is one."""
        return self._functions.get(id(node))

    def statement(self, node: ast.AST) -> ast.AST:
        """Return the statement in which an expression stands; itself where that statement has a body."""
        found = self._statements.get(id(node), node)
        return node if hasattr(found, "body") else found

    def code_after(self, node: ast.AST, scope: ast.AST) -> str:
        """Return the code of a scope that stands after the statement of a node."""
        end = len(self.code) if isinstance(scope, ast.Module) else self.span(scope).end
        return self.code[self.span(self.statement(node)).end : end]

    def code_before(self, node: ast.AST, scope: ast.AST) -> str:
        """Return the code of the body of a function that stands before the statement of a node."""
        body = getattr(scope, "body", None)
        start = self.span(body[0]).start if isinstance(body, list) and body else self.span(scope).start
        return self.code[start : self.span(self.statement(node)).start]

    def code_between(self, first: ast.AST, second: ast.AST) -> str:
        """Return the code between the statements of two nodes."""
        return self.code[self.span(self.statement(first)).end : self.span(self.statement(second)).start]

    def __repr__(self) -> str:
        return f"Module({self.path})"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _blank(text: str) -> str:
    return "".join("\n" if character == "\n" else " " for character in text)


def read(source: SourceFile, *, absolute: str = "", name: str = "") -> Module | ScriptProblem:
    """Return the module of a text, or why Python refuses it."""
    tree = parse_ast(source)
    if isinstance(tree, ScriptProblem):
        return tree
    return Module(source, tree, absolute=absolute, name=name)
