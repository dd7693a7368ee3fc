"""The same statements inside blocks and other loops."""

from __future__ import annotations

import ast
import builtins

from metamorphic.subject import (
    FUNCTIONS,
    Fresh,
    assign,
    dotted,
    each_body,
    each_statement,
    expression,
    is_future,
    is_text,
    leaves,
    load,
    of_tree,
    own_jumps,
    statements,
)


def _blocked(tree: ast.Module, text: str, needs_calm: bool = False) -> bool:
    """Each function body, and each statement of the module that does something, in a block."""

    def wrap(body: list[ast.stmt]) -> list[ast.stmt]:
        (block,) = ast.parse(text).body
        block.body = body  # type: ignore[attr-defined]
        return [block]

    def change(body: list[ast.stmt], owner: ast.AST) -> list[ast.stmt] | None:
        if isinstance(owner, FUNCTIONS):
            first = 1 if is_text(body[0]) else 0
            rest = body[first:]
            if not rest or (needs_calm and own_jumps(rest)):
                return None
            return [*body[:first], *wrap(rest)]
        if isinstance(owner, ast.Module):
            does = (ast.Expr, ast.If, ast.For, ast.With, ast.Assign)
            new = [s if not isinstance(s, does) or is_text(s) else wrap([s])[0] for s in body]
            return new if new != body else None
        return None

    return each_body(tree, change)


@of_tree("block-with")
def block_with(tree: ast.Module) -> bool:
    done = _blocked(tree, "with contextlib.nullcontext():\n    pass")
    tree.body.insert(sum(1 for s in tree.body[:1] if is_future(s)), statements("import contextlib")[0])
    return done


@of_tree("block-try-finally")
def block_try_finally(tree: ast.Module) -> bool:
    return _blocked(tree, "try:\n    pass\nfinally:\n    print('done')")


@of_tree("block-try-reraise")
def block_try_reraise(tree: ast.Module) -> bool:
    return _blocked(tree, "try:\n    pass\nexcept Exception:\n    print('failed')\n    raise")


@of_tree("block-while-true")
def block_while_true(tree: ast.Module) -> bool:
    """``while True: ...; break`` around statements of functions that jump nowhere."""

    def change(statement: ast.stmt) -> list[ast.stmt] | None:
        if not isinstance(statement, (ast.If, ast.With)) or own_jumps([statement]):
            return None
        return [ast.While(ast.Constant(True), [statement, ast.Break()], [])]

    return each_statement(tree, change)


@of_tree("block-for-once")
def block_for_once(tree: ast.Module) -> bool:
    def change(statement: ast.stmt) -> list[ast.stmt] | None:
        if not isinstance(statement, (ast.If, ast.With)) or own_jumps([statement]) or leaves([statement]):
            return None
        return [ast.For(ast.Name("_once", ast.Store()), expression("range(1)"), [statement], [])]

    return each_statement(tree, change)


@of_tree("block-if-else-pass")
def block_else_pass(tree: ast.Module) -> bool:
    def change(statement: ast.stmt) -> list[ast.stmt] | None:
        if not isinstance(statement, ast.If) or statement.orelse:
            return None
        statement.orelse = [ast.Pass()]
        return [statement]

    return each_statement(tree, change)


@of_tree("function-decorated")
def function_decorated(tree: ast.Module) -> bool:
    """A decorator that only logs, as projects have them."""
    fresh = Fresh(tree)
    name = fresh("logged")
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and not n.decorator_list]
    for function in functions:
        function.decorator_list = [load(name)]
    last = max((n for n, s in enumerate(tree.body) if isinstance(s, (ast.Import, ast.ImportFrom))), default=-1)
    tree.body[last + 1 : last + 1] = statements(
        f"import functools\ndef {name}(function):\n    @functools.wraps(function)\n    def wrapper(*args, **kwargs):\n"
        f"        print('enter')\n        return function(*args, **kwargs)\n    return wrapper\n"
    )
    return bool(functions)


# ---- loops -----------------------------------------------------------------------------------------------------


def _is_loader(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and dotted(node) not in dir(builtins)


@of_tree("loop-with-progress-bar")
def loop_with_progress_bar(tree: ast.Module) -> bool:
    done = False
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and _is_loader(node.iter):
            node.iter = ast.Call(load("tqdm"), [node.iter], [])
            done = True
    if done:
        tree.body.insert(sum(1 for s in tree.body[:1] if is_future(s)), statements("from tqdm import tqdm")[0])
    return done


@of_tree("loop-enumerated")
def loop_enumerated(tree: ast.Module) -> bool:
    fresh = Fresh(tree)
    done = False
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and _is_loader(node.iter):
            node.iter = ast.Call(load("enumerate"), [node.iter], [])
            node.target = ast.Tuple([ast.Name(fresh("count"), ast.Store()), node.target], ast.Store())
            done = True
    return done


@of_tree("loop-by-next")
def loop_by_next(tree: ast.Module) -> bool:
    """An iterator, asked until it ends."""
    fresh = Fresh(tree)

    def change(statement: ast.stmt) -> list[ast.stmt] | None:
        if not isinstance(statement, ast.For) or statement.orelse or not _is_loader(statement.iter):
            return None
        name = fresh("source")
        (asked,) = statements(f"try:\n    x = next({name})\nexcept StopIteration:\n    break")
        assert isinstance(asked, ast.Try)
        asked.body = [ast.Assign([statement.target], expression(f"next({name})"))]
        before = assign(name, ast.Call(load("iter"), [statement.iter], []))
        return [before, ast.While(ast.Constant(True), [asked, *statement.body], [])]

    return each_statement(tree, change)


@of_tree("loop-in-epochs")
def loop_in_epochs(tree: ast.Module) -> bool:
    """A loop over a loader, one epoch long."""
    fresh = Fresh(tree)

    def change(statement: ast.stmt) -> list[ast.stmt] | None:
        if not isinstance(statement, ast.For) or not _is_loader(statement.iter) or leaves([statement]):
            return None
        return [ast.For(ast.Name(fresh("epoch"), ast.Store()), expression("range(1)"), [statement], [])]

    return each_statement(tree, change)
