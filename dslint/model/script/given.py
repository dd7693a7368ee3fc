"""What a call passes, also by ``**options`` and ``*values`` that the file writes out."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from dslint.model.dictcalls import DICT_CHANGES
from dslint.model.script.names import Names


@dataclass(slots=True)
class Given:
    """The arguments of one call. ``is_open``: something is unpacked of which nobody knows what it holds."""

    positional: list[cst.BaseExpression] = field(default_factory=list)
    named: dict[str, cst.BaseExpression] = field(default_factory=dict)
    is_open: bool = False

    def argument(self, name: str, position: int | None = None) -> cst.BaseExpression | None:
        """What is passed as ``name=``, or at a position that is known."""
        if name in self.named:
            return self.named[name]
        return self.positional[position] if position is not None and position < len(self.positional) else None


def given(names: Names, call: cst.Call) -> Given:
    """The arguments of a call; of those behind ``*values`` that nobody knows no position is known."""
    found = Given()
    is_known = True
    for arg in call.args:
        if arg.star == "**":
            items = items_of(arg.value, names)
            found.is_open = found.is_open or items is None
            found.named.update(items or {})
        elif arg.star:
            values = _elements(names, arg.value)
            found.is_open = found.is_open or values is None
            is_known = is_known and values is not None
            found.positional += values or []
        elif arg.keyword is not None:
            found.named[arg.keyword.value] = arg.value
        elif is_known:
            found.positional.append(arg.value)
    return found


def _elements(names: Names, node: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    value = names.single_value(node) or node
    if not isinstance(value, cst.Tuple) and not (isinstance(value, cst.List) and value is node):
        return None  # a list in a variable may grow
    if any(isinstance(e, cst.StarredElement) for e in value.elements):
        return None
    return [e.value for e in value.elements]


def items_of(mapping: cst.BaseExpression, names: Names, depth: int = 0) -> dict[str, cst.BaseExpression] | None:
    """All items of a dictionary that the file writes out, also as what its function returns; `None` when unknown."""
    if isinstance(mapping, cst.Name) and depth < 3:
        behind = names.single_value(mapping)
        added = _added(mapping, names) if behind is not None else None
        made = items_of(behind, names, depth + 1) if behind is not None and added is not None else None
        return {**made, **(added or {})} if made is not None else None
    if isinstance(mapping, cst.Dict):
        found: dict[str, cst.BaseExpression] = {}
        for element in mapping.elements:
            if not isinstance(element, cst.DictElement) or not isinstance(element.key, cst.SimpleString):
                return None
            found[str(element.key.evaluated_value)] = _resolved(element.value, names)
        return found
    if not isinstance(mapping, cst.Call):
        return None
    if isinstance(mapping.func, cst.Name) and mapping.func.value == "dict":
        if any(a.keyword is None for a in mapping.args):
            return None
        return {a.keyword.value: _resolved(a.value, names) for a in mapping.args if a.keyword is not None}
    function = names.local_function(mapping)
    returns = [n for n in names.tree.own_nodes(function) if isinstance(n, cst.Return)] if function is not None else []
    if len(returns) != 1 or returns[0].value is None or depth >= 3:
        return None
    return items_of(returns[0].value, names, depth + 1)


def _added(mapping: cst.Name, names: Names) -> dict[str, cst.BaseExpression] | None:
    """What the lines between the making of a dictionary and its use put into it; ``None`` when it is changed otherwise.

    ``options["key"] = value`` counts in the block in which the dictionary is made.
    """
    meant = names.bindings(mapping.value, mapping)
    found: dict[str, cst.BaseExpression] = {}
    for node in names.tree.every(cst.Name):
        if node.value != mapping.value or names.bindings(node.value, node) is not meant:
            continue
        outer = names.tree.parent(node)
        if isinstance(outer, cst.Subscript) and isinstance(names.tree.parent(outer), cst.AssignTarget | cst.Del):
            item = _item_put(outer, meant[0].node if len(meant) == 1 else None, mapping, names)
            if item is None:
                return None
            found[item[0]] = _resolved(item[1], names)
        if isinstance(outer, cst.Attribute) and outer.value is node and outer.attr.value in DICT_CHANGES:
            return None
        if isinstance(outer, cst.AugAssign):
            return None
    return found


def _item_put(
    target: cst.Subscript, made: cst.CSTNode | None, use: cst.Name, names: Names
) -> tuple[str, cst.BaseExpression] | None:
    """The key and the value of a line that certainly puts an item into a dictionary before a use."""
    tree = names.tree
    assign = tree.enclosing(target, cst.Assign)
    first = tree.enclosing(made, cst.Assign, cst.AnnAssign) if made is not None else None
    index = target.slice[0].slice if len(target.slice) == 1 else None
    key = index.value if isinstance(index, cst.Index) else None
    if first is None or not isinstance(assign, cst.Assign) or not isinstance(key, cst.SimpleString):
        return None
    blocks = [tree.parent(line) if (line := tree.parent(node)) is not None else None for node in (first, assign)]
    if blocks[0] is not blocks[1] or not tree.position(first) < tree.position(assign) < tree.position(use):
        return None
    return str(key.evaluated_value), assign.value


def _resolved(value: cst.BaseExpression, names: Names) -> cst.BaseExpression:
    return names.single_value(value) or value
