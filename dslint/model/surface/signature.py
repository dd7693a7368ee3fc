"""What a function or the constructor of a class takes in one release."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """A parameter: ``kind`` is ``positional``, ``either``, ``keyword``, ``args`` or ``kwargs``.

    ``default`` is its default as Python writes it, ``...`` for a long one; ``None`` without a default.
    """

    name: str
    kind: str
    default: str | None = None

    @property
    def has_default(self) -> bool:
        """It may be left out of a call."""
        return self.default is not None


@dataclass(frozen=True)
class Signature:
    """The parameters, without ``self`` or ``cls``.

    ``old_names``: names that a decorator still takes -> their new names (empty where the value is dropped).
    ``certain`` is false where a decorator, a metaclass or ``__new__`` may change what a call takes.
    """

    parameters: tuple[Parameter, ...]
    old_names: dict[str, str] = field(default_factory=dict, hash=False)
    certain: bool = True

    @property
    def takes_kwargs(self) -> bool:
        """Any keyword is taken."""
        return any(parameter.kind == "kwargs" for parameter in self.parameters)

    @property
    def takes_args(self) -> bool:
        """Any number of positional arguments is taken."""
        return any(parameter.kind == "args" for parameter in self.parameters)

    def parameter(self, name: str) -> Parameter | None:
        """The parameter that a keyword of this name fills."""
        for each in self.parameters:
            if each.name == name and each.kind in ("either", "keyword"):
                return each
        return None

    def accepts(self, name: str) -> bool:
        """A keyword of this name is taken, be it an old one or one of ``**kwargs``."""
        return self.takes_kwargs or name in self.old_names or self.parameter(name) is not None


def read_signature(row: list[Any]) -> Signature:
    """The signature that a row of the data holds: set of releases, text, whether certain, old names."""
    return Signature(parameters(row[1]), row[3] if len(row) > 3 else {}, bool(row[2]) if len(row) > 2 else True)


@lru_cache(maxsize=4096)
def parameters(text: str) -> tuple[Parameter, ...]:
    """The parameters that a text like ``a, *, b=1, **kwargs`` names."""
    try:
        args = ast.parse(f"lambda {text}: 0", mode="eval").body.args  # type: ignore[attr-defined]
    except SyntaxError:
        return (Parameter("args", "args"), Parameter("kwargs", "kwargs"))
    found: list[Parameter] = []
    positional = [*args.posonlyargs, *args.args]
    bare = len(positional) - len(args.defaults)
    for place, arg in enumerate(positional):
        default = None if place < bare else ast.unparse(args.defaults[place - bare])
        found.append(Parameter(arg.arg, "positional" if place < len(args.posonlyargs) else "either", default))
    if args.vararg:
        found.append(Parameter(args.vararg.arg, "args"))
    for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        found.append(Parameter(arg.arg, "keyword", None if value is None else ast.unparse(value)))
    if args.kwarg:
        found.append(Parameter(args.kwarg.arg, "kwargs"))
    return tuple(found)
