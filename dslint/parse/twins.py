"""The same node in both trees of a script: LibCST's, which visitors see, and the standard library's, which is read.

Both trees are walked side by side; what one of them writes in another way has no twin.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import libcst as cst

Pair = tuple[Any, Any]
_NOTHING = (type(None), str, bool, int, cst.MaybeSentinel)


class Twins:
    """The nodes of a module by the node of the other tree."""

    def __init__(self, module: cst.Module, tree: ast.Module) -> None:
        self._plain: dict[int, ast.AST] = {}
        self._concrete: dict[int, cst.CSTNode] = {}
        pending: list[Pair] = [(module, tree)]
        while pending:
            node, other = pending.pop()
            if isinstance(node, _NOTHING) or other is None:
                continue
            self._plain[id(node)] = other
            self._concrete.setdefault(id(other), node)
            of_node, of_other = _CONCRETE.get(type(node)), _PLAIN.get(type(other))
            if of_node is not None and of_other is not None:
                pending += _paired(list(of_node(node)), list(of_other(other)))

    def plain(self, node: cst.CSTNode) -> ast.AST | None:
        """The node of the standard library's tree."""
        return self._plain.get(id(node))

    def concrete(self, node: ast.AST) -> cst.CSTNode | None:
        """The node of LibCST's tree."""
        return self._concrete.get(id(node))


def _paired(ours: list[Any], others: list[Any]) -> Iterator[Pair]:
    """Children side by side; a list beside a list is a block of its own."""
    if len(ours) != len(others):
        return
    for one, other in zip(ours, others, strict=True):
        if isinstance(one, list) and isinstance(other, list):
            yield from _paired(one, other)
        elif not isinstance(one, list) and not isinstance(other, list):
            yield one, other


# -- LibCST -------------------------------------------------------------------------------------------------------


def _block(node: Any) -> list[Any]:
    """The statements of a body, those of one line one by one."""
    found: list[Any] = []
    for statement in getattr(node, "body", ()) if node is not None else ():
        lines = isinstance(statement, cst.SimpleStatementLine)
        found += statement.body if lines else [statement]
    return found


def _arguments(arguments: Iterable[cst.Arg]) -> list[Any]:
    """What is passed by position, and what by name."""
    given = list(arguments)
    named = [a for a in given if a.keyword is not None or a.star == "**"]
    return [[a.value for a in given if a not in named], [a.value for a in named]]


def _parameters(node: cst.Parameters) -> list[Any]:
    by_place = [*node.posonly_params, *node.params]
    stars = [p if isinstance(p, cst.Param) else None for p in (node.star_arg, node.star_kwarg)]
    every = [*by_place, *node.kwonly_params, *stars]
    return [
        every,
        [_annotation(p) for p in every],
        [p.default for p in by_place if p.default is not None],
        [p.default for p in node.kwonly_params],
    ]


def _annotation(node: Any) -> Any:
    found = getattr(node, "annotation", None)
    return found.annotation if found is not None else None


def _elements(node: Any) -> list[Any]:
    return [element.value for element in node.elements]


def _anded(node: cst.BooleanOperation) -> list[Any]:
    """`a and b and c` is one operation of three."""
    found: list[Any] = [node.right]
    left = node.left
    while isinstance(left, cst.BooleanOperation) and not left.lpar and type(left.operator) is type(node.operator):
        found.append(left.right)
        left = left.left
    return [left, *reversed(found)]


def _loops(node: Any) -> Iterator[Any]:
    found = node.for_in
    while found is not None:
        yield [found.target, found.iter, [test.test for test in found.ifs]]
        found = found.inner_for_in


def _indices(node: cst.Subscript) -> Iterator[Any]:
    for element in node.slice:
        index = element.slice
        yield index.value if isinstance(index, cst.Index) else index


def _inserted(node: Any) -> Iterator[Any]:
    """The expressions in formatted text."""
    if isinstance(node, cst.ConcatenatedString):
        yield from _inserted(node.left)
        yield from _inserted(node.right)
    for part in getattr(node, "parts", ()):
        if isinstance(part, cst.FormattedStringExpression):
            yield part.expression
            yield from (e for spec in part.format_spec or () for e in _inserted_in(spec))


def _inserted_in(part: Any) -> Iterator[Any]:
    if isinstance(part, cst.FormattedStringExpression):
        yield part.expression


def _orelse(node: Any) -> list[Any]:
    found = node.orelse
    return [found] if isinstance(found, cst.If) else _block(found.body) if found is not None else []


def _final(node: cst.Try) -> list[Any]:
    return _block(node.finalbody.body) if node.finalbody is not None else []


def _items(node: cst.Dict) -> Iterator[Any]:
    for element in node.elements:
        yield getattr(element, "key", None)
        yield element.value


_CONCRETE: dict[type[cst.CSTNode], Callable[[Any], Iterable[Any]]] = {
    cst.Module: lambda n: [_block(n)],
    cst.FunctionDef: lambda n: [
        [d.decorator for d in n.decorators],
        n.params,
        n.returns.annotation if n.returns else None,
        _block(n.body),
    ],
    cst.Parameters: _parameters,
    cst.ClassDef: lambda n: [[d.decorator for d in n.decorators], *_arguments((*n.bases, *n.keywords)), _block(n.body)],
    cst.If: lambda n: [n.test, _block(n.body), _orelse(n)],
    cst.While: lambda n: [n.test, _block(n.body), _orelse(n)],
    cst.For: lambda n: [n.target, n.iter, _block(n.body), _orelse(n)],
    cst.With: lambda n: [
        [i.item for i in n.items],
        [i.asname.name if i.asname else None for i in n.items],
        _block(n.body),
    ],
    cst.Try: lambda n: [
        _block(n.body),
        list(n.handlers),
        _orelse(n),
        _final(n),
    ],
    cst.ExceptHandler: lambda n: [n.type, _block(n.body)],
    cst.Match: lambda n: [n.subject, [c.guard for c in n.cases], [_block(c.body) for c in n.cases]],
    cst.Expr: lambda n: [n.value],
    cst.Assign: lambda n: [[t.target for t in n.targets], n.value],
    cst.AnnAssign: lambda n: [n.target, _annotation(n), n.value],
    cst.AugAssign: lambda n: [n.target, n.value],
    cst.Return: lambda n: [n.value],
    cst.Raise: lambda n: [n.exc, n.cause.item if n.cause else None],
    cst.Assert: lambda n: [n.test, n.msg],
    cst.Del: lambda n: _elements(n.target) if isinstance(n.target, cst.Tuple) and not n.target.lpar else [n.target],
    cst.Call: lambda n: [n.func, *_arguments(n.args)],
    cst.Attribute: lambda n: [n.value],
    cst.Subscript: lambda n: [n.value, list(_indices(n))],
    cst.Slice: lambda n: [n.lower, n.upper, n.step],
    cst.BinaryOperation: lambda n: [n.left, n.right],
    cst.BooleanOperation: _anded,
    cst.Comparison: lambda n: [n.left, *(c.comparator for c in n.comparisons)],
    cst.UnaryOperation: lambda n: [n.expression],
    cst.IfExp: lambda n: [n.test, n.body, n.orelse],
    cst.Lambda: lambda n: [n.params, n.body],
    cst.Tuple: _elements,
    cst.List: _elements,
    cst.Set: _elements,
    cst.Dict: _items,
    cst.ListComp: lambda n: [n.elt, list(_loops(n))],
    cst.SetComp: lambda n: [n.elt, list(_loops(n))],
    cst.GeneratorExp: lambda n: [n.elt, list(_loops(n))],
    cst.DictComp: lambda n: [n.key, n.value, list(_loops(n))],
    cst.Await: lambda n: [n.expression],
    cst.Yield: lambda n: [n.value.item if isinstance(n.value, cst.From) else n.value],
    cst.NamedExpr: lambda n: [n.target, n.value],
    cst.FormattedString: _inserted,
    cst.ConcatenatedString: _inserted,
}


# -- the standard library -----------------------------------------------------------------------------------------


def _unstarred(nodes: Sequence[ast.expr]) -> list[Any]:
    return [n.value if isinstance(n, ast.Starred) else n for n in nodes]


def _plain_parameters(node: ast.arguments) -> list[Any]:
    every: list[Any] = [*node.posonlyargs, *node.args, *node.kwonlyargs, node.vararg, node.kwarg]
    return [every, [p.annotation if p is not None else None for p in every], node.defaults, node.kw_defaults]


def _plain_loops(node: Any) -> list[Any]:
    return [[g.target, g.iter, g.ifs] for g in node.generators]


def _plain_inserted(node: ast.JoinedStr) -> Iterator[Any]:
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            yield part.value
            if isinstance(part.format_spec, ast.JoinedStr):
                yield from _plain_inserted(part.format_spec)


def _index(node: ast.Subscript) -> list[Any]:
    """The indices; a tuple with parentheses begins before its first element, and is one index."""
    whole = node.slice
    if not isinstance(whole, ast.Tuple) or not whole.elts:
        return [whole]
    first = whole.elts[0]
    is_one = (whole.lineno, whole.col_offset) != (first.lineno, first.col_offset)
    return [whole] if is_one else _unstarred(whole.elts)


def _function(node: Any) -> list[Any]:
    return [node.decorator_list, node.args, node.returns, node.body]


_PLAIN: dict[type[ast.AST], Callable[[Any], Iterable[Any]]] = {
    ast.Module: lambda n: [n.body],
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.arguments: _plain_parameters,
    ast.ClassDef: lambda n: [n.decorator_list, _unstarred(n.bases), [k.value for k in n.keywords], n.body],
    ast.If: lambda n: [n.test, n.body, n.orelse],
    ast.While: lambda n: [n.test, n.body, n.orelse],
    ast.For: lambda n: [n.target, n.iter, n.body, n.orelse],
    ast.AsyncFor: lambda n: [n.target, n.iter, n.body, n.orelse],
    ast.With: lambda n: [[i.context_expr for i in n.items], [i.optional_vars for i in n.items], n.body],
    ast.AsyncWith: lambda n: [[i.context_expr for i in n.items], [i.optional_vars for i in n.items], n.body],
    ast.Try: lambda n: [n.body, n.handlers, n.orelse, n.finalbody],
    ast.ExceptHandler: lambda n: [n.type, n.body],
    ast.Match: lambda n: [n.subject, [c.guard for c in n.cases], [c.body for c in n.cases]],
    ast.Expr: lambda n: [n.value],
    ast.Assign: lambda n: [n.targets, n.value],
    ast.AnnAssign: lambda n: [n.target, n.annotation, n.value],
    ast.AugAssign: lambda n: [n.target, n.value],
    ast.Return: lambda n: [n.value],
    ast.Raise: lambda n: [n.exc, n.cause],
    ast.Assert: lambda n: [n.test, n.msg],
    ast.Delete: lambda n: n.targets,
    ast.Call: lambda n: [n.func, _unstarred(n.args), [k.value for k in n.keywords]],
    ast.Attribute: lambda n: [n.value],
    ast.Subscript: lambda n: [n.value, _index(n)],
    ast.Slice: lambda n: [n.lower, n.upper, n.step],
    ast.BinOp: lambda n: [n.left, n.right],
    ast.BoolOp: lambda n: n.values,
    ast.Compare: lambda n: [n.left, *n.comparators],
    ast.UnaryOp: lambda n: [n.operand],
    ast.IfExp: lambda n: [n.test, n.body, n.orelse],
    ast.Lambda: lambda n: [n.args, n.body],
    ast.Tuple: lambda n: _unstarred(n.elts),
    ast.List: lambda n: _unstarred(n.elts),
    ast.Set: lambda n: _unstarred(n.elts),
    ast.Dict: lambda n: [part for pair in zip(n.keys, n.values, strict=True) for part in pair],
    ast.ListComp: lambda n: [n.elt, _plain_loops(n)],
    ast.SetComp: lambda n: [n.elt, _plain_loops(n)],
    ast.GeneratorExp: lambda n: [n.elt, _plain_loops(n)],
    ast.DictComp: lambda n: [n.key, n.value, _plain_loops(n)],
    ast.Await: lambda n: [n.value],
    ast.Yield: lambda n: [n.value],
    ast.YieldFrom: lambda n: [n.value],
    ast.NamedExpr: lambda n: [n.target, n.value],
    ast.JoinedStr: _plain_inserted,
}
