"""Tensors that lie in the memory of the host because nothing has named another device."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from dslint.python.libraries import Row
from dslint.python.source import Module
from dslint.python.values import Atom, Instance, Value
from dslint.rules.runs import RunQuery

# Some code says where new tensors lie, or has them moved with a module.
_DEFAULTS = re.compile(r"set_default_device|set_default_tensor_type|with torch\.device|with .*init_empty_weights")
_MOVED = re.compile(r"register_buffer|Parameter\(")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_PLAIN = (ast.List, ast.Tuple, ast.Constant, ast.ListComp)
_NUMBERS = frozenset({"int", "float", "bool", "len", "sum", "round"})
# What gives plain numbers, also when a tensor on a GPU is asked.
_COUNTS = frozenset({"numel", "nelement", "item", "tolist", "dim", "size"})


@dataclass
class HostTensors:
    """Answers for the modules of one run."""

    run: RunQuery

    def places(self, value: Value) -> list[tuple[Module, ast.Call]]:
        """Return the calls that have made a tensor, where each certainly leaves it in the memory of the host."""
        modules = self.run.machine.program.modules()
        if not value.atoms or any(module.search(_DEFAULTS) for module in modules):
            return []
        found = [place for atom in value.atoms for place in self._made(atom, modules)]
        return found if all(self._made(atom, modules) for atom in value.atoms) else []

    def _made(self, atom: Atom, modules: list[Module]) -> list[tuple[Module, ast.Call]]:
        if not isinstance(atom, Instance) or atom.cls not in ("torch.Tensor", ""):
            return []
        node = atom.node
        module = next((m for m in modules if m.holds(node)), None)
        if module is None:
            return []
        made = _assigned(module, node) if isinstance(node, ast.AugAssign) else [node]
        calls = [call for call in made if isinstance(call, ast.Call) and self.is_on_host(module, call)]
        return [(module, call) for call in calls if _is_local(module, call)] if len(calls) == len(made) else []

    def is_on_host(self, module: Module, node: ast.Call) -> bool:
        """Return whether a call makes a tensor of plain numbers and names no device, or brings a tensor to the host."""
        libraries = self.run.machine.libraries
        if isinstance(node.func, ast.Attribute):
            method = libraries.method("torch.Tensor", node.func.attr)
            if method is not None and self._is_brought(module, node, method):
                return True
        written = module.path_of(node.func)
        if written.startswith("torch.cuda."):
            return False  # `torch.cuda.FloatTensor(...)` lies on the GPU
        path = libraries.canonical(written)
        cls = libraries.class_(path)
        row = cls.constructor if cls is not None else libraries.function(path)
        if row is None or not row.extra.get("on_host"):
            return False
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        device = given.get("device")
        if None in given or (device is not None and not _is_cpu(device)):
            return False
        data = given.get("data") or (node.args[0] if node.args else None)
        names = [p.arg for p in row.parameters.args] if row.parameters is not None else ["data"]
        return "data" not in names or data is None or _is_plain(module, data)

    def _is_brought(self, module: Module, node: ast.Call, method: Row) -> bool:
        """Return whether a method brings a tensor to the host, or leaves it there."""
        if method.extra.get("on_host"):
            return True
        if "moves-to-device" in method.tags:
            given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "device")]
            return any(isinstance(device, ast.Constant | ast.Call) and _is_cpu(device) for device in given)
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        return "values_of" in method.extra and isinstance(inner, ast.Call) and self.is_on_host(module, inner)


def _is_cpu(device: ast.expr) -> bool:
    return "cpu" in [n.value for n in ast.walk(device) if isinstance(n, ast.Constant)]


def _is_plain(module: Module, data: ast.expr, seen: frozenset[str] = frozenset()) -> bool:
    """Return whether there are numbers for certain: a tensor that is copied keeps its device."""
    if isinstance(data, ast.Name):
        given = _given(_function(module, data), data.id)
        return data.id in seen or (bool(given) and all(_is_plain(module, v, seen | {data.id}) for v in given))
    if isinstance(data, ast.Call) and isinstance(data.func, ast.Name):
        return data.func.id in _NUMBERS
    if isinstance(data, ast.Call) and isinstance(data.func, ast.Attribute):
        return data.func.attr in _COUNTS
    if isinstance(data, ast.BinOp):
        return _is_plain(module, data.left, seen) and _is_plain(module, data.right, seen)
    if isinstance(data, ast.Subscript):
        data = data.value
    return isinstance(data, _PLAIN) or (isinstance(data, ast.Attribute) and data.attr == "shape")


def _given(function: ast.AST, name: str) -> list[ast.expr]:
    """Return all that a function gives to a variable of its own; nothing where something else names it, too."""
    assigned = [(t, n.value) for n in ast.walk(function) if isinstance(n, ast.Assign) for t in n.targets]
    assigned += [(n.target, n.value) for n in ast.walk(function) if isinstance(n, ast.AugAssign)]
    given = [value for target, value in assigned if isinstance(target, ast.Name) and target.id == name]
    stored = sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(function))
    arguments = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    return given if len(given) == stored and name not in arguments else []


def _assigned(module: Module, changed: ast.AugAssign) -> list[ast.expr]:
    """Return what is assigned to a variable of a function that is changed in place."""
    name = ast.unparse(changed.target)
    statements = [n for n in ast.walk(_function(module, changed)) if isinstance(n, ast.Assign)]
    return [n.value for n in statements if any(ast.unparse(target) == name for target in n.targets)]


def _function(module: Module, node: ast.AST) -> ast.AST:
    """Return the innermost function around a node, or the module."""
    found: ast.AST = module.tree
    for function in module.nodes:
        if isinstance(function, _FUNCTIONS) and any(n is node for n in ast.walk(function)):
            found = function
    return found


def _is_local(module: Module, node: ast.Call) -> bool:
    """Return whether a tensor is a variable of a function, or used at once: fields may be moved with their object."""
    owner = _function(module, node)
    if _MOVED.search(module.text(owner)):
        return False
    for statement in ast.walk(owner):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(isinstance(t, ast.Attribute | ast.Subscript) for t in targets) and any(
            n is node for n in ast.walk(statement)
        ):
            return False
    return True
