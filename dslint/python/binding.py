"""The one implementation of argument binding: which argument of a call is for which parameter."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from dslint.python.values import Value


@dataclass(slots=True)
class Arguments:
    """The evaluated arguments of a call.

    `rest` is what an unpacked iterable of unknown length may hold (`f(*values)`), `open_keywords` what an unpacked
    mapping with unknown keys may hold (`f(**options)`): any parameter that is not given otherwise may be given by them.
    `batch`: each such mapping holds data of the rank, as the batch in `model.generate(**batch)` does, and no settings.
    `nodes` are the expressions, by parameter position or keyword, for those who report.
    """

    positional: list[Value] = field(default_factory=list)
    keywords: dict[str, Value] = field(default_factory=dict)
    rest: Value | None = None
    open_keywords: Value | None = None
    nodes: dict[int | str, ast.expr] = field(default_factory=dict)
    places: dict[str, Value] = field(default_factory=dict)  # where the items of unpacked dictionaries are written
    batch: bool = False

    def all(self) -> list[Value]:
        """Return every value that is passed."""
        unpacked = [value for value in (self.rest, self.open_keywords) if value is not None]
        return [*self.positional, *self.keywords.values(), *unpacked]

    def shifted(self, first: Value) -> Arguments:
        """Return the arguments with a receiver before the others."""
        nodes = {at + 1 if isinstance(at, int) else at: node for at, node in self.nodes.items()}
        values = [first, *self.positional]
        return Arguments(values, self.keywords, self.rest, self.open_keywords, nodes, self.places, self.batch)


@dataclass(slots=True)
class BoundArguments:
    """The parameters that a call fills; `extra` and `extra_keywords` go to `*` and `**` parameters.

    `missing` are parameters without a default that nothing fills; `unexpected` says that Python would refuse the call;
    `maybe` are parameters that only an unpacked value may fill.
    """

    given: dict[str, Value] = field(default_factory=dict)
    nodes: dict[str, ast.expr] = field(default_factory=dict)
    extra: list[Value] = field(default_factory=list)
    extra_keywords: dict[str, Value] = field(default_factory=dict)
    rest: Value | None = None
    open_keywords: Value | None = None
    maybe: set[str] = field(default_factory=set)
    defaults: list[str] = field(default_factory=list)
    unexpected: bool = False
    batch: bool = False


def bind(parameters: ast.arguments, arguments: Arguments) -> BoundArguments:
    """Return which argument fills which parameter, by the rules of Python."""
    bound = BoundArguments()
    by_position = [p.arg for p in (*parameters.posonlyargs, *parameters.args)]
    only = {p.arg for p in parameters.posonlyargs}
    for at, value in enumerate(arguments.positional):
        if at < len(by_position):
            _give(bound, by_position[at], value, arguments.nodes.get(at))
        elif parameters.vararg:
            bound.extra.append(value)
        else:
            bound.unexpected = True
    named = {p.arg for p in (*parameters.args, *parameters.kwonlyargs)}
    for name, value in arguments.keywords.items():
        if name in named and name not in bound.given:
            _give(bound, name, value, arguments.nodes.get(name))
        elif parameters.kwarg and (name not in named or name in only):
            bound.extra_keywords[name] = value
        else:
            bound.unexpected = True
    _unpacked(parameters, arguments, bound, by_position)
    every = [*by_position, *(p.arg for p in parameters.kwonlyargs)]
    bound.defaults = [name for name in every if name not in bound.given]
    return bound


def _give(bound: BoundArguments, name: str, value: Value, node: ast.expr | None) -> None:
    bound.given[name] = value
    if node is not None:
        bound.nodes[name] = node


def _unpacked(parameters: ast.arguments, arguments: Arguments, bound: BoundArguments, by_position: list[str]) -> None:
    if arguments.rest is not None:
        bound.maybe.update(name for name in by_position if name not in bound.given)
        if parameters.vararg:
            bound.rest = arguments.rest
    if arguments.open_keywords is not None:
        named = [*(p.arg for p in parameters.args), *(p.arg for p in parameters.kwonlyargs)]
        bound.maybe.update(name for name in named if name not in bound.given)
        if parameters.kwarg:
            bound.open_keywords = arguments.open_keywords
        bound.batch = arguments.batch and arguments.rest is None


def annotation_of(parameters: ast.arguments, name: str) -> ast.expr | None:
    """Return the annotation of a parameter; `None` when it has none."""
    every = (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)
    return next((p.annotation for p in every if p.arg == name), None)


def default_of(parameters: ast.arguments, name: str) -> ast.expr | None:
    """Return the expression of the default of a parameter; `None` when it has none."""
    by_position = [*parameters.posonlyargs, *parameters.args]
    first = len(by_position) - len(parameters.defaults)
    for at, parameter in enumerate(by_position):
        if parameter.arg == name:
            return parameters.defaults[at - first] if at >= first else None
    for parameter, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
        if parameter.arg == name:
            return default
    return None
