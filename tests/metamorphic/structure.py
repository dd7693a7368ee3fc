"""The same statements in other places: functions, methods, modules, blocks and loops."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath
from random import Random

from metamorphic.subject import (
    FUNCTIONS,
    Fresh,
    Subject,
    expression,
    is_future,
    is_text,
    load,
    local_names,
    of_project,
    of_tree,
    replaced,
    statements,
)

_DEFINING = (ast.Import, ast.ImportFrom, *FUNCTIONS, ast.ClassDef)


def _tail(tree: ast.Module) -> int:
    """Where the statements begin that are not imports, functions, classes, constants or docstrings."""
    for at, statement in enumerate(tree.body):
        is_constant = isinstance(statement, ast.Assign) and all(
            isinstance(t, ast.Name) and t.id.isupper() for t in statement.targets
        )
        if not isinstance(statement, _DEFINING) and not is_constant and not is_text(statement):
            return at
    return len(tree.body)


def _has_scope_words(tree: ast.Module) -> bool:
    return any(
        isinstance(n, (ast.Global, ast.Nonlocal)) or (isinstance(n, ast.ImportFrom) and n.names[0].name == "*")
        for n in ast.walk(tree)
    )


@of_tree("main-guard", keeps=False)
def main_guard(tree: ast.Module) -> bool:
    at = _tail(tree)
    if at == len(tree.body) or "__name__" in ast.unparse(tree):
        return False
    tree.body[at:] = [ast.If(expression('__name__ == "__main__"'), tree.body[at:], [])]
    return True


@of_tree("all-in-main-function", keeps=False)
def all_in_main(tree: ast.Module) -> bool:
    """What follows the imports becomes a function; a guard calls it."""
    last = max((n for n, s in enumerate(tree.body) if isinstance(s, (ast.Import, ast.ImportFrom))), default=-1)
    rest = tree.body[last + 1 :]
    if not rest or _has_scope_words(tree) or _tail(tree) == len(tree.body):
        return False
    name = Fresh(tree)("main")
    rest = [s.body if isinstance(s, ast.If) and "__name__" in ast.unparse(s.test) else [s] for s in rest]  # type: ignore[misc]
    (main, call) = statements(f"def {name}():\n    pass\nif __name__ == '__main__':\n    {name}()\n")
    assert isinstance(main, ast.FunctionDef)
    main.body = [s for part in rest for s in part]  # type: ignore[attr-defined]
    tree.body[last + 1 :] = [main, call]
    return True


@of_tree("tail-in-main-function", keeps=False)
def tail_in_main(tree: ast.Module) -> bool:
    """Only what a script does becomes a function, when nothing defined in it is read by its functions."""
    at = _tail(tree)
    tail = tree.body[at:]
    stored = set(local_names(tail, ast.Store)) | {n.name for n in tail if isinstance(n, (*FUNCTIONS, ast.ClassDef))}
    read = set(local_names(tree.body[:at], ast.Load))
    if not tail or stored & read or _has_scope_words(tree) or "__name__" in ast.unparse(tree):
        return False
    name = Fresh(tree)("main")
    (main, call) = statements(f"def {name}():\n    pass\nif __name__ == '__main__':\n    {name}()\n")
    assert isinstance(main, ast.FunctionDef)
    main.body = tail
    tree.body[at:] = [main, call]
    return True


def _plain_functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [s for s in tree.body if isinstance(s, ast.FunctionDef) and not s.decorator_list]


@of_tree("functions-as-methods", keeps=False)
def functions_as_methods(tree: ast.Module) -> bool:
    """The functions of a file become methods of one class; calls make an object of it."""
    functions = _plain_functions(tree)
    fresh = Fresh(tree)
    owner, me = fresh("Runner"), fresh("self")
    names = {f.name for f in functions}
    callees = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    escaping = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in names and id(n) not in callees}
    functions = [f for f in functions if f.name not in escaping]
    names -= escaping
    if not functions:
        return False
    inside = {id(n) for f in functions for n in ast.walk(f)}

    def change(node: ast.expr) -> ast.expr | None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            node.func = expression(f"{me if id(node) in inside else owner + '()'}.{node.func.id}")
            return node
        return None

    replaced(tree, change)
    at = tree.body.index(functions[0])
    for function in functions:
        function.args.args.insert(0, ast.arg(me))
        tree.body.remove(function)
    (made,) = statements(f"class {owner}:\n    pass")
    assert isinstance(made, ast.ClassDef)
    made.body = list(functions)
    tree.body.insert(at, made)
    return True


@of_tree("locals-as-attributes", keeps=False)
def locals_as_attributes(tree: ast.Module) -> bool:
    """The variables of each function become attributes of the object whose method it now is."""
    if not functions_as_methods(tree):
        return False
    (made,) = [s for s in tree.body if isinstance(s, ast.ClassDef) and s.name.startswith("Runner")][-1:]
    done = False
    for method in made.body:
        assert isinstance(method, ast.FunctionDef)
        own = {
            t.id
            for n in ast.walk(method)
            if isinstance(n, ast.Assign)
            for t in (n.targets[0].elts if isinstance(n.targets[0], ast.Tuple) else n.targets)
            if isinstance(t, ast.Name) and t.id != "_"
        }
        nested = [
            n
            for n in ast.walk(method)
            if isinstance(n, (*FUNCTIONS, ast.Lambda, ast.comprehension)) and n is not method
        ]
        own -= {n.id for inner in nested for n in ast.walk(inner) if isinstance(n, ast.Name)}
        own -= {a.arg for a in method.args.args}
        me = method.args.args[0].arg
        renamed = replaced(
            method,
            lambda n, own=own, me=me: (
                ast.Attribute(load(me), n.id, n.ctx) if isinstance(n, ast.Name) and n.id in own else None
            ),  # type: ignore[misc]
        )
        done = done or renamed
    return done


@of_tree("body-in-nested-function")
def body_in_nested_function(tree: ast.Module) -> bool:
    fresh = Fresh(tree)
    done = False
    for function in _plain_functions(tree):
        arguments = function.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or _has_scope_words(tree):
            continue
        is_generator = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(function))
        given = ", ".join(a.arg for a in (*arguments.posonlyargs, *arguments.args))
        name = fresh("inner")
        end = f"yield from {name}({given})" if is_generator else f"return {name}({given})"
        (inner,) = statements(f"def {name}({given}):\n    pass")
        (last,) = ast.parse(f"def f():\n    {end}").body[0].body  # type: ignore[attr-defined]
        assert isinstance(inner, ast.FunctionDef)
        inner.body = function.body
        function.body = [inner, last]
        done = True
    return done


@of_tree("body-in-other-function")
def body_in_other_function(tree: ast.Module) -> bool:
    """Each function hands its arguments to another one that does the work."""
    fresh = Fresh(tree)
    done = False
    for function in _plain_functions(tree):
        arguments = function.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            continue
        is_generator = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(function))
        given = ", ".join(a.arg for a in (*arguments.posonlyargs, *arguments.args))
        name = fresh(f"work_of_{function.name}")
        (other,) = statements(f"def {name}({given}):\n    pass")
        assert isinstance(other, ast.FunctionDef)
        other.body = function.body
        call = f"yield from {name}({given})" if is_generator else f"return {name}({given})"
        function.body = ast.parse(f"def f():\n    {call}").body[0].body  # type: ignore[attr-defined]
        tree.body.insert(tree.body.index(function), other)
        done = True
    return done


@of_project("functions-in-other-module")
def functions_in_other_module(subject: Subject, _: Random) -> Subject | None:
    """Functions and classes that read nothing of the script itself move, with all imports."""
    tree = ast.parse(subject.text)
    if "/" in subject.path or subject.is_imported or _has_scope_words(tree):
        return None
    plain = [s for s in tree.body if isinstance(s, (*FUNCTIONS, ast.ClassDef))]
    imports = [s for s in tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
    moved: list[ast.stmt] = list(plain)
    others = [s for s in tree.body if s not in plain and s not in imports and not is_text(s)]
    constants = [
        s
        for s in others
        if isinstance(s, ast.Assign) and all(isinstance(t, ast.Name) and t.id.isupper() for t in s.targets)
    ]
    stays = set(local_names([s for s in others if s not in constants], ast.Store))
    if not others or not plain or stays & set(local_names(moved, ast.Load)) or len(constants) == len(others):
        return None
    names = [s.name for s in plain] + local_names(constants, ast.Store)
    known = {PurePosixPath(p).stem for p in subject.files}
    if "parts" in known:
        return None
    text = "\n".join(ast.unparse(s) for s in tree.body if s in imports or s in moved or s in constants) + "\n"
    futures = [s for s in imports if is_future(s)]
    line = statements(f"from parts import {', '.join(names)}")
    tree.body = [*futures, *(s for s in imports if s not in futures), *line, *(s for s in others if s not in constants)]
    return subject.with_text(ast.unparse(tree) + "\n").beside("parts.py", text)


@of_tree("functions-async", keeps=False)
def functions_async(tree: ast.Module) -> bool:
    """Functions that nobody in the file calls become coroutines."""
    done = False
    read = set(local_names(tree.body, ast.Load))
    for at, function in enumerate(tree.body):
        if isinstance(function, ast.FunctionDef) and function.name not in read and not function.decorator_list:
            if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(function)):
                continue
            fields = {f: getattr(function, f) for f in ("name", "args", "body", "decorator_list", "returns")}
            tree.body[at] = ast.AsyncFunctionDef(**fields)
            done = True
    return done


@of_tree("main-async", keeps=False)
def main_async(tree: ast.Module) -> bool:
    """A function that the module calls as a statement runs in an event loop."""
    for at, call in enumerate(tree.body):
        value = call.value if isinstance(call, ast.Expr) else None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            for place, function in enumerate(tree.body):
                if isinstance(function, ast.FunctionDef) and function.name == value.func.id:
                    if ast.unparse(tree).count(f"{function.name}(") != 2 or function.decorator_list:
                        continue
                    fields = {f: getattr(function, f) for f in ("name", "args", "body", "decorator_list", "returns")}
                    tree.body[place] = ast.AsyncFunctionDef(**fields)
                    tree.body[at] = statements(f"asyncio.run({ast.unparse(value)})")[0]
                    tree.body.insert(sum(1 for s in tree.body[:1] if is_future(s)), statements("import asyncio")[0])
                    return True
    return False
