"""Which parameter of a function of the project each argument of a call gives its value, as Python binds them."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from dslint.model.script.tree import Tree

Expressions = dict[str, cst.BaseExpression]
# What a call runs by the name of a class or of an object: the object is not written among the arguments.
_RUN_BY_OBJECT = frozenset({"__init__", "__call__"})


class Bound(NamedTuple):
    """What a call gives the parameters of a function, by name.

    ``passed``: what certainly stands behind a parameter; ``defaults``: of the parameters that the call certainly leaves
    out. A parameter that ``*values`` or ``**options`` may fill is in neither; what goes into the ``*args`` and
    ``**kwargs`` of the function, and the object before a method, are no parameters here.
    """

    passed: Expressions
    defaults: Expressions

    def value(self, name: str) -> cst.BaseExpression | None:
        """The value of a parameter for this call; ``None`` where that is open."""
        return self.passed.get(name, self.defaults.get(name))


def bound(tree: Tree, call: cst.Call, function: cst.FunctionDef) -> Bound:
    """What a call gives the parameters of the function that it runs; ``tree`` is that of the function."""
    params = _by_position(tree, call, function)
    named = [*function.params.params, *function.params.kwonly_params]
    by_name = {p.name.value for p in named}
    star = next((at for at, arg in enumerate(call.args) if arg.star == "*"), None)
    plain = [a.value for a in call.args[:star] if a.keyword is None and not a.star]
    passed = {param.name.value: value for param, value in zip(params, plain, strict=False)}
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value in by_name:
            passed[arg.keyword.value] = arg.value
    filled = params[: len(plain)] if star is None else params  # ``*values`` may reach as far as the last
    told = {p.name.value for p in filled}
    if any(arg.star == "**" for arg in call.args):
        told |= by_name
    left = [p for p in (*params, *function.params.kwonly_params) if p.name.value not in told]
    return Bound(
        passed, {p.name.value: p.default for p in left if p.default is not None and p.name.value not in passed}
    )


def position_of(tree: Tree, call: cst.Call, function: cst.FunctionDef, name: str) -> int | None:
    """The place of a parameter among the arguments of a call that runs the function; ``None``: it has none."""
    names = [p.name.value for p in _by_position(tree, call, function)]
    return names.index(name) if name in names else None


def _by_position(tree: Tree, call: cst.Call, function: cst.FunctionDef) -> list[cst.Param]:
    """The parameters that take the arguments of a call by their position: not the object that a method is run on."""
    params = [*function.params.posonly_params, *function.params.params]
    owner = tree.enclosing(function, cst.FunctionDef, cst.ClassDef, cst.Lambda)
    if type(owner) is not cst.ClassDef or any(_is_static(d) for d in function.decorators):
        return params
    is_run_on_object = type(call.func) is cst.Attribute or function.name.value in _RUN_BY_OBJECT
    return params[1:] if is_run_on_object else params


def _is_static(decorator: cst.Decorator) -> bool:
    return type(decorator.decorator) is cst.Name and decorator.decorator.value == "staticmethod"
