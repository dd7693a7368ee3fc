"""Arms for callers that leave an argument out: ``results = self.gather() if results is None else results``."""

from __future__ import annotations

import libcst as cst

from dslint.model.script.dotted import is_none, last_name
from dslint.model.script.tree import Tree


def left_out(tree: Tree, node: cst.CSTNode) -> str:
    """The parameter without which a node runs, where its default is ``None`` and no call of this file leaves it out.

    Callers in other files may hand it over each time, so that nobody knows whether the node runs. Empty otherwise.
    """
    function = tree.function(node)
    if function is None:
        return ""
    places = _optional(function)
    inner = node
    for outer in tree.parents(node):
        if outer is function:
            break
        if isinstance(outer, cst.If | cst.IfExp):
            name, for_none = _asked(outer.test)
            in_arm = inner is outer.body if for_none else inner is outer.orelse
            if name in places and in_arm:
                calls = [c for c in tree.every(cst.Call) if last_name(c.func) == function.name.value]
                return name if all(_hands_over(call, name, places[name]) for call in calls) else ""
        inner = outer
    return ""


def _optional(function: cst.FunctionDef) -> dict[str, int]:
    """The parameters whose default is ``None``, with their position among those of a call (without ``self``)."""
    params = [*function.params.posonly_params, *function.params.params]
    skipped = 1 if params and params[0].name.value in ("self", "cls") else 0
    every = [*((at - skipped, p) for at, p in enumerate(params)), *((-1, p) for p in function.params.kwonly_params)]
    return {p.name.value: at for at, p in every if is_none(p.default)}


def _asked(test: cst.BaseExpression) -> tuple[str, bool]:
    """``x is None``: the name and whether the first arm is that for ``None``."""
    if isinstance(test, cst.Comparison) and isinstance(test.left, cst.Name) and len(test.comparisons) == 1:
        operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
        if is_none(right) and isinstance(operator, cst.Is | cst.IsNot):
            return test.left.value, isinstance(operator, cst.Is)
    return "", True


def _hands_over(call: cst.Call, name: str, position: int) -> bool:
    if any(arg.star or (arg.keyword is not None and arg.keyword.value == name) for arg in call.args):
        return True
    return 0 <= position < sum(arg.keyword is None for arg in call.args)
