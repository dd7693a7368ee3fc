"""Where tensors lie: which calls have certainly made them in the memory of the host."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dslint.python.values import Api, Const, Instance, PerRank, Tuple, Unknown, Value

if TYPE_CHECKING:
    from dslint.python.binding import BoundArguments
    from dslint.python.libraries import Row
    from dslint.python.machine import Machine
    from dslint.python.source import Module

_TENSORS = frozenset({"torch.Tensor", ""})
_NUMBERS = frozenset({"builtins.int", "builtins.float", "builtins.bool"})
_COUNTS = frozenset(f"result of `torch.Tensor.{name}`" for name in ("numel", "nelement", "dim", "item", "size"))
_ITEMS = frozenset({"builtins.list", "builtins.tuple", "numpy.ndarray"})
# A tensor that comes by one of these parameters keeps its device.
_KEPT = ("data", "obj")
# A module that is moved moves these, too.
_MOVED_WITH_MODULE = frozenset(
    {"torch.nn.Parameter", "torch.nn.Module.register_buffer", "torch.nn.Module.register_parameter"}
)


def called(m: Machine, row: Row, bound: BoundArguments, base: Value | None, result: Value, node: ast.AST) -> None:
    """Note the device that a call names for the tensor that it makes, and whether this lies on the host."""
    if row.path in _MOVED_WITH_MODULE:
        for value in bound.given.values():
            _forget(m, value)
    atom = result.single
    if not isinstance(atom, Instance):
        return
    if "on_host" in row.extra and "device" in bound.given:
        m.devices[atom] = bound.given["device"]
    if atom.cls in _TENSORS:
        _note(m, atom, _place(m, row, bound, base, node))


def computed(m: Machine, operands: Iterable[Value], result: Value, node: ast.AST) -> None:
    """Note that what is computed of tensors on the host, and of plain numbers, lies there, too."""
    atom = result.single
    if not isinstance(atom, Instance):
        return
    given = list(operands)[:1] if isinstance(node, ast.AugAssign) else operands  # a tensor is changed in its place
    places = [on_host(m, value) for value in given if not _is_plain(value)]
    _note(m, atom, places[0] if places and all(places) else None)


def on_host(m: Machine, value: Value) -> tuple[Module, ast.AST] | None:
    """Return the call that has made a tensor, where each that may have made it leaves it on the host."""
    places = [m.hosted.get(atom) if isinstance(atom, Instance) else None for atom in value.atoms]
    return places[0] if places and all(places) else None


def left_by(m: Machine, node: ast.AST) -> tuple[Module, ast.AST] | None:
    """Return where the tensors were made that a call gives, where all of them lie on the host."""
    places = [place for atom, place in m.hosted.items() if atom.node is node]
    return places[0] if places and all(places) else None


def _note(m: Machine, atom: Instance, place: tuple[Module, ast.AST] | None) -> None:
    # Made twice in one place, it stands for both.
    m.hosted[atom] = place if m.hosted.get(atom, place) is not None else None


def _forget(m: Machine, value: Value) -> None:
    for atom in value.atoms:
        if isinstance(atom, Instance) and atom in m.hosted:
            m.hosted[atom] = None


def _place(
    m: Machine, row: Row, bound: BoundArguments, base: Value | None, node: ast.AST
) -> tuple[Module, ast.AST] | None:
    here = (m.frame.module, node)
    if base is not None and "moves-to-device" in row.tags:
        return _moved(m, row, bound, base, here)
    if "on_host" not in row.extra:
        return _of_operands(m, row, bound, base)
    if bound.rest is not None or bound.open_keywords is not None:
        return None
    if isinstance(node, ast.Call) and m.frame.module.path_of(node.func).startswith("torch.cuda."):
        return None  # `torch.cuda.FloatTensor(...)` lies on the GPU
    device = bound.given.get("device")
    if device is not None and device.constants != (None,) and not is_cpu(device):
        return None
    data = next((bound.given[name] for name in _KEPT if name in bound.given), None)
    return here if data is None or _is_plain(data, holds=True) or _counts(m, data) else None


def _of_operands(m: Machine, row: Row, bound: BoundArguments, base: Value | None) -> tuple[Module, ast.AST] | None:
    """Return where the result of an operation of torch lies: with its tensors, where all of them are on the host."""
    is_open = bound.rest is not None or bound.open_keywords is not None or "device" in bound.given
    if is_open or (row.returns.word, row.returns.name) != ("new", "torch.Tensor"):
        return None
    operands = [*([base] if base is not None else []), *bound.given.values(), *bound.extra]
    places = [_all_on_host(m, value) for value in operands if not _is_plain(value)]
    return places[0] if places and all(places) else None


def _all_on_host(m: Machine, value: Value) -> tuple[Module, ast.AST] | None:
    """Return where a tensor was made on the host, or the first tensor of a sequence of such ones."""
    inner = [item for atom in value.atoms if isinstance(atom, Tuple) for item in atom.items]
    inner += [i for atom in value.atoms if isinstance(atom, Instance) and atom.cls in _ITEMS for i in m.elements(atom)]
    places = [on_host(m, item) for item in inner] if inner else [on_host(m, value)]
    return places[0] if all(places) else None


def _moved(
    m: Machine, row: Row, bound: BoundArguments, base: Value, here: tuple[Module, ast.AST]
) -> tuple[Module, ast.AST] | None:
    """Return where a tensor lies that is moved, or given another type by the same method."""
    if not row.path.endswith(".to") or bound.rest is not None or bound.open_keywords is not None:
        return None
    places = [value for value in bound.extra if not _is_type_or_switch(value)]
    places += [value for name, value in bound.extra_keywords.items() if name == "device"]
    if not places:
        return on_host(m, base)
    return here if all(is_cpu(value) for value in places) else None


def _is_type_or_switch(value: Value) -> bool:
    atom = value.single
    return isinstance(atom, Api) or (isinstance(atom, Const) and isinstance(atom.value, bool))


def _counts(m: Machine, value: Value) -> bool:
    """Return whether a value is a number that a tensor tells of itself, wherever it lies."""
    contents = [m.content(atom) for atom in value.atoms if isinstance(atom, Instance)]
    told = [a for held in contents if held is not None for a in held.atoms if isinstance(a, Unknown)]
    return len(told) == len(value.atoms) > 0 and all(atom.reason in _COUNTS for atom in told)


def _is_plain(value: Value, *, holds: bool = False) -> bool:
    """Return whether a value is a number for certain, or holds things one by one: no tensor that keeps its device."""
    for atom in value.atoms:
        if isinstance(atom, Unknown) and atom.type not in _NUMBERS:
            return False
        if isinstance(atom, Instance) and not (holds and atom.cls in _ITEMS):
            return False
        if not isinstance(atom, Api | Const | PerRank | Unknown | Instance) and not (holds and isinstance(atom, Tuple)):
            return False
    return bool(value.atoms)


def is_cpu(device: Value) -> bool:
    """Return whether a device is certainly the host."""
    if device.constants is not None:
        return bool(device.constants) and all(str(text).partition(":")[0] == "cpu" for text in device.constants)
    atom = device.single
    node = atom.node if isinstance(atom, Instance) and atom.cls == "torch.device" else None
    if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
        return False
    text = node.args[0]
    return isinstance(text, ast.Constant) and str(text.value).partition(":")[0] == "cpu"
