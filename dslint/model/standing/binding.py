"""What Python says when a call does not fit what is called: too many arguments, one that nobody takes, one missing."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from dslint.model.surface import Parameter, Signature


def of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Signature:
    """The signature of a method that a class of the project defines, without `self` or `cls`."""
    args = node.args
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    is_static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
    found = []
    for at, (arg, default) in enumerate(zip(plain, defaults, strict=True)):
        if at == 0 and not is_static:
            continue
        kind = "positional" if arg in args.posonlyargs else "either"
        found.append(Parameter(arg.arg, kind, None if default is None else "..."))
    found += [Parameter(args.vararg.arg, "args")] if args.vararg else []
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        found.append(Parameter(arg.arg, "keyword", None if default is None else "..."))
    found += [Parameter(args.kwarg.arg, "kwargs")] if args.kwarg else []
    return Signature(tuple(found))


def positional(signature: Signature) -> list[Parameter]:
    """The parameters that take arguments by position."""
    return [p for p in signature.parameters if p.kind in ("positional", "either")]


def misfit(signature: Signature, given: int, names: Collection[str], *, is_open: bool = False) -> str:
    """Why a call with ``given`` positional arguments and these names fails, in Python's words; empty when it fits.

    ``is_open``: more arguments may come by ``*`` or ``**``.
    """
    places = positional(signature)
    unknown = [name for name in names if not signature.accepts(name)]
    if unknown:
        return f"unexpected keyword argument '{unknown[0]}'"
    if given > len(places) and not signature.takes_args:
        least = sum(not p.has_default for p in places) + 1
        most = len(places) + 1
        shown = f"{most}" if least == most else f"from {least} to {most}"
        return f"takes {shown} positional arguments but {given + 1} were given"
    twice = [p.name for p in places[:given] if p.name in names and p.kind == "either"]
    if twice and not is_open:
        return f"multiple values for argument '{twice[0]}'"
    return "" if is_open else _missing(signature, places[given:], names)


def _missing(signature: Signature, left: Sequence[Parameter], names: Collection[str]) -> str:
    renamed = {signature.old_names.get(name, name) for name in names}
    needed = [*left, *(p for p in signature.parameters if p.kind == "keyword")]
    lacking = [p.name for p in needed if not p.has_default and p.name not in names and p.name not in renamed]
    return f"missing required argument '{lacking[0]}'" if lacking else ""
