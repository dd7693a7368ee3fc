"""Layers of which only the name is known: `self.visual(images)`, `self.get_vision_tower()(images)`, `expert(rows)`.

A class is a model by its bases, by its name, or by its `forward`; its layers are called what everybody calls them.
"""

from __future__ import annotations

import ast
import re

from dslint.python import attributes
from dslint.python.binding import Arguments, default_of
from dslint.python.events import Event
from dslint.python.machine import Machine
from dslint.python.values import ClassAtom, Function, Instance, Value, one

_MODULE = "torch.nn.Module"
# The tag of a layer that runs and of which nothing but the name is known. Its event has the arguments that differ, of
# an expert all.
NAMED = "named-layer"
# What a batch may lack, as the parameters of a forward call it ...
_OPTIONAL = re.compile(r"pixel|image|vision|video|audio|speech|mel_|input_features|multimodal", re.I)
# ... but for what was computed before: that is there, or not, for every batch.
_COMPUTED = re.compile(r"hidden_states|features_list|embeds|_token")
_RUNS_MODEL = re.compile(r"forward|^prepare_inputs|^get_\w*embed|^_?merge")
# Layers that read it, by the names that everybody gives them, and methods that compute something else.
_LAYER = re.compile(r"vision|visual|image|video|audio|speech|vpm|apm|resampl|projector|connector|whisper|vit\b", re.I)
_NO_LAYER = re.compile(
    r"^_?(?:pre_?)?process|^_?prepare|^_?merge|token|mask|size|grid|_ids?$|index|position|rope|config"
)
_EXPERT = re.compile(r"expert", re.I)
# Classes that are models by their names, and those that only prepare what models read.
_MODEL = re.compile(r"Module|Model|For[A-Z]|LM$")
_NO_MODEL = re.compile(r"Process|Token|Collat|Dataset|Template|Trainer|Config|Pipeline")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_optional(text: str) -> bool:
    """Return whether a text speaks of what a batch may lack: images, a sound."""
    return _OPTIONAL.search(text) is not None


def speaks_of_experts(text: str) -> bool:
    """Return whether a text speaks of the experts of a mixture."""
    return _EXPERT.search(text) is not None


def may_lack(function: Function, name: str) -> bool:
    """Return whether a parameter of a forward is one that only some batches fill: `pixel_values=None`."""
    return not isinstance(function.node, ast.Lambda) and _may_lack(function.node, name)


def _may_lack(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    if not _OPTIONAL.search(name) or _COMPUTED.search(name) or not runs_model(node):
        return False
    default = default_of(node.args, name)
    return default.value is None if isinstance(default, ast.Constant) else default is None and _asks(node, name)


def _asks(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    """Return whether a function asks whether a parameter is there."""
    tests = (n for n in ast.walk(node) if isinstance(n, ast.Compare) and isinstance(n.left, ast.Name))
    return any(
        test.left.id == name and isinstance(last := test.comparators[-1], ast.Constant) and last.value is None
        for test in tests
        if isinstance(test.left, ast.Name)
    )


def runs_model(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a method runs a model or prepares what its layers read, by its name."""
    positional = [*node.args.posonlyargs, *node.args.args]
    return bool(positional) and positional[0].arg == "self" and _RUNS_MODEL.search(node.name) is not None


def may_skip(node: ast.AST) -> bool:
    """Return whether a method that runs a model may leave out layers, by the names in it."""
    if not isinstance(node, _FUNCTIONS) or not runs_model(node):
        return False
    given = (parameter.arg for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))
    return any(_may_lack(node, name) for name in given) or any(
        isinstance(n, ast.Attribute) and _EXPERT.search(n.attr) for n in ast.walk(node)
    )


def is_model(m: Machine, cls: ClassAtom) -> bool:
    """Return whether a class has layers, by its bases, its name or its methods; a processor of inputs has none."""
    names = [cls.node.name]
    lineage = attributes.lineage(m, cls)
    for base in lineage:
        written = [ast.unparse(b) for b in base.node.bases] if isinstance(base, ClassAtom) else []
        names += [base.node.name, *written] if isinstance(base, ClassAtom) else [base]
    names = [name.rpartition(".")[2] for name in names]
    if any(map(_NO_MODEL.search, names)):
        return False
    methods = {n.name for b in lineage if isinstance(b, ClassAtom) for n in b.node.body if isinstance(n, _FUNCTIONS)}
    return any(map(_MODEL.search, names)) or "forward" in methods


# -- events -----------------------------------------------------------------------------------------------------


def note_layer(m: Machine, atom: Instance, name: str, arguments: Arguments, node: ast.AST) -> None:
    """Note that a layer runs of which only the name is known: `self.visual(pixel_values)`."""
    if not _LAYER.search(name) or _NO_LAYER.search(name):
        return
    row = m.libraries.method(_MODULE, "forward")
    given = _given(arguments)
    if row is not None and any(m.varies(value) for value in given.values()) and _is_of_module(m, atom):
        receiver = attributes.child(m, atom, name)
        m.events.append(Event(row.path, row.tags, node, m.frame.module, receiver, given, None, m.lanes, m.control))
    elif given and _is_of_self(m, atom, node) and _runs_in_model(m):
        _note(m, attributes.child(m, atom, name), given, node)


def note_object(m: Machine, atom: Instance, function: Value, arguments: Arguments, node: ast.AST) -> None:
    """Note that an object runs that is a layer by the name of what gave it: `self.get_vision_tower()(images)`."""
    if atom.cls or not m.alive:
        return
    match function.number:
        case ("field", Instance() as owner, str() as name):  # `tower = self.vision_tower`
            note_layer(m, owner, name, arguments, node)
            return
    made = ast.walk(atom.node) if isinstance(atom.node, ast.expr) else ()
    is_expert = any(_EXPERT.search(getattr(part, "attr", getattr(part, "id", ""))) for part in made)
    if (is_expert or _gives_layer(atom.node)) and _runs_in_model(m):
        _note(m, one(atom), _given(arguments), node, is_expert=is_expert)


def _gives_layer(made: ast.AST) -> bool:
    """Return whether an object comes from a method that is called as a layer."""
    name = made.func.attr if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) else ""
    return bool(_LAYER.search(name)) and not _NO_LAYER.search(name) and _first(made) == "self"


def _note(m: Machine, receiver: Value, given: dict[str, Value], node: ast.AST, *, is_expert: bool = False) -> None:
    own = {name: value for name, value in given.items() if is_expert or m.varies(value)}
    tags = frozenset({NAMED})
    m.events.append(Event(f"{_MODULE}.forward", tags, node, m.frame.module, receiver, own, None, m.lanes, m.control))


def _given(arguments: Arguments) -> dict[str, Value]:
    return {str(at): value for at, value in enumerate(arguments.positional)} | arguments.keywords


def _is_of_module(m: Machine, atom: Instance) -> bool:
    if atom.cls:
        return attributes.is_instance_of(m, atom.cls, _MODULE)
    outer = m.frame.receiver.single if m.frame.receiver is not None else None
    return isinstance(outer, Instance) and bool(outer.cls) and attributes.is_instance_of(m, outer.cls, _MODULE)


def _runs_in_model(m: Machine) -> bool:
    """Return whether a method of a model runs, or a function that is patched into one."""
    outer = m.frame.receiver.single if m.frame.receiver is not None else None
    if isinstance(outer, Instance) and isinstance(outer.cls, ClassAtom):
        return is_model(m, outer.cls)
    function = m.frame.function.node if m.frame.function is not None else None
    return isinstance(function, _FUNCTIONS) and "forward" in function.name and runs_model(function)


def _is_of_self(m: Machine, atom: Instance, node: ast.AST) -> bool:
    """Return whether a call is one of `self`, or of what it holds or gives."""
    outer = m.frame.receiver.single if m.frame.receiver is not None else None
    is_held = isinstance(outer, Instance) and atom.node is outer.node
    return is_held or "self" in (_first(node), _first(atom.node))


def _first(node: ast.AST) -> str:
    """Return the name with which an expression begins: `self` of `self.get_model().vision_tower(...)`."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
