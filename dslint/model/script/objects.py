"""What a name holds: a DeepSpeed engine, a Hugging Face trainer, an accelerator, a DDP model."""

from __future__ import annotations

import libcst as cst

from dslint.model.context import is_named
from dslint.model.script.bindings import Binding
from dslint.model.script.dotted import is_self, last_name
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

_MAX_STEPS = 6
# Results of ``deepspeed.initialize`` by position.
_INITIALIZE = {0: "engine", 1: "ds_optimizer"}
# A parameter with one of these names in a file that imports DeepSpeed; ``engine`` alone may be anything.
_ENGINE_NAMES = frozenset({"model_engine", "ds_engine", "deepspeed_engine"})
_ENGINE_METHODS = frozenset(
    {"save_checkpoint", "load_checkpoint", "save_16bit_model", "is_gradient_accumulation_boundary"}
)
_CLASSES = {
    "torch.nn.parallel.DistributedDataParallel": "ddp",
    "torch.nn.parallel.distributed.DistributedDataParallel": "ddp",
    "accelerate.Accelerator": "accelerator",
    "accelerate.accelerator.Accelerator": "accelerator",
    "accelerate.PartialState": "accelerator",
    "accelerate.state.PartialState": "accelerator",
    "accelerate.state.AcceleratorState": "accelerator",
    "deepspeed.DeepSpeedEngine": "engine",
    "deepspeed.runtime.engine.DeepSpeedEngine": "engine",
}
_TRAINER_ROOTS = ("transformers.", "trl.")
_OTHER_TRAINERS = ("pytorch_lightning.", "lightning.", "tokenizers.", "mmengine.", "colossalai.", "flax.")


class Objects:
    """Object kinds of one module. Tags flow forward through assignment, unpacking, ``self.x`` and one call."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self._known: dict[int, str] = {}
        self._calls: dict[int, list[cst.Call]] | None = None
        self._raw: dict[int, int] | None = None
        self._imports_deepspeed = names.imported("deepspeed")

    def kind(self, node: cst.CSTNode) -> str:
        """``engine``, ``ds_optimizer``, ``trainer``, ``accelerator``, ``ddp``, ``training_arguments`` or empty."""
        found = self._known.get(id(node))
        if found is None:
            found = self._known[id(node)] = self._kind(node, 0)
        return found

    def class_kind(self, qualified: str) -> str:
        """The kind of the instances of a class."""
        if qualified in _CLASSES:
            return _CLASSES[qualified]
        if is_named(qualified, self._names.own.trainers):
            return "trainer"
        if qualified.startswith(_TRAINER_ROOTS):
            if qualified.endswith("Trainer"):
                return "trainer"
            if qualified.endswith("TrainingArguments"):
                return "training_arguments"
        return ""

    def _kind(self, node: cst.CSTNode | None, steps: int) -> str:
        if node is None or steps > _MAX_STEPS:
            return ""
        if isinstance(node, cst.Call):
            return self._constructed(node) or self._returned(node, None, steps)
        if isinstance(node, cst.Subscript):
            return self._initialized(self._names.single_value(node.value) or node.value, _constant_index(node))
        if isinstance(node, cst.Name):
            if is_self(node):
                return self._own_class(node)
            return self._of_bindings(node, node.value, self._names.bindings(node.value, node), steps)
        return self._of_attribute(node, steps) if isinstance(node, cst.Attribute) else ""

    def _of_attribute(self, node: cst.Attribute, steps: int) -> str:
        name = node.attr.value
        if name == "module":
            inner = self._kind(node.value, steps + 1)
            if inner in ("engine", "ddp"):
                return f"{inner}_module"
        if name == "accelerator" and self._kind(node.value, steps + 1) == "trainer":
            return "accelerator"
        if name == "trainer" and self._is_in_callback(node):
            return "trainer"
        return self._of_bindings(node, name, self._names.attribute_bindings(node), steps)

    def _of_bindings(self, node: cst.CSTNode, name: str, found: list[Binding], steps: int) -> str:
        before = [b for b in found if self._before(b, node)] or found
        for binding in reversed(before):
            kind = self._bound(binding, steps)
            # ``if args.x: model = DDP(model)`` makes one kind of two: the last known one stands.
            if kind or binding.kind != "assign":
                break
        else:
            kind = ""
        if not kind and self._imports_deepspeed and self._is_wrapped(found, node):
            return "engine_module"
        if not kind and name == "accelerator" and _is_open(found):
            return "accelerator"
        if not kind and self._imports_deepspeed and _is_open(found) and self._looks_like_engine(node, name):
            return "engine"
        return kind

    def _is_wrapped(self, found: list[Binding], node: cst.CSTNode) -> bool:
        """The variable was passed to ``deepspeed.initialize(model=...)`` before: its layers are the engine's."""
        if self._raw is None:
            self._raw = {}
            for call in self._tree.order:
                if isinstance(call, cst.Call) and self._names.qualified(call.func) == "deepspeed.initialize":
                    model = _passed_model(call)
                    bindings = self._names.bindings(model.value, model) if model is not None else []
                    if bindings:
                        self._raw.setdefault(id(bindings[0]), self._tree.position(call))
        start = self._raw.get(id(found[0])) if found else None
        return start is not None and start < self._tree.position(node)

    def _looks_like_engine(self, node: cst.CSTNode, name: str) -> bool:
        if name in _ENGINE_NAMES:
            return True
        # ``engine`` alone may be anything, unless it does what only a DeepSpeed engine does.
        user = self._tree.parent(node)
        return name == "engine" and isinstance(user, cst.Attribute) and user.attr.value in _ENGINE_METHODS

    def _before(self, binding: Binding, node: cst.CSTNode) -> bool:
        return self._tree.position(binding.node) < self._tree.position(node)

    def _bound(self, binding: Binding, steps: int) -> str:
        if binding.kind == "unpack":
            return self._initialized(binding.value, binding.position) or self._returned(
                binding.value, binding.position, steps
            )
        if binding.kind == "param":
            return self._parameter(binding.node, steps)
        return self._kind(binding.value, steps + 1) if binding.kind in ("assign", "with") else ""

    def _initialized(self, value: cst.CSTNode | None, position: int | None) -> str:
        if not isinstance(value, cst.Call) or position is None:
            return ""
        is_own = self._names.is_own(value.func, self._names.own.engines)
        if is_own or self._names.qualified(value.func) == "deepspeed.initialize":
            return _INITIALIZE.get(position, "")
        if isinstance(value.func, cst.Attribute) and value.func.attr.value == "prepare":
            return "prepared" if self.kind(value.func.value) == "accelerator" else ""
        return ""

    def _returned(self, value: cst.CSTNode | None, position: int | None, steps: int) -> str:
        """The kind of what a function of this file returns, when all its returns agree."""
        function = self._names.local_function(value) if isinstance(value, cst.Call) else None
        if function is None:
            return ""
        kinds = set()
        for node in self._tree.own_nodes(function):
            if isinstance(node, cst.Return):
                kinds.add(self._kind(_element(node.value, position), steps + 2))
        return kinds.pop() if len(kinds) == 1 else ""

    def _constructed(self, call: cst.Call) -> str:
        if self._names.is_own(call.func, self._names.own.engines):
            return "engine"
        name = self._names.qualified(call.func)
        if name is not None:
            return self.class_kind(name) or self._foreign_trainer(name, call)
        local = last_name(call.func) if isinstance(call.func, cst.Name) else ""
        return self.class_kind(local) or self._local_class_kind(local) if local else ""

    def _foreign_trainer(self, name: str, call: cst.Call) -> str:
        """``CPMTrainer(model=model, args=args, ...)`` from another file of the project of a transformers user."""
        keywords = {a.keyword.value for a in call.args if a.keyword is not None}
        if not name.endswith("Trainer") or name.startswith(_OTHER_TRAINERS):
            return ""
        return "trainer" if {"model", "args"} <= keywords and self._names.imported("transformers") else ""

    def _local_class_kind(self, name: str) -> str:
        return next(filter(None, (self.class_kind(base) for base in self._names.class_bases(name))), "")

    def _is_in_callback(self, node: cst.CSTNode) -> bool:
        """``self.trainer`` of a callback is the Hugging Face trainer that was handed to it."""
        owner = self._tree.enclosing(node, cst.ClassDef)
        bases = self._names.class_bases(owner.name.value) if isinstance(owner, cst.ClassDef) else []
        return any(b.startswith("transformers.") and b.endswith("TrainerCallback") for b in bases)

    def _own_class(self, node: cst.Name) -> str:
        owner = self._tree.enclosing(node, cst.ClassDef)
        return self._local_class_kind(owner.name.value) if isinstance(owner, cst.ClassDef) else ""

    def _parameter(self, node: cst.CSTNode, steps: int) -> str:
        if not isinstance(node, cst.Param):
            return ""
        if node.annotation is not None:
            name = self._names.qualified(node.annotation.annotation)
            kind = self.class_kind(name) if name else ""
            if kind:
                return kind
        function = self._tree.function(node)
        if function is None:
            return ""
        kinds = {self._passed(call, function, node, steps) for call in self._callers(function)}
        return kinds.pop() if len(kinds) == 1 else ""

    def _passed(self, call: cst.Call, function: cst.FunctionDef, param: cst.Param, steps: int) -> str:
        """The kind of the argument that a call passes for a parameter."""
        names = [p.name.value for p in (*function.params.posonly_params, *function.params.params)]
        if names and names[0] == "self" and isinstance(call.func, cst.Attribute):
            names = names[1:]
        for index, arg in enumerate(call.args):
            given = arg.keyword.value if arg.keyword else (names[index] if index < len(names) else "")
            if given == param.name.value and not arg.star:
                return self._kind(arg.value, steps + 2)
        return ""

    def _callers(self, function: cst.FunctionDef) -> list[cst.Call]:
        if self._calls is None:
            self._calls = {}
            for node in self._tree.order:
                local = self._names.local_function(node) if isinstance(node, cst.Call) else None
                if local is not None and isinstance(node, cst.Call):
                    self._calls.setdefault(id(local), []).append(node)
        return self._calls.get(id(function), [])


def _passed_model(call: cst.Call) -> cst.Name | None:
    named = (a.value for a in call.args if a.keyword is not None and a.keyword.value == "model")
    model = next(named, call.args[1].value if len(call.args) > 1 and call.args[1].keyword is None else None)
    return model if isinstance(model, cst.Name) else None


def _is_open(found: list[Binding]) -> bool:
    """Nothing in the file says what the name holds."""
    return all(b.kind == "param" or b.value is None or isinstance(b.value, cst.Attribute) for b in found)


def _element(value: cst.BaseExpression | None, position: int | None) -> cst.BaseExpression | None:
    """What stands at a position of a returned tuple; the whole value without a position."""
    if position is None:
        return value
    parts = value.elements if isinstance(value, cst.Tuple) else ()
    return parts[position].value if position < len(parts) else None


def _constant_index(node: cst.Subscript) -> int | None:
    index = node.slice[0].slice if len(node.slice) == 1 else None
    if isinstance(index, cst.Index) and isinstance(index.value, cst.Integer):
        return int(index.value.value)
    return None
