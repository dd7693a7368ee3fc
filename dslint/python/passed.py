"""What a call passes as the module writes it, also by `**options` and `*values` that it writes out."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from dslint.python.names import Names

# Methods that change a dictionary.
_CHANGES = frozenset({"update", "setdefault", "pop", "popitem", "clear", "__setitem__"})
_MAX_DEPTH = 3
_BLOCKS = ("body", "orelse", "finalbody")


@dataclass(slots=True)
class Passed:
    """The arguments of one call. `is_open`: something is unpacked of which the module does not say what it holds."""

    positional: list[ast.expr] = field(default_factory=list)
    named: dict[str, ast.expr] = field(default_factory=dict)
    is_open: bool = False

    def argument(self, name: str, position: int | None = None) -> ast.expr | None:
        """Return what is passed as `name=`, or at a position that is known."""
        if name in self.named:
            return self.named[name]
        return self.positional[position] if position is not None and position < len(self.positional) else None


def passed(names: Names, call: ast.Call) -> Passed:
    """Return the arguments of a call; behind `*values` that nobody knows no position is known."""
    found = Passed()
    is_known = True
    for arg in call.args:
        values = elements_of(names, arg.value) if isinstance(arg, ast.Starred) else [arg]
        found.is_open = found.is_open or values is None
        is_known = is_known and values is not None
        found.positional += (values or []) if is_known else []
    for keyword in call.keywords:
        if keyword.arg is not None:
            found.named[keyword.arg] = keyword.value
            continue
        items = items_of(names, keyword.value)
        found.is_open = found.is_open or items is None
        found.named.update(items or {})
    return found


def elements_of(names: Names, node: ast.expr) -> list[ast.expr] | None:
    """Return the items of a tuple or list that the module writes out; `None` when unknown."""
    value = names.single(node) or node
    if not isinstance(value, ast.Tuple) and not (isinstance(value, ast.List) and value is node):
        return None  # a list in a variable may grow
    return None if any(isinstance(e, ast.Starred) for e in value.elts) else list(value.elts)


def items_of(names: Names, node: ast.expr, depth: int = 0) -> dict[str, ast.expr] | None:
    """Return the items of a dictionary that the module writes out, also in a function; `None` when unknown."""
    if depth > _MAX_DEPTH:
        return None
    if isinstance(node, ast.Name):
        made, added = names.single(node), _added(names, node)
        items = items_of(names, made, depth + 1) if made is not None and added is not None else None
        return {**items, **(added or {})} if items is not None else None
    if isinstance(node, ast.Dict):
        keys = [k.value if isinstance(k, ast.Constant) else None for k in node.keys]
        if not all(isinstance(key, str) for key in keys):
            return None
        return {str(key): names.behind(value) for key, value in zip(keys, node.values, strict=True)}
    if not isinstance(node, ast.Call):
        return None
    if names.qualified(node.func) == "dict":
        if node.args or any(k.arg is None for k in node.keywords):
            return None
        return {str(k.arg): names.behind(k.value) for k in node.keywords}
    function = names.definition(node.func)
    inside = ast.walk(function) if isinstance(function, ast.FunctionDef) else ()
    returns = [n for n in inside if isinstance(n, ast.Return)]
    value = returns[0].value if len(returns) == 1 else None
    return items_of(names, value, depth + 1) if value is not None else None


def _added(names: Names, use: ast.Name) -> dict[str, ast.expr] | None:
    """Return what lines between the making of a dictionary and its use put into it; `None` where it may be changed.

    `options["key"] = value` counts in the block in which the dictionary is made.
    """
    meant = names.bindings(use)
    found: dict[str, ast.expr] = {}
    for node in ast.walk(names.tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _is(names, node.value, meant):
            item = _item_put(names, node, meant[0].node, use)
            if item is None:
                return None
            found[item[0]] = names.behind(item[1])
        changed = node.value if isinstance(node, ast.Attribute) and node.attr in _CHANGES else None
        changed = node.target if isinstance(node, ast.AugAssign) else changed
        if changed is not None and _is(names, changed, meant):
            return None
        if isinstance(node, ast.Call) and any(_is(names, arg, meant) for arg in node.args) and _changes(names, node):
            return None
    return found


def _changes(names: Names, call: ast.Call) -> bool:
    """Return whether a function of the module puts something into what a call passes by position, or takes it out."""
    function = names.definition(call.func)
    if not isinstance(function, ast.FunctionDef):
        return False
    inside = {arg.arg for arg in function.args.args}
    for node in ast.walk(function):
        changed = node.value if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) else None
        changed = node.value if isinstance(node, ast.Attribute) and node.attr in _CHANGES else changed
        changed = node.target if isinstance(node, ast.AugAssign) else changed
        if isinstance(changed, ast.Name) and changed.id in inside:
            return True
    return False


def _is(names: Names, node: ast.expr, meant: object) -> bool:
    return isinstance(node, ast.Name) and names.bindings(node) is meant


def _item_put(names: Names, target: ast.Subscript, made: ast.AST, use: ast.Name) -> tuple[str, ast.expr] | None:
    """Return the key and the value of a line that certainly puts an item into a dictionary before a use."""
    key = target.slice.value if isinstance(target.slice, ast.Constant) else None
    for block in _blocks(names.tree):
        lines = [s for s in block if isinstance(s, ast.Assign)]
        puts = next((s for s in lines if target in s.targets), None)
        makes = next((s for s in lines if made in s.targets), None)
        if puts is not None and makes is not None and isinstance(key, str):
            in_order = names.before(makes, puts) and names.before(puts, use)
            return (key, puts.value) if in_order else None
    return None


def _blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    found = (getattr(node, name, None) for node in ast.walk(tree) for name in _BLOCKS)
    return [block for block in found if isinstance(block, list)]
