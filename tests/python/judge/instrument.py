"""Rewrites a module so that it notes the value of its expressions and its lines, and does otherwise the same.

An expression becomes `__judge_rec__(__judge_push__(__judge_a__, site), expression)`: nothing moves in or out of the
function it stands in, and its parts are evaluated in the same order.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

Position = tuple[int, int, int, int]


@dataclass(frozen=True)
class Place:
    """One expression: its position in the file as `ast` says it, its kind, and the loops of its function around it."""

    path: str
    line: int
    col: int
    end_line: int
    end_col: int
    kind: str
    loops: tuple[int, ...]
    in_lambda: bool

    @property
    def site(self) -> tuple[str, int, int, int, int]:
        return (self.path, self.line, self.col, self.end_line, self.end_col)


@dataclass
class Sites:
    """All places of a program, by number."""

    places: list[Place] = field(default_factory=list)
    lines: list[tuple[str, int]] = field(default_factory=list)
    statements: dict[str, set[int]] = field(default_factory=dict)  # lines that a statement begins in, for each file
    loops: int = 0


RECORDED = (
    ast.Name,
    ast.Attribute,
    ast.Call,
    ast.Subscript,
    ast.Compare,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.IfExp,
    ast.JoinedStr,
)
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_WAITS = (ast.Yield, ast.YieldFrom, ast.Await)


def instrumented(tree: ast.Module, path: str, sites: Sites, *, own_sets: bool = False) -> ast.Module:
    """Return the tree with instruments; `sites` learns its places."""
    worker = _Instruments(path, sites, own_sets=own_sets, twice=_twice(tree))
    tree.body = worker.block(tree.body, first=None)
    return ast.fix_missing_locations(tree)


def _position(node: ast.expr) -> Position:
    return (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


def _twice(tree: ast.AST) -> set[Position]:
    """Positions that two expressions share (parts of f-strings in old versions of Python): nobody could tell them."""
    seen: set[Position] = set()
    twice: set[Position] = set()
    for node in ast.walk(tree):
        if isinstance(node, RECORDED):
            position = _position(node)
            (twice if position in seen else seen).add(position)
    return twice


def _waits(node: ast.AST) -> bool:
    """Whether the expression hands control away before it has a value."""
    pending = [node]
    while pending:
        top = pending.pop()
        if isinstance(top, _WAITS) or (isinstance(top, ast.comprehension) and top.is_async):
            return True
        if not isinstance(top, ast.Lambda):
            pending.extend(ast.iter_child_nodes(top))
    return False


def _load(name: str) -> ast.Name:
    return ast.Name(f"__judge_{name}__", ast.Load())


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(_load(name), list(arguments), [])


def _activation() -> ast.Name:
    return _load("a")


def _number(value: int) -> ast.Constant:
    return ast.Constant(value)


def _placed(new: ast.stmt, old: ast.AST) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(new, old))


class _Instruments(ast.NodeTransformer):
    def __init__(self, path: str, sites: Sites, *, own_sets: bool, twice: set[Position]) -> None:
        self.path, self.sites, self.own_sets, self.twice = path, sites, own_sets, twice
        self.loops: tuple[int, ...] = ()
        self.lambdas = 0

    # -- statements
    def block(self, body: list[ast.stmt], first: list[ast.stmt] | None) -> list[ast.stmt]:
        """Statements with a note of the line before each; `first` is put where the docstring ends."""
        found: list[ast.stmt] = []
        begins = first
        for nth, statement in enumerate(body):
            head = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            head = head or (nth == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
            if not head and begins is not None:
                found += begins
                begins = None
            if not head and not isinstance(statement, ast.Global | ast.Nonlocal):
                found.append(self._line(statement))
            made = self.visit(statement)
            found += made if isinstance(made, list) else [made]
        return found + (begins or [])

    def _line(self, statement: ast.stmt) -> ast.stmt:
        number = statement.lineno
        if isinstance(statement, (*_FUNCTION, ast.ClassDef)) and statement.decorator_list:
            number = statement.decorator_list[0].lineno
        self.sites.lines.append((self.path, statement.lineno))
        self.sites.statements.setdefault(self.path, set()).add(statement.lineno)
        note = ast.Expr(_call("line", _number(len(self.sites.lines) - 1)))
        for inner in ast.walk(note):
            if isinstance(inner, ast.expr | ast.stmt):
                inner.lineno = inner.end_lineno = number
                inner.col_offset = inner.end_col_offset = 0
        return note

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        self._defaults(node.args)
        before = self.loops, self.lambdas
        self.loops, self.lambdas = (), 0
        begin = ast.Assign([ast.Name("__judge_a__", ast.Store())], _call("enter"))
        node.body = self.block(node.body, [_placed(begin, node.body[0])])
        self.loops, self.lambdas = before
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815

    def _defaults(self, arguments: ast.arguments) -> None:
        arguments.defaults = [self.visit(d) for d in arguments.defaults]
        arguments.kw_defaults = [d if d is None else self.visit(d) for d in arguments.kw_defaults]

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        node.bases = [self.visit(b) for b in node.bases]
        node.keywords = [self.visit(k) for k in node.keywords]
        node.body = self.block(node.body, None)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.target = self.visit(node.target)
        node.value = None if node.value is None else self.visit(node.value)
        return node

    def _looped(self) -> int:
        self.sites.loops += 1
        return self.sites.loops

    def visit_For(self, node: ast.For) -> ast.AST:
        number, before = self._looped(), self.loops
        node.iter = self._items(number, self.visit(node.iter))
        self.loops = (*before, number)
        node.target = self.visit(node.target)
        node.body = self.block(node.body, None)
        self.loops = before
        node.orelse = self.block(node.orelse, None)
        return node

    def _items(self, number: int, iterable: ast.expr) -> ast.expr:
        return ast.copy_location(_call("loop", _activation(), _number(number), iterable), iterable)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        node.iter, node.target = self.visit(node.iter), self.visit(node.target)
        node.body, node.orelse = self.block(node.body, None), self.block(node.orelse, None)
        return node

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        number, before = self._looped(), self.loops
        reset = _placed(ast.Expr(_call("reset", _activation(), _number(number))), node)
        turn = _placed(ast.Expr(_call("turn", _activation(), _number(number))), node)
        self.loops = (*before, number)
        node.test = self.visit(node.test)
        node.body = [turn, *self.block(node.body, None)]
        self.loops = before
        node.orelse = self.block(node.orelse, None)
        return [reset, node]

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self.visit(node.test)
        node.body, node.orelse = self.block(node.body, None), self.block(node.orelse, None)
        return node

    def _caught(self, node: ast.stmt) -> ast.stmt:
        return _placed(ast.Expr(_call("caught", _activation())), node)

    def visit_Try(self, node: ast.Try) -> ast.AST:
        node.body = self.block(node.body, None)
        for handler in node.handlers:
            handler.type = None if handler.type is None else self.visit(handler.type)
            handler.body = [self._caught(handler.body[0]), *self.block(handler.body, None)]
        node.orelse = self.block(node.orelse, None)
        if node.finalbody:
            node.finalbody = [self._caught(node.finalbody[0]), *self.block(node.finalbody, None)]
        return node

    visit_TryStar = visit_Try  # noqa: N815

    def visit_With(self, node: ast.With) -> ast.AST:
        node.items = [self.visit(i) for i in node.items]
        body = self.block(node.body, None)
        again = ast.Raise(None, None)
        handler = ast.ExceptHandler(None, None, [self._caught(node), again])
        node.body = [_placed(ast.Try(body, [handler], [], []), node.body[0])]
        return node

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        node.items = [self.visit(i) for i in node.items]
        node.body = self.block(node.body, None)
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        node.subject = self.visit(node.subject)
        for case in node.cases:
            case.guard = None if case.guard is None else self.visit(case.guard)
            case.body = self.block(case.body, None)
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if node.exc is not None:
            waits = _waits(node.exc)
            exc = self.visit(node.exc)
            node.exc = exc if waits else ast.copy_location(_call("raising", exc), exc)
        node.cause = None if node.cause is None else self.visit(node.cause)
        return node

    def visit_TypeAlias(self, node: ast.AST) -> ast.AST:
        return node

    # -- expressions
    def generic_visit(self, node: ast.AST) -> ast.AST:
        made = super().generic_visit(node)
        if isinstance(node, ast.Set | ast.SetComp) and self.own_sets and not _waits(node):
            return ast.copy_location(_call("own_set", node), node)
        if isinstance(node, RECORDED) and isinstance(getattr(node, "ctx", None), ast.Load | None):
            return self._noted(node)
        return made

    def _noted(self, node: ast.expr) -> ast.expr:
        position = _position(node)
        if position in self.twice or _waits(node):
            return node
        number = _number(len(self.sites.places))
        kind = type(node).__name__
        self.sites.places.append(Place(self.path, *position, kind, self.loops, self.lambdas > 0))
        if isinstance(node, ast.Name):
            made = _call("name", _activation(), number, node)
        else:
            made = _call("rec", _call("push", _activation(), number), node)
        return ast.copy_location(made, node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        node.value = self.visit(node.value)
        if isinstance(node.format_spec, ast.JoinedStr):
            node.format_spec.values = [self.visit(v) for v in node.format_spec.values]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._defaults(node.args)
        self.lambdas += 1
        node.body = self.visit(node.body)
        self.lambdas -= 1
        return node

    def _comprehension(self, node: ast.AST) -> ast.AST:
        before = self.loops
        waits = any(g.is_async for g in node.generators) or _waits(node)  # type: ignore[attr-defined]
        for generator in node.generators:  # type: ignore[attr-defined]
            iterable = self.visit(generator.iter)
            if not waits:
                number = self._looped()
                iterable = self._items(number, iterable)
                self.loops = (*self.loops, number)
            generator.iter = iterable
            generator.target = self.visit(generator.target)
            generator.ifs = [self.visit(test) for test in generator.ifs]
        for part in ("key", "value", "elt"):
            if hasattr(node, part):
                setattr(node, part, self.visit(getattr(node, part)))
        self.loops = before
        if isinstance(node, ast.SetComp) and self.own_sets and not waits:
            return ast.copy_location(_call("own_set", node), node)
        return node

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension  # noqa: N815
