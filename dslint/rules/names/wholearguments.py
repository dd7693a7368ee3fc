"""Code that hands on the parsed arguments as a whole: who gets them may read any of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial

from dslint.python.names import names_of
from dslint.python.source import Module
from dslint.rules.training.training import last_name

# Names under which code keeps the arguments of a command line, besides the variable that takes them.
HOLDERS = re.compile(r"(?i)(?:\w*_)?(?:args?|argv|opts?|options|arguments|hparams|hps|flags|namespace)")
_WHOLE = frozenset(("vars", "asdict", "dict", "create", "from_argparse_args", "Namespace"))
_WHOLE_METHODS = frozenset(("to_dict", "_get_kwargs", "items", "values", "keys", "update"))
# What gives the same arguments in another form.
_FORMS = re.compile(r"(?:copy\.)?(?:deepcopy|copy)|vars|dict|(?:dataclasses\.)?asdict")
# What only writes down.
LOGS = re.compile(
    r"(?i)print|log|info|dump|write|save|\binit|summary|pformat|hparam|config\.update|format|str|join|sorted|items"
)


def hands_on(modules: list[Module], names: set[str], *, is_all: bool = False) -> bool:
    """Return whether code takes all arguments at once other than to write them down, or by names that it computes.

    `is_all`: the names are all those that may hold the arguments.
    """
    if not is_all:
        every = {last_name(n) for module in modules for n in module.nodes_of(ast.Name, ast.Attribute)}
        names = names | {name for name in every if HOLDERS.fullmatch(name)}
    returning = {f.name for module in modules for f in map(partial(_returning, module), _wholes(module, names)) if f}
    getters = getters_by_name(modules)
    if any(_is_handed_on(module, names, getters) for module in modules):
        return True
    calls = ((module, call) for module in modules if returning for call in module.nodes_of(ast.Call))
    return any(last_name(call.func) in returning and not _is_logged(module, call) for module, call in calls)


def getters_by_name(modules: list[Module]) -> dict[str, set[str]]:
    """Return the functions that take a field by a name that each call of them writes out, with these names."""
    found: dict[str, set[str]] = {}
    for module in modules:
        for node, key in _keys(module):
            function = module.function(node)
            if not isinstance(function, ast.FunctionDef) or not isinstance(key, ast.Name):
                continue
            parameters = [a.arg for a in function.args.args]
            if key.id in parameters:
                given = _texts_given(modules, function, parameters.index(key.id), key.id)
                if given:
                    found[function.name] = found.get(function.name, set()) | given
    return found


def _keys(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yield what takes or asks for a field by its name, with the name: `getattr(x, name)`, `x.__dict__[name]`."""
    for call in module.nodes_of(ast.Call):
        if last_name(call.func) in ("getattr", "hasattr") and len(call.args) > 1:
            yield call, call.args[1]
    for item in module.nodes_of(ast.Subscript):
        if isinstance(item.ctx, ast.Load) and last_name(item.value) == "__dict__":
            yield item, item.slice


def _texts_given(modules: list[Module], function: ast.FunctionDef, at: int, name: str) -> set[str]:
    """Return the texts that all calls of a function pass for a parameter; none where some call passes another value."""
    found: set[str] = set()
    for module in modules:
        for call in module.nodes_of(ast.Call):
            if last_name(call.func) != function.name:
                continue
            named = [keyword.value for keyword in call.keywords if keyword.arg == name]
            value = named[0] if named else call.args[at] if at < len(call.args) else None
            if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
                return set()
            found.add(value.value)
    return found


def _is_handed_on(module: Module, names: set[str], getters: dict[str, set[str]]) -> bool:
    for call in module.nodes_of(ast.Call):
        name, first = last_name(call.func), call.args[0] if call.args else None
        if any(keyword.arg is None and _holds(module, names, keyword.value) for keyword in call.keywords):
            return True
        if name in _WHOLE_METHODS and isinstance(call.func, ast.Attribute) and _holds(module, names, call.func.value):
            return True
        is_named = len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
        is_open = name == "getattr" and not is_named and not _is_in(module, call, getters)
        if is_open and first is not None and _holds(module, names, first):
            return True
    for whole in _wholes(module, names):
        is_item = isinstance(module.parents.get(whole), ast.Subscript) and _is_in(module, whole, getters)
        if not is_item and _returning(module, whole) is None and not _is_logged(module, whole):
            return True
    return False


def _is_in(module: Module, node: ast.AST, functions: dict[str, set[str]]) -> bool:
    function = module.function(node)
    return isinstance(function, ast.FunctionDef) and function.name in functions


def _wholes(module: Module, names: set[str]) -> Iterator[ast.AST]:
    """Yield what gives all arguments at once: `vars(args)`, `args.__dict__`."""
    for call in module.nodes_of(ast.Call):
        if last_name(call.func) in _WHOLE and call.args and _holds(module, names, call.args[0]):
            yield call
    yield from (n for n in module.attributes.get("__dict__", ()) if _holds(module, names, n.value))


def _returning(module: Module, node: ast.AST) -> ast.FunctionDef | None:
    """Return the function that gives such an expression back."""
    function = module.function(node) if isinstance(module.parents.get(node), ast.Return) else None
    return function if isinstance(function, ast.FunctionDef) else None


def _holds(module: Module, names: set[str], node: ast.AST) -> bool:
    if last_name(node) not in names:
        return False
    return not (isinstance(node, ast.Name) and (is_dict(module, node) or is_variadic(module, node)))


def is_dict(module: Module, node: ast.Name) -> bool:
    """Return whether a name holds a dictionary that the module writes out: `extra_args = dict(fused=True)`."""
    made = names_of(module.tree).behind(node)
    while isinstance(made, ast.IfExp):
        made = made.body
    return isinstance(made, ast.Dict) or (
        isinstance(made, ast.Call) and not made.args and ast.unparse(made.func) == "dict"
    )


def is_variadic(module: Module, node: ast.Name) -> bool:
    """Return whether a name is what its function gets by `*args` or `**args`."""
    around = module.parents.get(node)
    while around is not None and not isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
        around = module.parents.get(around)
    taken = (around.args.vararg, around.args.kwarg) if around is not None else ()
    return any(parameter is not None and parameter.arg == node.id for parameter in taken)


def _is_logged(module: Module, node: ast.AST) -> bool:
    """Return whether something is handed to calls that write it down, and to no other; also by a name of its own."""
    whole, calls = node, []
    while (parent := module.parents.get(node)) is not None and not isinstance(parent, ast.stmt):
        if isinstance(parent, ast.Call) and node is not parent.func:
            name = ast.unparse(parent.func)
            if _FORMS.fullmatch(name):
                whole = parent
            else:
                calls.append(name)
        elif isinstance(parent, ast.Compare) and all(isinstance(op, ast.In | ast.NotIn) for op in parent.ops):
            return node is not parent.left
        elif _is_one(module, parent, node):
            return True
        node = parent
    if isinstance(parent, ast.Assign) and parent.value is whole:
        loads = _loads(module, parent)
        return bool(loads) and all(_is_logged(module, load) for load in loads)
    is_loop = isinstance(parent, ast.For) and any(LOGS.search(ast.unparse(n)) for n in parent.body)
    return is_loop or (bool(calls) and all(LOGS.search(name) for name in calls))


def _is_one(module: Module, node: ast.AST, whole: ast.AST) -> bool:
    """Return whether one field is taken by its name: `vars(args).get("seed")`, `vars(args)["seed"]`."""
    if isinstance(node, ast.Subscript):
        return node.value is whole and isinstance(node.slice, ast.Constant)
    call = module.parents.get(node)
    is_get = isinstance(node, ast.Attribute) and node.attr in ("get", "pop") and isinstance(call, ast.Call)
    return is_get and isinstance(call, ast.Call) and bool(call.args) and isinstance(call.args[0], ast.Constant)


def _loads(module: Module, kept: ast.Assign) -> list[ast.Name]:
    """Return where the function around an assignment reads its one name; nothing where it binds others, too."""
    around, target = module.function(kept) or module.tree, kept.targets[0]
    if len(kept.targets) > 1 or not isinstance(target, ast.Name):
        return []
    names = [n for n in ast.walk(around) if isinstance(n, ast.Name) and n.id == target.id and n is not target]
    return names if all(isinstance(name.ctx, ast.Load) for name in names) else []
