"""Attributes of the project's own objects that nothing in the project defines or sets."""

from __future__ import annotations

import ast
import re
from functools import cached_property

from dslint.python import attributes
from dslint.python.source import Module
from dslint.python.values import ClassAtom
from dslint.rules.runs import RunQuery

_BASES = frozenset({"torch.nn.Module", "torch.utils.data.Dataset", "builtins.object", "typing.Generic", "abc.ABC"})
# What sets attributes by names that nobody reads, in a class.
_OPEN = re.compile(
    r"\b(?:setattr|vars|delattr|exec|locals)\(|__dict__|__getattr|__new__|__set|__slots__|update_wrapper"
)
# A name, or the name of a part inside of a model: `"encoder.weight" in model.state_dict()`.
_DOTTED = re.compile(r"[\w.]+")
_SETTINGS = re.compile(r"(?i)arg|conf|cfg|opt|param|hp|setting")
# The model inside of what `torch.compile` gives.
_COMPILED = "_orig_mod"
# What every module of torch has.
_OF_MODULES = frozenset({
    *("T_destination", "_apply", "_backward_hooks", "_backward_pre_hooks", "_buffers", "_call_impl"),
    *("_compiled_call_impl", "_forward_hooks", "_forward_hooks_always_called", "_forward_hooks_with_kwargs"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_get_backward_hooks", "_get_backward_pre_hooks"),
    *("_get_name", "_is_full_backward_hook", "_load_from_state_dict", "_load_state_dict_post_hooks"),
    *("_load_state_dict_pre_hooks", "_maybe_warn_non_full_backward_hook", "_modules", "_named_members"),
    *("_non_persistent_buffers_set", "_parameters", "_register_load_state_dict_pre_hook"),
    *("_register_state_dict_hook", "_replicate_for_data_parallel", "_save_to_state_dict", "_slow_forward"),
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_version", "_wrapped_call_impl", "add_module", "apply"),
    *("bfloat16", "buffers", "call_super_init", "children", "compile", "cpu", "cuda", "double", "dump_patches"),
    *("eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state", "get_parameter"),
    *("get_submodule", "half", "ipu", "load_state_dict", "modules", "mtia", "named_buffers", "named_children"),
    *("named_modules", "named_parameters", "parameters", "register_backward_hook", "register_buffer"),
    *("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"),
    *("register_full_backward_pre_hook", "register_load_state_dict_post_hook"),
    *("register_load_state_dict_pre_hook", "register_module", "register_parameter"),
    *("register_state_dict_post_hook", "register_state_dict_pre_hook", "requires_grad_", "set_extra_state"),
    *("set_submodule", "share_memory", "state_dict", "to", "to_empty", "train", "training", "type", "xpu"),
    *("zero_grad"),
})  # fmt: skip


class OwnAttributes:
    """What the modules of a run say of attributes."""

    def __init__(self, run: RunQuery) -> None:
        self._machine = run.machine
        self._modules = run.machine.program.modules()

    def lacks(self, cls: ClassAtom, name: str) -> bool:
        """Return whether objects of a class certainly have no attribute of that name."""
        if name.startswith("__") or name in _OF_MODULES or name == _COMPILED or name in self._set or self._is_open:
            return False
        return all(self._says_nothing(base, name) for base in attributes.lineage(self._machine, cls))

    def names(self, cls: ClassAtom) -> set[str]:
        """Return the names that a class and its bases define or set on `self`."""
        found: set[str] = set()
        for base in attributes.lineage(self._machine, cls):
            for node in ast.walk(base.node) if isinstance(base, ClassAtom) else ():
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.add(node.name)
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    found.add(node.attr)
        return found

    @staticmethod
    def _says_nothing(base: ClassAtom | str, name: str) -> bool:
        """Return whether all that a class defines is known, and nothing has that name."""
        if isinstance(base, str):
            return base in _BASES
        node = base.node
        if node.decorator_list or any(
            keyword.arg != "metaclass" or _is_odd(keyword.value) for keyword in node.keywords
        ):
            return False
        if _OPEN.search(base.module.text(node)):
            return False
        return not any(name in _bound(inner) for inner in ast.walk(node))

    @cached_property
    def _set(self) -> frozenset[str]:
        """Return the names that some code sets on an object, and all plain words in texts: `setattr(x, "name", y)`."""
        return frozenset().union(*(module.once(_names_set) for module in self._modules))

    @cached_property
    def _is_open(self) -> bool:
        """Return whether some code sets attributes of models or the like by names that it computes."""
        return any(module.once(_sets_any) for module in self._modules)


def _names_set(module: Module) -> frozenset[str]:
    found: set[str] = set()
    for node in module.nodes_of(ast.Attribute, ast.Constant, ast.keyword):
        if isinstance(node, ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                found.add(node.attr)
        elif isinstance(node, ast.keyword):
            found.add(node.arg or "")
        elif isinstance(node, ast.Constant):
            text = node.value if isinstance(node.value, str) else ""
            found.update(text.split(".") if _DOTTED.fullmatch(text) else ())
    return frozenset(found)


def _sets_any(module: Module) -> bool:
    if "setattr(" not in module.source.text:
        return False
    for node in module.nodes_of(ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "setattr" and len(node.args) == 3:
            where, name = node.args[:2]
            if not isinstance(name, ast.Constant) and not _SETTINGS.search(ast.unparse(where)):
                return True
    return False


def _is_odd(metaclass: ast.expr) -> bool:
    return ast.unparse(metaclass).rpartition(".")[2] != "ABCMeta"


def _bound(node: ast.AST) -> tuple[str, ...]:
    """Return what a statement in the body of a class binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.alias):
        return (node.asname or node.name,)
    return (node.id,) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ()
