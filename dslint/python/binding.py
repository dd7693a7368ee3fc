"""The one implementation of argument binding: which argument of a call is for which parameter."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import lru_cache

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
    written: bool = False  # a call of the program passes them, and no library

    def all(self) -> list[Value]:
        """Return every value that is passed."""
        unpacked = [value for value in (self.rest, self.open_keywords) if value is not None]
        return [*self.positional, *self.keywords.values(), *unpacked]

    def shifted(self, first: Value) -> Arguments:
        """Return the arguments with a receiver before the others."""
        nodes = {at + 1 if isinstance(at, int) else at: node for at, node in self.nodes.items()}
        values = [first, *self.positional]
        return Arguments(
            values, self.keywords, self.rest, self.open_keywords, nodes, self.places, self.batch, self.written
        )


@dataclass(slots=True)
class BoundArguments:
    """The parameters that a call fills; `extra` and `extra_keywords` go to `*` and `**` parameters.

    `maybe` are parameters that only an unpacked value may fill. `surplus` says how many arguments by position no
    parameter takes, `strange` which keywords, and `twice` which parameters get two values.
    """

    given: dict[str, Value] = field(default_factory=dict)
    nodes: dict[str, ast.expr] = field(default_factory=dict)
    extra: list[Value] = field(default_factory=list)
    extra_keywords: dict[str, Value] = field(default_factory=dict)
    rest: Value | None = None
    open_keywords: Value | None = None
    maybe: set[str] = field(default_factory=set)
    defaults: list[str] = field(default_factory=list)
    surplus: int = 0
    strange: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
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
            bound.surplus += 1
    named = {p.arg for p in (*parameters.args, *parameters.kwonlyargs)}
    for name, value in arguments.keywords.items():
        if name in named and name not in bound.given:
            _give(bound, name, value, arguments.nodes.get(name))
        elif parameters.kwarg and (name not in named or name in only):
            bound.extra_keywords[name] = value
        else:
            (bound.twice if name in named else bound.strange).append(name)
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


def refusal(parameters: ast.arguments, arguments: Arguments) -> str:
    """Return what Python finds wrong with a call, in a few words; empty where it may take it."""
    if _fits(_shape(parameters), arguments):
        return ""
    bound = bind(parameters, arguments)
    names = [p.arg for p in (*parameters.posonlyargs, *parameters.args)]
    if bound.strange:
        return f"it takes no argument `{bound.strange[0]}`"
    if bound.surplus:
        own = int(names[:1] in (["self"], ["cls"]))
        most = len(names) - own
        plural = "argument" if most == 1 else "arguments"
        return f"it takes {most} {plural} by position and gets {len(arguments.positional) - own}"
    if bound.twice:
        return f"it gets two values for `{bound.twice[0]}`"
    lacking = [f"`{n}`" for n in bound.defaults if n not in bound.maybe and default_of(parameters, n) is None]
    return f"it does not get {_listed(lacking)}" if lacking else ""


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@lru_cache(maxsize=20_000)
def _shape(parameters: ast.arguments) -> tuple[int, dict[str, int], tuple[tuple[str, int], ...]]:
    """Return how many arguments fit by position, the places of names, and those names that have no default."""
    by_position = [*parameters.posonlyargs, *parameters.args]
    most = 10_000 if parameters.vararg else len(by_position)
    places = {p.arg: at for at, p in enumerate(by_position) if at >= len(parameters.posonlyargs)}
    places |= {p.arg: 10_000 for p in parameters.kwonlyargs}
    needed = [(p.arg, at) for at, p in enumerate(by_position[: len(by_position) - len(parameters.defaults)])]
    pairs = zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
    return most, places, (*needed, *((p.arg, 10_000) for p, default in pairs if default is None))


def _fits(shape: tuple[int, dict[str, int], tuple[tuple[str, int], ...]], arguments: Arguments) -> bool:
    """Return whether the plain arguments of a call fit: the quick answer to nearly all questions."""
    most, places, needed = shape
    given, keywords = len(arguments.positional), arguments.keywords
    if given > most or any(places.get(name, -1) < given for name in keywords):
        return False
    return all(at < given or name in keywords for name, at in needed)


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
