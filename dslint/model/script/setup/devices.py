"""Which GPU a file chooses: by an index, by a rank, by a literal, or the current one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.constants import Constants
from dslint.model.script.dotted import dotted
from dslint.model.script.names import Names
from dslint.model.script.ranks.rankset import number_of
from dslint.model.script.tree import Tree

_RANK_MODULES = ("torch.distributed", "deepspeed.comm", "mmengine", "mmcv", "accelerate")
_GLOBAL_VARIABLES = frozenset({"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"})
_DEVICE_KEYWORDS = frozenset({"device", "map_location"})
# Functions of ``torch.cuda`` that start CUDA in the process (``_lazy_init``, or ``cuInit`` for ``is_available``).
_STARTING = frozenset(
    {
        *("init", "set_device", "current_device", "get_device_name", "get_device_properties", "get_device_capability"),
        *("mem_get_info", "synchronize", "current_stream", "is_available", "is_bf16_supported"),
    }
)
_MAX_ALIASES = 4


@dataclass(frozen=True, slots=True)
class Choice:
    """A place that chooses a GPU by ``index``; ``call`` is the call that gets it."""

    index: cst.BaseExpression
    call: cst.CSTNode


class Devices:
    """Answers which devices one module chooses."""

    def __init__(self, tree: Tree, names: Names, constants: Constants) -> None:
        self._tree = tree
        self._names = names
        self._constants = constants

    @cached_property
    def _calls(self) -> list[cst.Call]:
        return self._tree.every(cst.Call)

    # -- chosen by an index ---------------------------------------------------------------------------------------

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """``set_device(x)``, ``torch.device("cuda", x)``, ``f"cuda:{x}"``, ``.cuda(x)``, ``device_ids=[x]``, a map."""
        found: list[Choice] = []
        for node in self._tree.some(cst.Call, cst.FormattedString, cst.Dict):
            if isinstance(node, cst.Call):
                found += (Choice(index, node) for index in self._indices(node))
            elif isinstance(node, cst.FormattedString):
                index = _formatted_index(node)
                if index is not None:
                    found.append(Choice(index, node))
            elif isinstance(node, cst.Dict):  # a ``device_map`` that puts the whole model on one GPU
                whole = self._whole(node)
                if whole is not None:
                    found.append(Choice(whole, node))
        return tuple(found)

    def _indices(self, call: cst.Call) -> Iterator[cst.BaseExpression]:
        name, values = self._names.called(call), [a.value for a in call.args if a.keyword is None and not a.star]
        is_method = isinstance(call.func, cst.Attribute)
        if (name == "set_device" or (name == "cuda" and is_method)) and len(call.args) == 1:
            yield from values or [call.args[0].value]
        elif name == "device" and len(values) == 2:
            yield values[1]
        for arg in call.args:
            keyword = arg.keyword.value if arg.keyword is not None else ""
            if keyword == "device_ids" and isinstance(arg.value, cst.List) and len(arg.value.elements) == 1:
                yield arg.value.elements[0].value
            elif keyword == "device_id":
                yield arg.value

    def is_global_rank(self, node: cst.BaseExpression, depth: int = 0) -> bool:
        """The expression is the rank in the whole job: on the second machine it is no index of a GPU."""
        if depth > _MAX_ALIASES:
            return False
        if isinstance(node, cst.Call):
            return self._is_rank_call(node, depth)
        if isinstance(node, cst.Subscript):
            index = node.slice[0].slice if len(node.slice) == 1 else None
            key = self._constants.value(index.value).get_or(None) if isinstance(index, cst.Index) else None
            return self._names.qualified(node.value) == "os.environ" and key in _GLOBAL_VARIABLES
        if isinstance(node, cst.Name):
            return self._holds_rank(self._names.bindings(node.value, node), depth)
        if isinstance(node, cst.Attribute):
            if node.attr.value == "process_index":
                return self._is_state(node.value)
            return self._holds_rank(self._names.attribute_bindings(node) or self._assigned(node), depth)
        return False

    def _assigned(self, node: cst.Attribute) -> list[Binding]:
        """What the file assigns to ``args.rank``, under this spelling."""
        wanted = dotted(node)
        targets = (n for n in self._tree.every(cst.AssignTarget) if dotted(n.target) == wanted)
        found = [(self._tree.parent(target), target) for target in targets] if wanted else []
        return [Binding("assign", t, owner.value) for owner, t in found if isinstance(owner, cst.Assign)]

    def _is_state(self, node: cst.BaseExpression) -> bool:
        """An ``Accelerator`` or ``PartialState``, whose ``process_index`` is the rank in the job."""
        made = self._names.single_value(node) or node
        name = self._names.qualified(made.func) or "" if isinstance(made, cst.Call) else ""
        return name.startswith("accelerate.") and name.endswith(("Accelerator", "PartialState", "AcceleratorState"))

    def _is_rank_call(self, node: cst.Call, depth: int) -> bool:
        name = self._names.qualified(node.func) or ""
        if name == "int" and len(node.args) == 1:
            return self.is_global_rank(node.args[0].value, depth + 1)
        if name in ("os.environ.get", "os.getenv") and node.args:
            return self._constants.value(node.args[0].value).get_or(None) in _GLOBAL_VARIABLES
        if name.endswith(".get_rank") and not node.args and name.startswith(_RANK_MODULES):
            return True
        ranks = [v for v in self.returned(node) if not isinstance(v, cst.Integer | cst.SimpleString)]
        return bool(ranks) and all(self.is_global_rank(value, depth + 1) for value in ranks)

    def returned(self, node: cst.BaseExpression) -> list[cst.BaseExpression]:
        """What a helper may return for the index of a GPU: ``state.process_index if has_gpu else "cpu"``."""
        function = self._names.local_function(node) if isinstance(node, cst.Call) and not node.args else None
        nodes = self._tree.own(function.body, cst.Return) if function is not None else ()
        values = [n.value for n in nodes if n.value is not None]
        return [arm for v in values for arm in ((v.body, v.orelse) if isinstance(v, cst.IfExp) else (v,))]

    def _holds_rank(self, found: list[Binding], depth: int) -> bool:
        """Every value of a variable is the rank, or the number that stands for it without distribution."""
        ranks = 0
        for binding in found:
            value = binding.value
            if binding.kind == "unpack" and isinstance(value, cst.Call):
                if self._names.called(value) != "get_dist_info" or binding.position != 0:
                    return False
                ranks += 1
            elif binding.kind == "assign" and value is not None:
                if number_of(value) is None:
                    if not self.is_global_rank(value, depth + 1):
                        return False
                    ranks += 1
            else:
                return False
        return ranks > 0

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

    # -- the current device -----------------------------------------------------------------------------------------

    @cached_property
    def on_current(self) -> tuple[cst.Call, ...]:
        """The calls that put something on the current device: ``.cuda()``, ``.to("cuda")``, ``device="cuda"``."""
        return tuple(call for call in self._calls if self._is_on_current(call))

    def _is_on_current(self, call: cst.Call) -> bool:
        method = isinstance(call.func, cst.Attribute)
        if self._names.called(call) == "cuda" and method and not call.args:
            return not (self._names.qualified(call.func) or "").startswith("torch.")
        places = [call.args[0].value] if self._names.called(call) == "to" and method and call.args else []
        places += [a.value for a in call.args if a.keyword is not None and a.keyword.value == "device"]
        return any(self._is_cuda(place) for place in places)

    def _is_cuda(self, node: cst.BaseExpression, depth: int = 0) -> bool:
        """``"cuda"``, ``torch.device("cuda")``, a variable that holds one."""
        if depth > _MAX_ALIASES:
            return False
        if isinstance(node, cst.Name):
            value = self._names.single_value(node)
            return value is not None and self._is_cuda(value, depth + 1)
        if isinstance(node, cst.IfExp):
            return self._is_cuda(node.body, depth + 1)
        if isinstance(node, cst.Call) and self._names.qualified(node.func) == "torch.device" and len(node.args) == 1:
            return self._is_cuda(node.args[0].value, depth + 1)
        return isinstance(node, cst.SimpleString) and node.evaluated_value == "cuda"

    @cached_property
    def starting_cuda(self) -> tuple[cst.Call, ...]:
        """The calls after which the process has started CUDA."""
        starting = {f"torch.cuda.{name}" for name in _STARTING}
        first = {id(value) for value in self.first_gpu}
        return tuple(
            call
            for call in self._calls
            if self._names.qualified(call.func) in starting
            or self._is_on_current(call)
            or any(id(arg.value) in first and self._names.called(call) != "device" for arg in call.args)
        )


def _formatted_index(node: cst.FormattedString) -> cst.BaseExpression | None:
    """``rank`` of ``f"cuda:{rank}"``."""
    if len(node.parts) != 2:
        return None
    text, value = node.parts
    if isinstance(text, cst.FormattedStringText) and isinstance(value, cst.FormattedStringExpression):
        return value.expression if text.value in ("cuda:", "npu:", "xpu:") else None
    return None
