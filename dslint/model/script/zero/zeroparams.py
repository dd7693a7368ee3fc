"""Parameters of models that ZeRO stage 3 spreads over the ranks, and what reads them as if they were whole."""

from __future__ import annotations

import re

import libcst as cst

from dslint.model.script.names import Names
from dslint.model.script.tree import Tree
from dslint.model.script.zero.partitioned import Partitioned

_EMBEDDINGS = frozenset({"get_input_embeddings", "get_output_embeddings"})
_PARAMETERS = frozenset({"weight", "bias"})
# After ``deepspeed.initialize`` small weights are whole again (``stage3_param_persistence_threshold``, 100,000
# numbers): heads with few classes, norms, biases. These layers are large in every model worth stage 3.
_LARGE = re.compile(r"embed|wte|wpe|lm_head|[qkvo]_proj|qkv|gate_proj|up_proj|down_proj|c_attn|c_proj|c_fc|fc[12]|mlp")
_LISTS = frozenset({"parameters", "named_parameters"})
# What reads the values or the shape of a parameter.
READS = frozenset({"norm", "mean", "sum", "std", "var", "abs", "max", "min", "size", "tolist", "numpy", "item"})
READS |= {"clone"}
# Methods that return the same values elsewhere, or without their history.
_SAME = frozenset({"detach", "float", "cpu", "half", "bfloat16", "double"})
READ_ATTRIBUTES = frozenset({"shape", "T"})
READ_FUNCTIONS = frozenset({"torch.equal", "torch.allclose", "torch.norm", "torch.linalg.norm", "torch.isnan"})


class ZeroParameters:
    """Finds parameters of partitioned models in one module."""

    def __init__(self, tree: Tree, names: Names, partitioned: Partitioned) -> None:
        self._tree = tree
        self._names = names
        self._partitioned = partitioned

    def is_one(self, node: cst.BaseExpression) -> bool:
        """The expression is a parameter (or its ``.data``) that holds no values where it stands, at stage 3."""
        return self._is_one(node, 0)

    def _is_one(self, node: cst.BaseExpression, steps: int) -> bool:
        if steps > 4:
            return False
        if isinstance(node, cst.Name):
            value = self._names.single_value(node)
            return self._is_one(value, steps + 1) if value is not None else self._is_item(node)
        if isinstance(node, cst.Call):
            func = node.func
            same = isinstance(func, cst.Attribute) and func.attr.value in _SAME and not node.args
            return same and isinstance(func, cst.Attribute) and self._is_one(func.value, steps + 1)
        if not isinstance(node, cst.Attribute):
            return False
        if node.attr.value == "data":
            return self._is_one(node.value, steps + 1)
        return node.attr.value in _PARAMETERS and self._is_layer(node.value, node)

    def _is_layer(self, layer: cst.BaseExpression, parameter: cst.Attribute) -> bool:
        """A layer below a partitioned model; of an engine only what is certainly large."""
        path: list[str] = []
        node = layer
        while True:
            items = self._items_of(node) if isinstance(node, cst.Name) and path == [] else []
            if items:
                return all(self._is_layer(item, parameter) for item in items)
            if isinstance(node, cst.Name) and path == []:
                node = self._names.single_value(node) or node
            if self._partitioned.is_loaded(node):
                return True
            if isinstance(node, cst.Name | cst.Attribute) and self._partitioned.is_engine(node):
                return parameter.attr.value == "weight" and bool(path) and bool(_LARGE.search(path[0]))
            if isinstance(node, cst.Attribute):
                path.append(node.attr.value)
                node = node.value
            elif isinstance(node, cst.Subscript):
                node = node.value
            elif (
                isinstance(node, cst.Call)
                and self._names.called(node) in _EMBEDDINGS
                and isinstance(node.func, cst.Attribute)
            ):
                path.append("embeddings")
                node = node.func.value
            else:
                return False

    def _items_of(self, node: cst.Name) -> list[cst.BaseExpression]:
        """The layers of ``for layer in (model.get_input_embeddings(), model.get_output_embeddings())``."""
        found = self._names.bindings(node.value, node)
        source = found[0].value if len(found) == 1 and found[0].kind == "loop" and found[0].position is None else None
        if not isinstance(source, cst.Tuple | cst.List):
            return []
        return [element.value for element in source.elements]

    def _is_item(self, node: cst.Name) -> bool:
        """``p`` of ``for p in model.parameters()``: some of them are large."""
        found = self._names.bindings(node.value, node)
        if len(found) != 1 or found[0].kind != "loop":
            return False
        source, position = found[0].value, found[0].position
        if isinstance(source, cst.Call) and self._names.called(source) in ("list", "tqdm", "reversed") and source.args:
            source = source.args[0].value
        if not (isinstance(source, cst.Call) and isinstance(source.func, cst.Attribute)):
            return False
        listed, model = source.func.attr.value, source.func.value
        if listed not in _LISTS or position != (1 if listed == "named_parameters" else None):
            return False
        return self._partitioned.is_loaded(model) or self._partitioned.is_engine(model)
