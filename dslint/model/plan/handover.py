"""What a script hands to `deepspeed.initialize` beside the config: an optimizer, a schedule, groups of ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Location
from dslint.model.plan.parser.modules import find_module, imported_sources, load
from dslint.model.plan.pyscript import PyScript
from dslint.model.workspace import Workspace

# Positions in the signature, which no release has changed.
_OPTIMIZER, _SCHEDULER = 2, 5
# What follows moved by one place when `distributed_port` came before `mpu`.
_FIXED_PLACES = 6
_ENGINE = "deepspeed.initialize"
# Modules of the project that a script imports, and those that they import.
_MOST_MODULES, _MOST_STEPS = 60, 2
_OWN_ENGINE = re.compile(
    r"deepspeed\.initialize\((?:[^()]|\([^()]*\))*?\bconfig(?:_params)?\s*=\s*[\w.]*args\.deepspeed\b"
)
_CLASSES = ("torch.optim.", "deepspeed.ops.", "apex.optimizers.", "bitsandbytes.optim.", "transformers.optimization.")


@dataclass(frozen=True, slots=True)
class Handover:
    """The one call of `deepspeed.initialize` in a script.

    ``optimizer`` and ``scheduler``: the dotted class of what is passed; absent: nothing is passed; unknown: what is
    passed is computed, and may be nothing. ``groups``: the argument that brings groups of ranks, ``mpu`` or
    ``mesh_param``; unknown: arguments are unpacked, or stand at a place that means another one in each release.
    """

    location: Location
    optimizer: Fact[str] = field(default_factory=absent)
    scheduler: Fact[str] = field(default_factory=absent)
    groups: Fact[str] = field(default_factory=absent)

    def ends(self, passed: Fact[str]) -> tuple[Location, ...]:
        """The call, and where the object that it passes is made: the other ends of a finding."""
        return self.location.labelled("the call"), *(place.labelled("made here") for place in passed.origins)


def read_handover(script: PyScript) -> Handover | None:
    """The call, where there is one only: of several nobody knows which one a run makes."""
    calls = [call for name, call in script.called if name == _ENGINE]
    if len(calls) != 1 or script.tree is None:
        return None
    (call,) = calls
    return Handover(
        script.location(call),
        _passed(script, call, "optimizer", _OPTIMIZER),
        _passed(script, call, "lr_scheduler", _SCHEDULER),
        _groups(script, call),
    )


def handed_elsewhere(path: str, workspace: Workspace) -> Fact[str]:
    """The optimizer that a module which the script imports hands to `deepspeed.initialize`: unknown, or absent.

    For scripts that do not call it themselves. Only modules of the project are looked at, two imports deep.
    """
    for source in imported_sources(path, workspace, _MOST_STEPS, _MOST_MODULES):
        is_asked = _ENGINE in source.text and source.path.endswith(".py")
        module = load(source.path, workspace) if is_asked else None
        if module is None:
            continue
        for name, call in module.script.called:
            fact = _passed(module.script, call, "optimizer", _OPTIMIZER) if name == _ENGINE else absent()
            if not fact.is_absent:
                return unknown("a module that the script imports passes it", *fact.origins)
    return absent()


def engine_of_arguments(path: str, workspace: Workspace) -> Fact[str]:
    """Who reads the config where an imported module calls ``deepspeed.initialize(config=args.deepspeed)``: unknown.

    Else absent. Scripts with the Trainer's argument classes and a training loop of their own: nothing compares the
    config with the arguments then.
    """
    module = load(path, workspace) if path.endswith(".py") else None
    for origin in module.script.imports.values() if module is not None else ():
        found = find_module(origin, path, workspace) or find_module(
            origin.rpartition(".")[0] or origin, path, workspace
        )
        source = workspace.read(found) if found is not None else None
        if source is not None and _ENGINE in source.text and _OWN_ENGINE.search(source.text):
            return unknown("a module that the script imports hands the config to DeepSpeed itself")
    return absent()


def short(title: str) -> str:
    """The name of a class without its module."""
    return title.rpartition(".")[2]


def _passed(script: PyScript, call: ast.Call, name: str, position: int) -> Fact[str]:
    if _unpacks(call):
        return unknown("arguments are unpacked", script.location(call))
    given = {k.arg: k.value for k in call.keywords}
    node = given.get(name, call.args[position] if len(call.args) > position else None)
    if node is None:
        return absent()
    value = _bound(script, call, node) if isinstance(node, ast.Name) else node
    if isinstance(value, ast.Constant) and value.value is None:
        return absent()
    title = script.qualified(value.func) if isinstance(value, ast.Call) else ""
    if title.startswith(_CLASSES):
        return known(title, script.location(node))
    return unknown("the script computes it", script.location(node))


def _groups(script: PyScript, call: ast.Call) -> Fact[str]:
    if _unpacks(call) or len(call.args) > _FIXED_PLACES:
        return unknown("arguments are unpacked, or passed by their place", script.location(call))
    for keyword in call.keywords:
        is_none = isinstance(keyword.value, ast.Constant) and keyword.value.value is None
        if keyword.arg in ("mpu", "mesh_param") and not is_none:
            return known(keyword.arg, script.location(keyword.value))
    return absent()


def _unpacks(call: ast.Call) -> bool:
    return any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)


def _bound(script: PyScript, call: ast.Call, name: ast.Name) -> ast.expr | None:
    """What a name stands for in the function of the call; what the call itself is unpacked into does not count."""
    scope = _scope(script.tree, call) if script.tree is not None else None
    if scope is None:
        return None
    values: list[ast.expr] = []
    stores = 0
    for node in _inside(scope):
        if isinstance(node, ast.Assign) and node.value is call:
            stores -= sum(isinstance(n, ast.Name) and n.id == name.id for t in node.targets for n in ast.walk(t))
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values += [node.value] if node.targets[0].id == name.id else []
        is_name = isinstance(node, ast.Name) and node.id == name.id and not isinstance(node.ctx, ast.Load)
        stores += is_name or (isinstance(node, ast.arg) and node.arg == name.id)
    return values[0] if len(values) == 1 == stores else None


def _scope(tree: ast.Module, call: ast.Call) -> ast.AST:
    """The innermost function around the call, else the module."""
    found: ast.AST = tree
    for node in ast.walk(tree):  # outer functions come before inner ones
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(n is call for n in ast.walk(node)):
            found = node
    return found


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function, without those of functions and classes in it."""
    stack = list(ast.iter_child_nodes(scope))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            stack += ast.iter_child_nodes(node)
