"""The same values by way of variables, constants, containers and attributes."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable

from metamorphic.subject import (
    FUNCTIONS,
    Fresh,
    after_imports,
    assign,
    each_statement,
    expression,
    hoisted,
    load,
    local_names,
    of_tree,
    replaced,
    statements,
)


def _is_value(node: ast.expr | None) -> bool:
    """A number or a short text that an argument may be."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str)) and node.value not in ("", "_")


def _arguments(tree: ast.Module) -> list[tuple[ast.Call, int | ast.keyword, ast.expr]]:
    """Literal arguments of calls in functions and at the top."""
    decorators = {
        id(n)
        for f in ast.walk(tree)
        if isinstance(f, (*FUNCTIONS, ast.ClassDef))
        for d in f.decorator_list
        for n in ast.walk(d)
    }
    fields = {
        id(n)
        for c in ast.walk(tree)
        if isinstance(c, ast.ClassDef)
        for s in c.body
        if isinstance(s, (ast.AnnAssign, ast.Assign))
        for n in ast.walk(s)
    }
    found: list[tuple[ast.Call, int | ast.keyword, ast.expr]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in decorators | fields:
            found += [(node, at, a) for at, a in enumerate(node.args) if _is_value(a)]
            found += [(node, k, k.value) for k in node.keywords if k.arg and _is_value(k.value)]
    return found


def _put(call: ast.Call, place: ast.keyword | int, value: ast.expr) -> None:
    """Pass another value there."""
    if isinstance(place, ast.keyword):
        place.value = value
    else:
        call.args[place] = value


def _replace_arguments(tree: ast.Module, use: Callable[[str], str], base: str) -> dict[str, ast.expr]:
    """Each literal argument is read from something: name -> value."""
    fresh = Fresh(tree)
    made: dict[str, ast.expr] = {}
    for call, place, value in _arguments(tree):
        name = fresh(base)
        made[name] = value
        new = expression(use(name))
        _put(call, place, new)
    return made


@of_tree("literal-as-constant")
def literal_as_constant(tree: ast.Module) -> bool:
    made = _replace_arguments(tree, lambda name: name, "VALUE")
    after_imports(tree, [assign(name, value) for name, value in made.items()])
    return bool(made)


@of_tree("literal-in-class")
def literal_in_class(tree: ast.Module) -> bool:
    owner = Fresh(tree)("Settings")
    made = _replace_arguments(tree, lambda name: f"{owner}.{name}", "value")
    (block,) = statements(f"class {owner}:\n    pass")
    assert isinstance(block, ast.ClassDef)
    block.body = [assign(name, value) for name, value in made.items()] or block.body
    after_imports(tree, [block] if made else [])
    return bool(made)


@of_tree("literal-in-dict")
def literal_in_dict(tree: ast.Module) -> bool:
    owner = Fresh(tree)("SETTINGS")
    made = _replace_arguments(tree, lambda name: f"{owner}[{name!r}]", "value")
    value = ast.Dict([ast.Constant(name) for name in made], list(made.values()))
    after_imports(tree, [assign(owner, value)] if made else [])
    return bool(made)


@of_tree("literal-in-namespace")
def literal_in_namespace(tree: ast.Module) -> bool:
    owner = Fresh(tree)("settings")
    made = _replace_arguments(tree, lambda name: f"{owner}.{name}", "value")
    value = ast.Call(expression("types.SimpleNamespace"), [], [ast.keyword(n, v) for n, v in made.items()])
    after_imports(tree, [*statements("import types"), assign(owner, value)] if made else [])
    return bool(made)


@of_tree("literal-as-default")
def literal_as_default(tree: ast.Module) -> bool:
    """Literal arguments inside of a function are the defaults of new parameters."""
    fresh = Fresh(tree)
    known = {id(c): (c, p, v) for c, p, v in _arguments(tree)}
    done = False
    for function in [s for s in tree.body if isinstance(s, FUNCTIONS)]:
        if function.args.vararg or function.args.kwarg or function.args.kwonlyargs:
            continue
        inside = {id(n) for n in ast.walk(function)}
        for call, place, value in [e for e in _arguments(tree) if id(e[0]) in inside & known.keys()]:
            name = fresh("value")
            function.args.args.append(ast.arg(name))
            function.args.defaults.append(value)
            _put(call, place, load(name))
            done = True
    return done


@of_tree("literal-in-local-variable")
def literal_in_local_variable(tree: ast.Module) -> bool:
    fresh = Fresh(tree)

    def change(node: ast.expr, before: list[ast.stmt]) -> ast.expr | None:
        if not isinstance(node, ast.Call):
            return None
        done = False
        for place in (*range(len(node.args)), *node.keywords):
            value = place.value if isinstance(place, ast.keyword) else node.args[place]
            if not _is_value(value) or (isinstance(place, ast.keyword) and not place.arg):
                continue
            name = fresh("value")
            before.append(assign(name, value))
            _put(node, place, load(name))
            done = True
        return node if done else None

    return hoisted(tree, change, everywhere=True)


@of_tree("text-joined")
def text_joined(tree: ast.Module) -> bool:
    """``"ds.json"`` as ``"d" + "s.json"``, where it is an argument."""
    done = False
    for call, place, value in _arguments(tree):
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and len(value.value) > 2:
            new = ast.BinOp(ast.Constant(value.value[:1]), ast.Add(), ast.Constant(value.value[1:]))
            _put(call, place, new)
            done = True
    return done


@of_tree("text-formatted")
def text_formatted(tree: ast.Module) -> bool:
    done = False
    for call, place, value in _arguments(tree):
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value.isidentifier():
            new = expression(f'f"{{{value.value[:1]!r}}}{value.value[1:]}"')
            _put(call, place, new)
            done = True
    return done


@of_tree("number-as-product")
def number_as_product(tree: ast.Module) -> bool:
    done = False
    for call, place, value in _arguments(tree):
        if isinstance(value, ast.Constant) and type(value.value) is int and value.value > 1:
            factor = 2 if value.value % 2 == 0 else 1
            new = ast.BinOp(ast.Constant(value.value // factor), ast.Mult(), ast.Constant(factor))
            _put(call, place, new)
            done = True
    return done


# ---- assignments -----------------------------------------------------------------------------------------------


def _each_assignment(tree: ast.Module, change: Callable[[ast.Assign], list[ast.stmt] | None]) -> bool:
    def of_statement(statement: ast.stmt) -> list[ast.stmt] | None:
        return change(statement) if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None

    return each_statement(tree, of_statement)


@of_tree("value-by-way-of-variable")
def value_by_way(tree: ast.Module) -> bool:
    """``x = f()`` as ``y = f(); x = y``."""
    fresh = Fresh(tree)

    def change(node: ast.Assign) -> list[ast.stmt] | None:
        if not isinstance(node.value, ast.Call):
            return None
        name = fresh("result")
        before, node.value = assign(name, node.value), load(name)
        return [before, node]

    return _each_assignment(tree, change)


@of_tree("value-assigned-twice")
def value_assigned_twice(tree: ast.Module) -> bool:
    """``x = y = f()``."""
    fresh = Fresh(tree)

    def change(node: ast.Assign) -> list[ast.stmt] | None:
        if not isinstance(node.value, ast.Call):
            return None
        node.targets.append(ast.Name(fresh("also"), ast.Store()))
        return [node]

    return _each_assignment(tree, change)


@of_tree("value-annotated")
def value_annotated(tree: ast.Module) -> bool:
    def change(node: ast.Assign) -> list[ast.stmt] | None:
        if not isinstance(node.targets[0], ast.Name) or node.targets[0].id.startswith("__"):
            return None
        return [ast.AnnAssign(node.targets[0], ast.Constant("Any"), node.value, 1)]

    fields = {id(s) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for s in c.body}
    return _each_assignment(tree, lambda node: None if id(node) in fields else change(node))


@of_tree("value-none-first")
def value_none_first(tree: ast.Module) -> bool:
    """``x = None`` before the value comes."""

    def change(node: ast.Assign) -> list[ast.stmt] | None:
        target = node.targets[0]
        if not isinstance(target, ast.Name) or not isinstance(node.value, ast.Call):
            return None
        if target.id in local_names([node.value], ast.Load):
            return None
        return [assign(target.id, ast.Constant(None)), node]

    return _each_assignment(tree, change)


def _engine(node: ast.Assign) -> list[ast.expr] | None:
    """The targets of ``a, b, c, d = f()``."""
    target = node.targets[0]
    is_call = isinstance(node.value, ast.Call) and isinstance(target, ast.Tuple)
    return target.elts if is_call and all(isinstance(e, (ast.Name, ast.Attribute)) for e in target.elts) else None  # type: ignore[union-attr]


@of_tree("tuple-by-index")
def tuple_by_index(tree: ast.Module) -> bool:
    fresh = Fresh(tree)

    def change(node: ast.Assign) -> list[ast.stmt] | None:
        targets = _engine(node)
        if targets is None:
            return None
        name = fresh("results")
        used = [(n, t) for n, t in enumerate(targets) if ast.unparse(t) != "_"]
        return [assign(name, node.value), *(ast.Assign([t], expression(f"{name}[{n}]")) for n, t in used)]

    return _each_assignment(tree, change)


@of_tree("tuple-with-star")
def tuple_with_star(tree: ast.Module) -> bool:
    def change(node: ast.Assign) -> list[ast.stmt] | None:
        targets = _engine(node)
        if targets is None or [ast.unparse(t) for t in targets[1:]] != ["_"] * (len(targets) - 1) or len(targets) < 2:
            return None
        node.targets = [ast.Tuple([targets[0], ast.Starred(targets[1], ast.Store())], ast.Store())]
        return [node]

    return _each_assignment(tree, change)


@of_tree("tuple-unpacked-later")
def tuple_unpacked_later(tree: ast.Module) -> bool:
    fresh = Fresh(tree)

    def change(node: ast.Assign) -> list[ast.stmt] | None:
        if _engine(node) is None:
            return None
        name = fresh("results")
        before, node.value = assign(name, node.value), load(name)
        return [before, node]

    return _each_assignment(tree, change)


@of_tree("dict-by-call")
def dict_by_call(tree: ast.Module) -> bool:
    def change(node: ast.expr) -> ast.expr | None:
        if not isinstance(node, ast.Dict) or not node.keys:
            return None
        if not all(
            isinstance(k, ast.Constant)
            and isinstance(k.value, str)
            and k.value.isidentifier()
            and not keyword.iskeyword(k.value)
            for k in node.keys
        ):
            return None
        words = [ast.keyword(k.value, v) for k, v in zip(node.keys, node.values, strict=True)]  # type: ignore[union-attr]
        return ast.Call(load("dict"), [], words)

    return replaced(tree, change)


@of_tree("dict-item-by-item")
def dict_item_by_item(tree: ast.Module) -> bool:
    """A dictionary that is a variable is filled after it is made."""

    def change(node: ast.Assign) -> list[ast.stmt] | None:
        target, value = node.targets[0], node.value
        if not isinstance(target, ast.Name) or not isinstance(value, ast.Dict) or not value.keys or None in value.keys:
            return None
        items = [
            ast.Assign([ast.Subscript(load(target.id), k, ast.Store())], v)
            for k, v in zip(value.keys, value.values, strict=True)
            if k is not None
        ]
        return [assign(target.id, ast.Dict([], [])), *items]

    return _each_assignment(tree, change)


@of_tree("locals-renamed")
def locals_renamed(tree: ast.Module) -> bool:
    """Variables that functions assign get names that say nothing."""
    fresh = Fresh(tree)
    done = False
    for function in [n for n in tree.body if isinstance(n, FUNCTIONS)]:
        if any(isinstance(n, (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)) for n in ast.walk(function)):
            continue
        inner = [
            n for n in ast.walk(function) if isinstance(n, (*FUNCTIONS, ast.ClassDef, ast.Lambda)) and n is not function
        ]
        fixed = {
            a.arg
            for n in ast.walk(function)
            if isinstance(n, ast.arguments)
            for a in ast.walk(n)
            if isinstance(a, ast.arg)
        }
        fixed |= {n.name for n in inner if not isinstance(n, ast.Lambda)} | {
            h.name for h in ast.walk(function) if isinstance(h, ast.ExceptHandler) and h.name
        }
        names = {n: fresh("v") for n in local_names(function.body, ast.Store) if n not in fixed and n != "_"}
        for node in ast.walk(ast.Module(function.body, [])):
            if isinstance(node, ast.Name) and node.id in names:
                node.id = names[node.id]
                done = True
    return done
