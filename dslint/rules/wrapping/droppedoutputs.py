"""Outputs of a DDP model that a loss leaves out where a batch has nothing for them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.python.events import Call, Event, Seq, events, walk
from dslint.python.source import Module
from dslint.python.values import ClassAtom, Function, Instance
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.copies import assigned
from dslint.rules.wrapping.ddps import plain_wrapper

if TYPE_CHECKING:
    from dslint.rules.runs import RunQuery

# What has no gradient: shapes, places, and what is detached.
_PLAIN = frozenset({"shape", "device", "dtype", "size", "detach", "dim", "ndim", "requires_grad", "data", "numel"})
_ZEROS = frozenset({"zeros", "tensor", "new_zeros", "new_tensor", "zeros_like", "FloatTensor", "as_tensor"})
_ASKS_DATA = re.compile(
    r"\blen\(|\.numel\(|\.nelement\(|\.any\(|\.sum\(|\.shape\[0\]|\.size\(0\)|\b(?:num|n)_(?:pos|fg|gt|obj)"
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A test that leaves an output out of the loss; `zero` is what the loss has instead."""

    module: Module
    test: ast.If
    zero: ast.AST
    output: str
    forward: Event


def dropped_outputs(run: RunQuery, tree: Seq) -> Iterator[Dropped]:
    """Yield the tests of a batch without which a branch of the model gets no gradient."""
    calls = [node for node in walk(tree) if isinstance(node, Call) and isinstance(node.function, Function)]
    for event in events(tree):
        wrappers = instances(event.receiver) if "ddp-forward" in event.tags else []
        if not wrappers or not all(_waits(run, atom) for atom in wrappers):
            continue
        scope = scope_of(event.module, event.node)
        for at, name in _unpacked(scope, event.node):
            if not _has_branch(run, wrappers[0], at):
                continue
            for module, function, variable in places_of(event.module, scope, name, calls):
                found = _left_out(function, variable)
                if found is not None:
                    yield Dropped(module, *found, variable, event)


def _waits(run: RunQuery, atom: Instance) -> bool:
    """Return whether a wrapper waits for each gradient: one that looks for unused parameters gives zeros for them."""
    made = run.makers.get(atom)
    return made is not None and plain_wrapper(run, made) is not None


def scope_of(module: Module, node: ast.AST) -> ast.AST:
    """Return the innermost function around a node, or the module."""
    found: ast.AST = module.tree
    for function in module.functions:
        if any(inner is node for inner in ast.walk(function)):
            found = function
    return found


def _unpacked(scope: ast.AST, call: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the variables that get the outputs of a forward, one by one."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and node.value is call and isinstance(node.targets[0], ast.Tuple):
            for at, target in enumerate(node.targets[0].elts):
                if isinstance(target, ast.Name) and target.id != "_":
                    yield at, target.id


def _has_branch(run: RunQuery, wrapper: Instance, at: int) -> bool:
    """Return whether an output comes from a layer that gives this output alone."""
    return any(branch.place == at for branch in branches(run, wrapper))


@dataclass(frozen=True, slots=True)
class Branch:
    """An output of a model, by its place or key, that comes from a `layer` which gives this output alone."""

    place: int | str
    layer: str
    owner: ClassAtom


def branches(run: RunQuery, wrapper: Instance) -> list[Branch]:
    """Return the outputs of a wrapped model that a layer each gives, in the order of its `return`."""
    made = run.makers.get(wrapper)
    models = instances(made.arguments.get("module")) if made is not None else []
    classes = [atom.cls for atom in models if isinstance(atom.cls, ClassAtom)]
    forwards = [(c, n) for c in classes for n in c.node.body if isinstance(n, ast.FunctionDef) and n.name == "forward"]
    if len(forwards) != 1:
        return []
    owner, forward = forwards[0]
    returned = [n.value for n in ast.walk(forward) if isinstance(n, ast.Return) and n.value is not None]
    text = ast.unparse(owner.node)
    found = []
    for place, given in _outputs(returned[0]) if len(returned) == 1 else ():
        if isinstance(given, ast.Name):
            values = assigned(forward, given.id)
            given = values[0] if len(values) == 1 else given
        layer = _layer(given)
        if layer is not None and len(re.findall(rf"\bself\.{layer}\b(?!\s*=[^=])", text)) == 1:
            found.append(Branch(place, layer, owner))
    return found


def _outputs(returned: ast.expr) -> Iterator[tuple[int | str, ast.expr]]:
    if isinstance(returned, ast.Tuple):
        yield from enumerate(returned.elts)
    elif isinstance(returned, ast.Dict):
        for key, value in zip(returned.keys, returned.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value


def _layer(node: ast.expr) -> str | None:
    """Return the layer that gives an output, perhaps reshaped."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "self":
            return node.func.attr
        node = node.func.value
    return None


def places_of(module: Module, scope: ast.AST, name: str, calls: list[Call]) -> Iterator[tuple[Module, ast.AST, str]]:
    """Yield the functions that get an output, each with its name there; the function with the forward first."""
    yield module, scope, name
    inside = {id(node) for node in ast.walk(scope)}
    for call in calls:
        function = call.function
        if id(call.node) not in inside or not isinstance(call.node, ast.Call) or not isinstance(function, Function):
            continue
        if not isinstance(function.node, _FUNCTIONS):
            continue
        names = [a.arg for a in (*function.node.args.posonlyargs, *function.node.args.args)]
        names = names[1:] if names[:1] == ["self"] else names
        passed = [*zip(names, call.node.args, strict=False), *((k.arg, k.value) for k in call.node.keywords)]
        for parameter, value in passed:
            if parameter is not None and isinstance(value, ast.Name) and value.id == name:
                yield function.module, function.node, parameter


def _left_out(scope: ast.AST, name: str) -> tuple[ast.If, ast.AST] | None:
    """Return the test without which nothing of a loss depends on an output, and the zero that stands for it then."""
    tests = [n for n in ast.walk(scope) if isinstance(n, ast.If) and not n.orelse]
    for test in tests:
        if not _ASKS_DATA.search(ast.unparse(test.test)) and not isinstance(test.test, ast.Name):
            continue
        inside = {id(node) for part in test.body for node in ast.walk(part)}
        reads = list(differentiable(scope, name))
        if not reads or any(id(node) not in inside for node in reads):
            continue
        for changed in _changed(test):
            zeros = [value for value in assigned(scope, changed) if id(value) not in inside]
            if len(zeros) == 1 and _is_zero(zeros[0]) and _is_used_after(scope, changed, test):
                return test, zeros[0]
    return None


def differentiable(scope: ast.AST, name: str) -> Iterator[ast.Name]:
    """Yield the reads of an output through which a gradient flows."""
    parents = {id(child): node for node in ast.walk(scope) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(scope):
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        above = parents.get(id(node))
        is_plain = isinstance(above, ast.Attribute) and above.attr in _PLAIN
        is_length = isinstance(above, ast.Call) and ast.unparse(above.func) == "len"
        is_handed = isinstance(above, ast.Call) and node in above.args and not isinstance(scope, ast.Module)
        if not is_plain and not is_length and not (is_handed and _is_only_handed(above)):
            yield node


def _is_only_handed(call: ast.AST | None) -> bool:
    """Return whether a call makes no more than a tensor of the same shape."""
    return isinstance(call, ast.Call) and ast.unparse(call.func).endswith("_like")


def _changed(test: ast.If) -> Iterator[str]:
    for node in (n for part in test.body for n in ast.walk(part)):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _is_zero(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in (0, 0.0)
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    if name in ("tensor", "new_tensor", "FloatTensor", "as_tensor"):
        return bool(node.args) and ast.unparse(node.args[0]) in ("0", "0.0", "[0.0]", "[0]")
    return name in _ZEROS


def _is_used_after(scope: ast.AST, name: str, test: ast.If) -> bool:
    """Return whether what stands for the output is read after the test."""
    last = test.end_lineno or test.lineno
    return any(isinstance(n, ast.Name) and n.id == name and n.lineno > last for n in ast.walk(scope))
