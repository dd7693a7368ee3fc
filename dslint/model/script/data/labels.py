"""Where a script makes the value of a batch key, and of what kind that value is."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from dslint.model.dictcalls import DICT_CHANGES
from dslint.model.script.dotted import keyword
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

_TENSOR_CALLS = ("tensor", "stack", "cat", "pad_sequence", "as_tensor", "from_numpy", "zeros", "ones", "full", "arange")
_TEXT_CALLS = ("str", "repr", "json.dumps", "join", "format")


@dataclass(frozen=True, slots=True)
class Produced:
    """One place that gives a batch key its value.

    ``kind``: ``text`` | ``dict`` | ``list`` | ``tensor`` | ``unknown``; ``conditional`` when only some batches get it.
    """

    node: cst.CSTNode
    kind: str
    conditional: bool


def producers(tree: Tree, names: Names, key: str) -> list[Produced]:
    """All ``{"key": value}``, ``batch["key"] = value``, ``dict(key=value)``, ``batch.update(key=value)``."""
    found = []
    for node in tree.order:
        value = _value_for(node, key)
        if value is not None:
            conditional = _may_be_none(value) or _under_test(tree, node, with_else=isinstance(node, cst.Assign))
            found.append(Produced(value, kind_of(value, names), conditional))
    return found


def item_of(mapping: cst.BaseExpression, key: str) -> cst.BaseExpression | None:
    """The value of a key in ``{...}`` or ``dict(...)``."""
    if isinstance(mapping, cst.Dict):
        elements = (e for e in mapping.elements if isinstance(e, cst.DictElement))
        return next((e.value for e in elements if _is_text(e.key, key)), None)
    if isinstance(mapping, cst.Call) and isinstance(mapping.func, cst.Name) and mapping.func.value == "dict":
        return keyword(mapping, key)
    return None


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


def _value_for(node: cst.CSTNode, key: str) -> cst.BaseExpression | None:
    if isinstance(node, cst.DictElement):
        return node.value if _is_text(node.key, key) else None
    if isinstance(node, cst.Assign):
        return node.value if any(_is_item(t.target, key) for t in node.targets) else None
    if not isinstance(node, cst.Call):
        return None
    if isinstance(node.func, cst.Attribute) and node.func.attr.value == "setdefault" and len(node.args) == 2:
        return node.args[1].value if _is_text(node.args[0].value, key) else None
    called = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
    makes = isinstance(node.func, cst.Name) and node.func.value in ("dict", "BatchFeature", "BatchEncoding")
    if makes or called == "update":
        return keyword(node, key)
    return None


def kind_of(value: cst.BaseExpression, names: Names, depth: int = 0) -> str:
    """What an expression evaluates to, as far as its shape tells."""
    if isinstance(value, cst.SimpleString | cst.FormattedString | cst.ConcatenatedString):
        return "text"
    if isinstance(value, cst.Dict | cst.DictComp):
        return "dict"
    if isinstance(value, cst.List | cst.Tuple | cst.ListComp):
        return "list"
    if isinstance(value, cst.Call):
        return _kind_of_call(value, names)
    if isinstance(value, cst.Name) and depth < 3:
        behind = names.single_value(value)
        if behind is not None:
            return kind_of(behind, names, depth + 1)
    return "unknown"


def _kind_of_call(call: cst.Call, names: Names) -> str:
    name = names.qualified(call.func) or ""
    last = call.func.attr.value if isinstance(call.func, cst.Attribute) else name
    if name in ("list", "tuple"):
        return "list"
    if name == "dict":
        return "dict"
    if name in _TEXT_CALLS or last in _TEXT_CALLS:
        return "text"
    if last in _TENSOR_CALLS or name.split(".")[0] == "torch":
        return "tensor"
    return "unknown"


def _under_test(tree: Tree, node: cst.CSTNode, with_else: bool) -> bool:
    """An ``if`` inside the same function decides whether the key is made, and no ``else`` makes up for it.

    A whole dictionary under an ``if`` may be one of several that are returned: it counts only in an ``update`` or as
    one arm of ``{...} if x else {}`` (``with_else`` false).
    """
    inner = node
    for parent in tree.parents(node):
        if isinstance(parent, cst.FunctionDef | cst.Module):
            return False
        if isinstance(parent, cst.IfExp) and inner is not parent.test and not with_else:
            other = parent.orelse if inner is parent.body else parent.body
            return isinstance(other, cst.Dict) and not other.elements
        if isinstance(parent, cst.Call) and isinstance(parent.func, cst.Attribute):
            with_else = with_else or parent.func.attr.value in ("update", "setdefault")
        if isinstance(parent, cst.If) and parent.orelse is None and with_else:
            return True
        inner = parent
    return False


def _may_be_none(value: cst.BaseExpression) -> bool:
    """``features[0].get("key")``: ``None`` where a sample has no such key, and the batch counts as one without it."""
    called = value.func if isinstance(value, cst.Call) else None
    return isinstance(called, cst.Attribute) and called.attr.value == "get" and len(getattr(value, "args", ())) == 1


def _is_item(target: cst.BaseExpression, key: str) -> bool:
    if not isinstance(target, cst.Subscript) or len(target.slice) != 1:
        return False
    inner = target.slice[0].slice
    return isinstance(inner, cst.Index) and _is_text(inner.value, key)


def _is_text(node: cst.CSTNode | None, text: str) -> bool:
    return isinstance(node, cst.SimpleString) and node.evaluated_value == text
