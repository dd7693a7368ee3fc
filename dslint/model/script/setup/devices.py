"""Where a file names the first GPU by a literal."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from dslint.model.script.constants import Constants
from dslint.model.script.dotted import dotted
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

_DEVICE_KEYWORDS = frozenset({"device", "map_location"})
_MAX_ALIASES = 4


class Devices:
    """Answers which devices one module chooses."""

    def __init__(self, tree: Tree, names: Names, constants: Constants) -> None:
        self._tree = tree
        self._names = names
        self._constants = constants

    @cached_property
    def _calls(self) -> list[cst.Call]:
        return self._tree.every(cst.Call)

    # -- GPU 0 by its name ------------------------------------------------------------------------------------------

    @cached_property
    def first_gpu(self) -> tuple[cst.BaseExpression, ...]:
        """The expressions that name GPU 0 where a model, a tensor or a process is put on it."""
        found = []
        for call in self._calls:
            found += [value for value, takes_number in self._places(call) if self._is_gpu_0(value, takes_number)]
        return tuple(found)

    def _places(self, call: cst.Call) -> Iterator[tuple[cst.BaseExpression, bool]]:
        """What a call takes for a device, and whether a plain number may be one there."""
        name, method = self._names.called(call), isinstance(call.func, cst.Attribute)
        positional = [a.value for a in call.args if a.keyword is None and not a.star]
        is_module = (self._names.qualified(call.func) or "").startswith("torch.")
        takes = name == "set_device" or (name in ("cuda", "to") and not is_module)
        if takes and method and positional:
            yield positional[0], True
        elif self._names.qualified(call.func) == "torch.device" and positional:
            yield (positional[1], True) if len(positional) == 2 else (positional[0], False)
        for arg in call.args:
            keyword = arg.keyword.value if arg.keyword is not None else ""
            if keyword in _DEVICE_KEYWORDS:
                yield arg.value, False
            elif keyword == "device_map":
                value = self._names.single_value(arg.value) or arg.value
                whole = self._whole(value) if isinstance(value, cst.Dict) else None
                if whole is not None:
                    yield whole, True

    def _whole(self, node: cst.Dict) -> cst.BaseExpression | None:
        """``x`` of ``{"": x}``."""
        element = node.elements[0] if len(node.elements) == 1 else None
        if isinstance(element, cst.DictElement) and self._constants.value(element.key).get_or(None) == "":
            return element.value
        return None

    def _is_gpu_0(self, node: cst.BaseExpression, takes_number: bool, depth: int = 0) -> bool:
        if depth > _MAX_ALIASES:
            return False
        if isinstance(node, cst.IfExp):  # ``"cuda:0" if torch.cuda.is_available() else "cpu"``
            return "is_available" in (dotted(getattr(node.test, "func", None)) or "") and self._is_gpu_0(
                node.body, takes_number, depth + 1
            )
        if isinstance(node, cst.Integer):
            return takes_number and node.value == "0"
        if isinstance(node, cst.SimpleString):
            return node.evaluated_value == "cuda:0"
        if isinstance(node, cst.Name):
            found = self._names.bindings(node.value, node)
            # A parameter may be anything; a number behind a name is a setting.
            if len(found) == 1 and found[0].kind == "assign" and found[0].value is not None:
                return self._is_gpu_0(found[0].value, False, depth + 1)
        return False
