"""Code that hands on the parsed arguments as a whole: who gets them may read any of them."""

from __future__ import annotations

import ast
import re

from dslint.python.names import names_of
from dslint.python.source import Module
from dslint.rules.training.training import last_name

# Names under which code keeps the arguments of a command line, besides the variable that takes them.
_HOLDERS = re.compile(r"(?i)(?:\w*_)?(?:args?|argv|opts?|options|arguments|hparams|hps|flags|namespace)")
_WHOLE = frozenset(("vars", "asdict", "dict", "create", "from_argparse_args", "Namespace", "deepcopy", "copy"))
_WHOLE_METHODS = frozenset(("to_dict", "_get_kwargs", "items", "values", "keys", "update"))
_BY_NAME = frozenset(("getattr", "setattr", "hasattr"))
# What only writes down.
_LOGS = re.compile(
    r"(?i)print|log|info|dump|write|save|\binit|summary|pformat|hparam|config\.update|format|str|join|sorted|items"
)


def hands_on(module: Module, names: set[str]) -> bool:
    """Return whether code takes all arguments at once other than to write them down, or by names that it computes."""

    def holds(node: ast.AST) -> bool:
        name = last_name(node)
        if name not in names and _HOLDERS.fullmatch(name) is None:
            return False
        return not (isinstance(node, ast.Name) and (_is_dict(module, node) or _is_variadic(module, node)))

    for call in module.nodes_of(ast.Call):
        name, first = last_name(call.func), call.args[0] if call.args else None
        if any(keyword.arg is None and holds(keyword.value) for keyword in call.keywords):
            return True
        if name in _WHOLE_METHODS and isinstance(call.func, ast.Attribute) and holds(call.func.value):
            return True
        if first is None or not holds(first):
            continue
        if name in _BY_NAME and len(call.args) > 1 and not isinstance(call.args[1], ast.Constant):
            return True
        if name in _WHOLE and not _is_logged(module, call):
            return True
    fields = module.attributes.get("__dict__", ())
    return any(holds(node.value) and not _is_logged(module, node) for node in fields)


def _is_dict(module: Module, node: ast.Name) -> bool:
    """Return whether a name holds a dictionary that the module writes out: `extra_args = dict(fused=True)`."""
    made = names_of(module.tree).behind(node)
    while isinstance(made, ast.IfExp):
        made = made.body
    return isinstance(made, ast.Dict) or (
        isinstance(made, ast.Call) and not made.args and ast.unparse(made.func) == "dict"
    )


def _is_variadic(module: Module, node: ast.Name) -> bool:
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
            calls.append(ast.unparse(parent.func))
        node = parent
    if isinstance(parent, ast.Assign) and parent.value is whole:
        loads = _loads(module, parent)
        return bool(loads) and all(_is_logged(module, load) for load in loads)
    is_loop = isinstance(parent, ast.For) and any(_LOGS.search(ast.unparse(n)) for n in parent.body)
    return is_loop or (bool(calls) and all(_LOGS.search(name) for name in calls))


def _loads(module: Module, kept: ast.Assign) -> list[ast.Name]:
    """Return where the function around an assignment reads its one name; nothing where it binds others, too."""
    around, target = module.function(kept) or module.tree, kept.targets[0]
    if len(kept.targets) > 1 or not isinstance(target, ast.Name):
        return []
    names = [n for n in ast.walk(around) if isinstance(n, ast.Name) and n.id == target.id and n is not target]
    return names if all(isinstance(name.ctx, ast.Load) for name in names) else []
