"""Other ways to ask which rank this is, and to act on the answer."""

from __future__ import annotations

import ast
from collections.abc import Callable

from metamorphic.subject import (
    FUNCTIONS,
    Fresh,
    after_imports,
    assign,
    dotted,
    each_body,
    each_statement,
    expression,
    is_future,
    leaves,
    load,
    local_names,
    of_tree,
    own_jumps,
    replaced,
    statements,
)

_RANKS = ("get_rank", "get_world_size", "get_local_rank")
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
}
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def is_rank_call(node: ast.AST) -> bool:
    """``dist.get_rank()`` and its like, without arguments."""
    if not isinstance(node, ast.Call) or node.args or node.keywords:
        return False
    return dotted(node.func).rpartition(".")[2] in _RANKS


def opposite(test: ast.expr) -> ast.expr:
    """The test that holds where this one does not."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return ast.Compare(test.left, [_OPPOSITE[type(test.ops[0])]()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


def _each_if(tree: ast.Module, change: Callable[[ast.If], list[ast.stmt] | None]) -> bool:
    def of_statement(statement: ast.stmt) -> list[ast.stmt] | None:
        if not isinstance(statement, ast.If) or ast.unparse(statement.test).startswith("__name__"):
            return None
        return change(statement)

    return each_statement(tree, of_statement)


def each_test(tree: ast.Module, change: Callable[[ast.expr], ast.expr | None]) -> bool:
    """Replaces comparisons wherever they stand."""
    return replaced(tree, lambda n: change(n) if isinstance(n, ast.Compare) and len(n.ops) == 1 else None)


@of_tree("test-in-variable")
def test_in_variable(tree: ast.Module) -> bool:
    fresh = Fresh(tree)

    def change(node: ast.If) -> list[ast.stmt] | None:
        if isinstance(node.test, (ast.Name, ast.Constant, ast.NamedExpr)):
            return None
        name = fresh("chosen")
        before, node.test = assign(name, node.test), load(name)
        return [before, node]

    return _each_if(tree, change)


@of_tree("test-by-walrus")
def test_by_walrus(tree: ast.Module) -> bool:
    fresh = Fresh(tree)

    def change(node: ast.If) -> list[ast.stmt] | None:
        node.test = ast.NamedExpr(ast.Name(fresh("chosen"), ast.Store()), node.test)
        return [node]

    return _each_if(tree, change)


@of_tree("test-by-conditional-expression")
def test_by_conditional(tree: ast.Module) -> bool:
    fresh = Fresh(tree)

    def change(node: ast.If) -> list[ast.stmt] | None:
        name = fresh("chosen")
        value = ast.IfExp(node.test, ast.Constant(True), ast.Constant(False))
        node.test = load(name)
        return [assign(name, value), node]

    return _each_if(tree, change)


@of_tree("test-sets-a-flag")
def test_sets_flag(tree: ast.Module) -> bool:
    fresh = Fresh(tree)

    def change(node: ast.If) -> list[ast.stmt] | None:
        name = fresh("chosen")
        setter = ast.If(node.test, [assign(name, ast.Constant(True))], [])
        node.test = load(name)
        return [assign(name, ast.Constant(False)), setter, node]

    return _each_if(tree, change)


@of_tree("test-in-function")
def test_in_function(tree: ast.Module) -> bool:
    """The test becomes a function of what it reads."""
    fresh = Fresh(tree)
    helpers: list[ast.stmt] = []
    own = set(local_names(tree.body, ast.Store)) | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    own |= {n.name for n in ast.walk(tree) if isinstance(n, (*FUNCTIONS, ast.ClassDef))}

    def change(node: ast.If) -> list[ast.stmt] | None:
        if any(isinstance(n, (ast.NamedExpr, ast.Await, ast.Lambda, ast.comprehension)) for n in ast.walk(node.test)):
            return None
        name = fresh("is_chosen")
        given = [n for n in local_names([node.test], ast.Load) if n in own]
        (helper,) = statements(f"def {name}({', '.join(given)}):\n    return {ast.unparse(node.test)}\n")
        helpers.append(helper)
        node.test = expression(f"{name}({', '.join(given)})")
        return [node]

    done = _each_if(tree, change)
    after_imports(tree, helpers)
    return done


@of_tree("constant-first")
def constant_first(tree: ast.Module) -> bool:
    def change(test: ast.expr) -> ast.expr | None:
        assert isinstance(test, ast.Compare)
        turned = _TURNED.get(type(test.ops[0]))
        if turned is None or not isinstance(test.comparators[0], (ast.Constant, ast.UnaryOp)):
            return None
        return ast.Compare(test.comparators[0], [turned()], [test.left])

    return each_test(tree, change)


@of_tree("test-turned")
def test_turned(tree: ast.Module) -> bool:
    """The arms change places."""

    def change(node: ast.If) -> list[ast.stmt] | None:
        node.test, node.body, node.orelse = opposite(node.test), node.orelse or [ast.Pass()], node.body
        return [node]

    return _each_if(tree, change)


@of_tree("test-compared-with-true")
def test_is_true(tree: ast.Module) -> bool:
    def change(node: ast.If) -> list[ast.stmt] | None:
        if not isinstance(node.test, ast.Compare):
            return None
        node.test = ast.Compare(node.test, [ast.Is()], [ast.Constant(True)])
        return [node]

    return _each_if(tree, change)


@of_tree("test-nested")
def test_nested(tree: ast.Module) -> bool:
    """``a and b`` as two tests; any other test stands behind one that always holds."""

    def change(node: ast.If) -> list[ast.stmt] | None:
        if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) and not node.orelse:
            *first, last = node.test.values
            outer = first[0] if len(first) == 1 else ast.BoolOp(ast.And(), first)
            return [ast.If(outer, [ast.If(last, node.body, [])], [])]
        return None

    return _each_if(tree, change)


@of_tree("test-in-elif")
def test_in_elif(tree: ast.Module) -> bool:
    def change(node: ast.If) -> list[ast.stmt] | None:
        return [ast.If(expression("sys.version_info < (3, 8)"), statements("print('old Python')"), [node])]

    if not _each_if(tree, change):
        return False
    tree.body.insert(sum(1 for s in tree.body[:1] if is_future(s)), statements("import sys")[0])
    return True


@of_tree("test-matched")
def test_matched(tree: ast.Module) -> bool:
    def change(node: ast.If) -> list[ast.stmt] | None:
        test = node.test
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
            return None
        value = test.comparators[0]
        if not isinstance(value, ast.Constant) or value.value is None or isinstance(value.value, bool):
            return None
        arms = [node.body, node.orelse or [ast.Pass()]]
        if isinstance(test.ops[0], ast.NotEq):
            arms.reverse()
        cases = [ast.match_case(ast.MatchValue(value), None, arms[0]), ast.match_case(ast.MatchAs(), None, arms[1])]
        return [ast.Match(test.left, cases)]

    return _each_if(tree, change)


@of_tree("early-return")
def early_return(tree: ast.Module) -> bool:
    """The last ``if`` of a function, or of a loop, leaves instead."""

    def change(body: list[ast.stmt], owner: ast.AST) -> list[ast.stmt] | None:
        last = body[-1]
        is_loop = isinstance(owner, (ast.For, ast.While)) and body is owner.body
        if not (isinstance(owner, FUNCTIONS) or is_loop) or not isinstance(last, ast.If) or last.orelse:
            return None
        leave: ast.stmt = ast.Continue() if is_loop else ast.Return(None)
        return [*body[:-1], ast.If(opposite(last.test), [leave], []), *last.body]

    return each_body(tree, change)


@of_tree("early-return-undone")
def early_return_undone(tree: ast.Module) -> bool:
    def change(body: list[ast.stmt], owner: ast.AST) -> list[ast.stmt] | None:
        is_loop = isinstance(owner, (ast.For, ast.While)) and body is owner.body
        if not (isinstance(owner, FUNCTIONS) or is_loop):
            return None
        for at, node in enumerate(body[:-1]):
            if isinstance(node, ast.If) and not node.orelse and len(node.body) == 1:
                (only,) = node.body
                plain = isinstance(only, ast.Return) and only.value is None
                if (plain and not is_loop) or isinstance(only, ast.Continue):
                    return [*body[:at], ast.If(opposite(node.test), body[at + 1 :], [])]
                if isinstance(only, ast.Return) and not is_loop:
                    return [*body[:at], ast.If(node.test, node.body, body[at + 1 :])]
        return None

    return each_body(tree, change)


@of_tree("call-by-conditional-expression")
def call_by_conditional(tree: ast.Module) -> bool:
    def change(node: ast.If) -> list[ast.stmt] | None:
        if len(node.body) != 1 or node.orelse or not isinstance(node.body[0], ast.Expr):
            return None
        return [ast.Expr(ast.IfExp(node.test, node.body[0].value, ast.Constant(None)))]

    return _each_if(tree, change)


@of_tree("call-by-and")
def call_by_and(tree: ast.Module) -> bool:
    def change(node: ast.If) -> list[ast.stmt] | None:
        if len(node.body) != 1 or node.orelse or not isinstance(node.body[0], ast.Expr):
            return None
        return [ast.Expr(ast.BoolOp(ast.And(), [node.test, node.body[0].value]))]

    return _each_if(tree, change)


@of_tree("arm-in-function")
def arm_in_function(tree: ast.Module) -> bool:
    """What stands behind a test becomes a function of what it reads, when nothing of it is needed later."""
    fresh = Fresh(tree)
    helpers: list[ast.stmt] = []
    own = set(local_names(tree.body, ast.Store)) | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    defined = {n.name for n in tree.body if isinstance(n, (*FUNCTIONS, ast.ClassDef))}

    def change(node: ast.If) -> list[ast.stmt] | None:
        stored = set(local_names(node.body, ast.Store))
        if (
            own_jumps(node.body)
            or leaves(node.body)
            or stored
            or any(isinstance(n, ast.NamedExpr) for s in node.body for n in ast.walk(s))
        ):
            return None
        if all(isinstance(s, ast.Pass) for s in node.body):
            return None
        name = fresh("do_it")
        given = [n for n in local_names(node.body, ast.Load) if n in own and n not in defined]
        (helper,) = statements(f"def {name}({', '.join(given)}):\n    pass\n")
        assert isinstance(helper, ast.FunctionDef)
        helper.body = node.body
        helpers.append(helper)
        node.body = statements(f"{name}({', '.join(given)})")
        return [node]

    done = _each_if(tree, change)
    after_imports(tree, helpers)
    return done


@of_tree("arm-in-decorated-function")
def arm_in_decorated_function(tree: ast.Module) -> bool:
    """``if dist.get_rank() == 0: f(x)`` as a function that only the main rank runs."""
    fresh = Fresh(tree)
    new: list[ast.stmt] = []
    own = set(local_names(tree.body, ast.Store)) | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    defined = {n.name for n in tree.body if isinstance(n, (*FUNCTIONS, ast.ClassDef))}

    def change(node: ast.If) -> list[ast.stmt] | None:
        is_rank = isinstance(node.test, ast.Compare) and is_rank_call(node.test.left)
        if not is_rank or node.orelse or own_jumps(node.body) or leaves(node.body) or local_names(node.body, ast.Store):
            return None
        guard, name = fresh("on_some"), fresh("do_it")
        given = [n for n in local_names(node.body, ast.Load) if n in own and n not in defined]
        new.extend(
            statements(
                f"def {guard}(function):\n    def wrapper(*args, **kwargs):\n        if {ast.unparse(node.test)}:\n"
                f"            return function(*args, **kwargs)\n        return None\n    return wrapper\n"
                f"@{guard}\ndef {name}({', '.join(given)}):\n    pass\n"
            )
        )
        assert isinstance(new[-1], ast.FunctionDef)
        new[-1].body = node.body
        return statements(f"{name}({', '.join(given)})")

    done = _each_if(tree, change)
    after_imports(tree, new)
    return done
