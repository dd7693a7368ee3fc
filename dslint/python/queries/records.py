"""The best value so far that a loop keeps: what is compared with it, what that decides, and where it is kept.

A record is found by what code does with it, whatever it is called: a new value is compared with it, and takes its place
where it is better. It is a variable, a field, an item, an object that holds the number, or a field of such an object.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python.program import Program
from dslint.python.queries.bound import parameters, plain, stored, stores
from dslint.python.queries.decided import sides_of, test_of
from dslint.python.queries.reach import classes, functions, methods
from dslint.python.source import Module

ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_FLAG = re.compile(r"(?i)best|better|improv")
_BEST = frozenset({"max", "min", "maximum", "minimum", "fmax", "fmin"})
_CLOCK = re.compile(r"\b(?:time|perf_counter|monotonic|now)\(\)")
_COUNT = re.compile(r"(?i)(?:^|[._])(?:step|steps|iter|iters|iteration|epoch|time|now|count)$")
_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Record:
    """A record: `kept` is what holds it, `asks` the comparison, and `sides` is the code that a better value comes to.

    `flags` are the names of what the comparison gives. `inside` are the fields of the class of `kept` that hold the
    number, each with its class, where `kept` is an object that compares by itself.
    """

    module: Module
    kept: ast.expr
    asks: ast.expr
    sides: tuple[ast.AST, ...]
    flags: frozenset[str] = frozenset()
    inside: tuple[tuple[Module, ast.ClassDef, str], ...] = ()

    @property
    def name(self) -> str:
        """Return the code of what holds the record."""
        return ast.unparse(self.kept)


def records(program: Program, module: Module) -> Iterator[Record]:
    """Yield the records that a module keeps."""
    yield from module.once(_compared)
    for call, kept in module.once(_asked).items():
        found = kept if kept and _orders(program, module, call) else ()
        yield from found
        if not found and isinstance(call.func, ast.Attribute):
            yield from _of_holder(program, module, call, call.func)


def _compared(module: Module) -> list[Record]:
    """Return the records that comparisons of a module ask for."""
    compares = [n for n in module.nodes_of(ast.Compare) if len(n.ops) == 1 and isinstance(n.ops[0], ORDERS)]
    return [record for compare in compares for record in _of(module, compare, _pairs(compare))]


def _asked(module: Module) -> dict[ast.Call, list[Record]]:
    """Return the calls that tests ask, each with the records that it compares if its function compares at all."""
    return {call: list(_of(module, call, _parts(call))) for call in _asked_calls(module)}


def _pairs(compare: ast.Compare) -> tuple[tuple[ast.expr, ast.expr], ...]:
    """Return what is compared with what, also below a sign or a margin: `new * sign > best * sign + margin`."""
    sides = []
    for side in (compare.left, compare.comparators[0]):
        parts = [n for n in ast.walk(side) if isinstance(n, ast.BinOp | ast.UnaryOp)]
        inner = [p for n in parts for p in ast.iter_child_nodes(n) if isinstance(p, ast.Name | ast.Attribute)]
        sides.append([side, *(inner if isinstance(side, ast.BinOp | ast.UnaryOp) else [])])
    left, right = sides
    return tuple(pair for one in left for other in right for pair in ((one, other), (other, one)))


def _parts(call: ast.Call) -> tuple[tuple[ast.expr, ast.expr], ...]:
    """Return what a function may compare with what: `is_better(new, best)`, `new.better_than(best)`."""
    parts = [*call.args, *(keyword.value for keyword in call.keywords)]
    parts += [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return tuple((one, other) for one in parts for other in parts if one is not other)


def _by_call(program: Program, module: Module, call: ast.Call) -> list[Record]:
    """Return the records that a function of the project compares."""
    found = list(_of(module, call, _parts(call)))
    return found if found and _orders(program, module, call) else []


def _asked_calls(module: Module) -> Iterator[ast.Call]:
    """Yield the calls in tests, and those that give what a test asks, or what is called a flag of the best."""
    tests = [test for node in module.nodes_of(ast.If, ast.Expr) if (test := test_of(node)) is not None]
    parts = [part for test in tests for part in ast.walk(test)]
    names = {ast.unparse(part) for part in parts if isinstance(part, ast.Name | ast.Attribute)}
    yield from (part for part in parts if isinstance(part, ast.Call))
    for node in module.nodes_of(ast.Assign, ast.AnnAssign):
        value: ast.expr | None = getattr(node, "value", None)
        flags = {ast.unparse(target) for target, _ in stores(node)} if isinstance(value, ast.Call) else set()
        if isinstance(value, ast.Call) and (flags & names or any(map(_FLAG.search, flags))):
            yield value


def _of(module: Module, asks: ast.expr, pairs: tuple[tuple[ast.expr, ast.expr], ...]) -> Iterator[Record]:
    """Yield the records among pairs of what may be one and the value that is compared with it."""
    scope = module.function(asks) or module.tree
    bound = stored(module, scope) if pairs else {}
    found = [
        (holder, value)
        for kept, new in pairs
        if isinstance(kept, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(new, ast.Constant)
        for holder, value in _owners(kept, new)
        if bound.get(ast.unparse(holder)) or ast.unparse(holder) in parameters(scope)
    ]
    sides, flags = sides_of(module, asks) if found else ([], frozenset[str]())
    for holder, value in found:
        taken = [side for side in sides if _takes(side, holder, value)]
        if (taken or _folds(bound, holder, value)) and not _counts(bound, scope, value):
            yield Record(module, holder, asks, tuple(taken or sides), flags)


def _owners(kept: ast.expr, new: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield two values, and the objects whose fields of one name they are."""
    yield kept, new
    while isinstance(kept, ast.Attribute) and isinstance(new, ast.Attribute) and kept.attr == new.attr:
        kept, new = kept.value, new.value
        if isinstance(kept, ast.Name | ast.Attribute) and getattr(kept, "id", "") != "self":
            yield kept, new


def _takes(side: ast.AST, kept: ast.expr, new: ast.expr) -> bool:
    """Return whether code puts a value in the place of another, or hands it back for that."""
    name, wanted = ast.unparse(kept), ast.unparse(new)
    if any(isinstance(n, ast.Return) and n.value is not None and plain(n.value) == wanted for n in ast.walk(side)):
        return isinstance(kept, ast.Name)
    found = (pair for node in ast.walk(side) for pair in stores(node))
    return any(ast.unparse(t) == name and v is not None and plain(v) == wanted for t, v in found)


def _folds(bound: dict[str, list[ast.expr]], kept: ast.expr, new: ast.expr) -> bool:
    """Return whether code keeps the better one of two values: `best = max(best, new)`, `new if better else best`."""
    pair = {ast.unparse(kept), ast.unparse(new)}
    for value in bound.get(ast.unparse(kept), []):
        if isinstance(value, ast.IfExp) and {plain(value.body), plain(value.orelse)} == pair:
            return True
        if isinstance(value, ast.Call) and len(value.args) == 2 and {plain(arg) for arg in value.args} == pair:
            function = value.func
            return (function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")) in _BEST
    return False


def _counts(bound: dict[str, list[ast.expr]], scope: ast.AST, value: ast.expr) -> bool:
    """Return whether a value is the number of a turn or the time: its largest one is no best one."""
    name = plain(value)
    if any(_CLOCK.search(ast.unparse(one)) for one in (value, *bound.get(name, ()))) or _COUNT.search(name):
        return True
    for node in ast.walk(scope):
        target = getattr(node, "target", None)
        if isinstance(node, ast.For | ast.AsyncFor | ast.AugAssign) and isinstance(target, ast.expr):
            count = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
            if ast.unparse(count) == name and _is_count(node):
                return True
    return False


def _is_count(node: ast.AST) -> bool:
    """Return whether a loop counts its turns in its target, or a statement adds to a number by one."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.value, ast.Constant)
    text = ast.unparse(getattr(node, "iter", node))
    return "range(" in text or "enumerate(" in text


def _orders(program: Program, module: Module, call: ast.Call) -> bool:
    """Return whether a function that a call may mean compares what is more and what is less."""
    found = [piece for _, piece in functions(program, module, call)]
    method = getattr(call.func, "attr", "")
    for other in call.args if method else ():  # of the other one of two objects
        for home, cls in classes(program, module, other):
            found += [piece for _, piece in methods(program, home, cls, method)]
    return any(
        isinstance(node, ast.Compare) and any(isinstance(op, ORDERS) for op in node.ops)
        for piece in found
        for node in ast.walk(piece)
    )


def _of_holder(program: Program, module: Module, call: ast.Call, function: ast.Attribute) -> Iterator[Record]:
    """Yield the record in an object whose method compares with it, where a test asks the method."""
    is_named = isinstance(function.value, ast.Name | ast.Attribute)
    fields = list(_fields(program, module, call)) if is_named else []
    sides, flags = sides_of(module, call) if fields else ([], frozenset[str]())
    if sides or flags:
        yield Record(module, function.value, call, tuple(sides[:1]), flags, tuple(fields))


def _fields(
    program: Program, module: Module, call: ast.Call, depth: int = 0
) -> Iterator[tuple[Module, ast.ClassDef, str]]:
    """Yield the fields in which a method that a call may mean keeps a record, also in objects that its object holds."""
    assert isinstance(call.func, ast.Attribute)
    for owner, cls in classes(program, module, call.func.value):
        for home, method in methods(program, owner, cls, call.func.attr):
            for node in (n for n in ast.walk(method) if isinstance(n, ast.Compare | ast.Call)):
                found: list[Record] = []
                if isinstance(node, ast.Compare) and len(node.ops) == 1:
                    found = list(_of(home, node, _pairs(node)))
                elif isinstance(node, ast.Call):
                    found = _by_call(program, home, node)
                    own = ast.unparse(node.func)
                    if not found and own.startswith("self.") and own.count(".") > 1 and depth < _DEPTH:
                        yield from _fields(program, home, node, depth + 1)
                for record in found:
                    if record.name.startswith("self."):
                        yield owner, cls, record.name.removeprefix("self.")
