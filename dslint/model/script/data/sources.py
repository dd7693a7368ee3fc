"""Where a value comes from: what may stand behind a name, a parameter, ``self.x`` or the result of a helper."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.names import Names
from dslint.model.script.parameters import bound
from dslint.model.script.tree import Tree

_MAX_STEPS = 8
_MAX_SOURCES = 24


@dataclass(frozen=True, slots=True)
class Source:
    """An expression that makes a value; ``position``: the value is that element of what it returns.

    ``node`` is ``None`` where the file does not say where the value comes from.
    """

    node: cst.BaseExpression | None
    position: int | None = None


_UNKNOWN = Source(None)


class Sources:
    """Follows values backwards through one module: assignments, unpacking, ``self.x``, parameters, local helpers."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def of(self, node: cst.BaseExpression | None) -> list[Source]:
        """Every expression that may have made the value; both arms of an ``if`` count."""
        found: list[Source] = []
        self._follow(node, None, 0, set(), found)
        return found[:_MAX_SOURCES]

    def _follow(
        self,
        node: cst.CSTNode | None,
        position: int | None,
        steps: int,
        seen: set[tuple[int, int | None]],
        out: list[Source],
    ) -> None:
        if node is None or steps > _MAX_STEPS or len(out) > _MAX_SOURCES or not isinstance(node, cst.BaseExpression):
            out.append(_UNKNOWN)
            return
        if (id(node), position) in seen:
            return
        seen.add((id(node), position))
        for inner, at in self._before(node, position):
            if inner is None:
                out.append(_UNKNOWN)
            elif inner is node:
                out.append(Source(node, at))
            else:
                self._follow(inner, at, steps + 1, seen, out)

    def _before(self, node: cst.BaseExpression, position: int | None) -> list[tuple[cst.CSTNode | None, int | None]]:
        """The expressions one step before; the node itself where the way ends."""
        if isinstance(node, cst.Name):
            found = self._names.bindings(node.value, node)
            return [step for b in found for step in self._bound(b, position)] or [(node, position)]
        if isinstance(node, cst.Attribute):
            found = self._names.attribute_bindings(node)
            return [step for b in found for step in self._bound(b, position)] or [(node, position)]
        if isinstance(node, cst.IfExp):
            return [(node.body, position), (node.orelse, position)]
        if isinstance(node, cst.NamedExpr):
            return [(node.value, position)]
        if isinstance(node, cst.Tuple | cst.List) and position is not None and position < len(node.elements):
            return [(node.elements[position].value, None)]
        if isinstance(node, cst.Subscript):
            value = self._item(node)
            return [(value if value is not None else node, None if value is not None else position)]
        return self._called(node, position) if isinstance(node, cst.Call) else [(node, position)]

    def _called(self, call: cst.Call, position: int | None) -> list[tuple[cst.CSTNode | None, int | None]]:
        function = self._names.local_function(call)
        returns = self.returned(function) if function is not None else []
        return [(value, position) for value in returns] or [(call, position)]

    def _item(self, node: cst.Subscript) -> cst.BaseExpression | None:
        """``loaders["train"]`` of a dict that is written out."""
        index = node.slice[0].slice if len(node.slice) == 1 else None
        key = index.value if isinstance(index, cst.Index) else None
        if not isinstance(key, cst.SimpleString):
            return None
        made = [s.node for s in self.of(node.value)]
        table = made[0] if len(made) == 1 else None
        for part in table.elements if isinstance(table, cst.Dict) else ():
            if not isinstance(part, cst.DictElement):
                return None
            if isinstance(part.key, cst.SimpleString) and part.key.evaluated_value == key.evaluated_value:
                return part.value
        return None

    def returned(self, function: cst.FunctionDef) -> list[cst.BaseExpression]:
        """What a function returns; nothing for a generator."""
        own = list(self._tree.own_nodes(function.body))
        if any(isinstance(n, cst.Yield) for n in own):
            return []
        return [n.value for n in own if isinstance(n, cst.Return) and n.value is not None]

    def _bound(self, binding: Binding, position: int | None) -> list[tuple[cst.CSTNode | None, int | None]]:
        if binding.kind == "assign" and binding.value is not None:
            return [(binding.value, position)]
        if binding.kind == "unpack" and binding.value is not None:
            return [(binding.value, binding.position)]
        if binding.kind == "param" and isinstance(binding.node, cst.Param):
            return self._passed(binding.node)
        return [(None, None)]

    def _passed(self, param: cst.Param) -> list[tuple[cst.CSTNode | None, int | None]]:
        """What the calls in this file pass for a parameter; of those that leave it out or hide it nothing is said."""
        function = self._tree.function(param)
        calls = self._names.callers.of(function) if function is not None else []
        found = [bound(self._tree, call, function).passed.get(param.name.value) for call in calls if function]
        return [(value, None) for value in found if value is not None] or [(None, None)]
