"""What a test says under given releases of libraries: `version.parse(torch.__version__) >= version.parse("2.0")`.

The test is computed, as far as it consists of versions, constants and what Python itself does with them.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any, Literal

from dslint.python.names import Names
from dslint.python.uses.kinds import Guard, Guards, Uses
from dslint.python.uses.versionvalues import ABSENT, asked_by_name, called_version, compared

# ``asked``: the test asks about releases in a way that nobody here understands.
Answer = Literal["yes", "no", "maybe", "asked"]
_ORDER: tuple[Answer, ...] = ("no", "asked", "maybe", "yes")
_ASKS = re.compile(
    r"version|signature|hasattr|find_spec|find_spec|getattr|parameters|__dict__|\bdir\(|fields\b|GREATER|LESS_THAN|greater_or_equal"
    r"|TORCH_\d|_V\d|\bV\d|legacy|\bis_new|\bold_|co_varnames",
    re.I,
)
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
}
_BUILTINS: dict[str, Callable[..., Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "tuple": tuple,
    "list": list,
    "len": len,
    "bool": bool,
    "any": any,
    "all": all,
}
_METHODS = frozenset(
    {"split", "rsplit", "startswith", "endswith", "strip", "lstrip", "partition", "replace", "isdigit", "join"}
)
_PARTS = frozenset({"major", "minor", "micro", "release", "base_version", "public", "version"})
_MAX_DEPTH = 12
_FEW_WAYS = 20
_FEW_STEPS = 2


class _UnknownError(Exception):
    """The value of an expression does not follow from releases."""


class ReleaseTests:
    """Answers what guards say under one set of releases.

    ``release`` gives the release of a library by the name of its package, ``None`` when it is open; ``has`` tells
    whether that release has a dotted name, ``None`` when nobody knows.
    """

    def __init__(
        self, names: Names, uses: Uses, release: Callable[[str], str | None], has: Callable[[str], bool | None]
    ) -> None:
        self._names = names
        self._uses = uses
        self._release = release
        self._has = has
        self._depth = 0
        self._known: dict[int, Answer] = {}

    def open(self, guards: Guards) -> Answer:
        """Return whether code under some guards runs: ``maybe`` where something else decides."""
        return _least(self._guard(guard) for guard in guards)

    def _guard(self, guard: Guard) -> Answer:
        known = self._known.get(id(guard))
        if known is None:
            self._known[id(guard)] = "maybe"  # for functions that call each other
            known = self._known[id(guard)] = self._judged(guard)
        return known

    def _judged(self, guard: Guard) -> Answer:
        if guard.kind == "called":
            ways = guard.ways[:_FEW_WAYS]
            return max((self.open(way) for way in ways), key=_ORDER.index, default="maybe")
        if guard.kind == "works":
            found = [self._has(name) for name in guard.tried]
            works: Answer = (
                "no" if False in found else "maybe" if None in found or guard.is_open or not found else "yes"
            )
            return works if guard.holds else _negated(works)
        assert guard.test is not None
        return self.truth(guard.test) if guard.holds else _negated(self.truth(guard.test))

    def truth(self, test: ast.expr) -> Answer:
        """Return whether a test holds."""
        if isinstance(test, ast.BoolOp):
            answers = [self.truth(value) for value in test.values]
            if isinstance(test.op, ast.And):
                return _least(answers)
            return _negated(_least(map(_negated, answers)))
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return _negated(self.truth(test.operand))
        if not self._may_tell(test):
            return "maybe"
        try:
            value = self._value(test, {})
            return "yes" if value is not ABSENT and value else "no"
        except _UnknownError:
            return "asked" if self._asks(test) else "maybe"
        except Exception:  # what Python refuses to compute is no test of releases
            return "asked" if self._asks(test) else "maybe"

    def _may_tell(self, test: ast.expr) -> bool:
        """Return whether a test speaks of releases, or reads a flag that is set under guards."""
        if isinstance(test, ast.Constant) or self._asks(test):
            return True
        flags = self._uses.flags
        named = [node for node in ast.walk(test) if isinstance(node, ast.Name)]
        return any(flags.get(id(b.node)) for name in named for b in self._names.bindings(name))

    def _asks(self, test: ast.expr, depth: int = 0) -> bool:
        """Return whether a test, or what its names stand for, speaks of releases."""
        known = self._uses.asked.get(id(test))
        if known is None:
            known = self._uses.asked[id(test)] = self._looks(test, depth)
        return known

    def _looks(self, test: ast.expr, depth: int) -> bool:
        if _ASKS.search(ast.unparse(test)):
            return True
        if depth == _FEW_STEPS:
            return False
        inner = [n for n in ast.walk(test) if isinstance(n, ast.Name)]
        behind = [b.value for name in inner for b in self._names.bindings(name) if b.value is not None]
        functions = [self._names.definition(name) for name in inner]
        for function in functions:
            if isinstance(function, ast.FunctionDef):
                behind += [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
        return any(self._asks(value, depth + 1) for value in behind)

    # -- values -------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr, local: dict[str, Any]) -> Any:
        self._depth += 1
        try:
            if self._depth > _MAX_DEPTH * 4:
                raise _UnknownError
            return self._computed(node, local)
        finally:
            self._depth -= 1

    def _computed(self, node: ast.expr, local: dict[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple | ast.List):
            items = [self._value(item, local) for item in node.elts]
            return tuple(items) if isinstance(node, ast.Tuple) else items
        if isinstance(node, ast.Name | ast.Attribute):
            return self._named(node, local)
        if isinstance(node, ast.Call):
            return self._call(node, local)
        if isinstance(node, ast.Compare):
            return self._compare(node, local)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](self._value(node.left, local), self._value(node.right, local))
        if isinstance(node, ast.Subscript):
            return self._value(node.value, local)[self._index(node.slice, local)]
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self._comprehension(node, local)
        if isinstance(node, ast.NamedExpr):
            return self._value(node.value, local)
        if isinstance(node, ast.BoolOp | ast.UnaryOp) and not isinstance(getattr(node, "op", None), ast.USub):
            answer = self.truth(node)
            if answer in ("yes", "no"):
                return answer == "yes"
        raise _UnknownError

    def _index(self, node: ast.expr, local: dict[str, Any]) -> Any:
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            return slice(*(self._value(part, local) if part is not None else None for part in parts))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return -node.operand.value  # type: ignore[operator]
        return self._value(node, local)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp, local: dict[str, Any]) -> list[Any]:
        inner = node.generators[0]
        if len(node.generators) > 1 or inner.ifs or not isinstance(inner.target, ast.Name):
            raise _UnknownError
        name = inner.target.id
        return [self._value(node.elt, {**local, name: item}) for item in self._value(inner.iter, local)]

    def _compare(self, node: ast.Compare, local: dict[str, Any]) -> bool:
        left = self._value(node.left, local)
        for op, other in zip(node.ops, node.comparators, strict=True):
            right = self._value(other, local)
            if type(op) not in _OPERATORS or not compared(_OPERATORS[type(op)], left, right):
                return False
            left = right
        return True

    def _named(self, node: ast.Name | ast.Attribute, local: dict[str, Any]) -> Any:
        if isinstance(node, ast.Name) and node.id in local:
            return local[node.id]
        dotted = self._names.qualified(node)
        if dotted:
            return self._of_library(dotted)
        if isinstance(node, ast.Attribute):
            if node.attr in _PARTS:
                return getattr(self._value(node.value, local), node.attr)
            raise _UnknownError
        single = self._names.single(node)
        if single is None or len(self._names.bindings(node)) > 1:
            return self._flag(node)
        return self._value(single, local)

    def _of_library(self, dotted: str) -> Any:
        """Return the value of a name that is imported: a version, or a test of one that has a name."""
        top, _, rest = dotted.partition(".")
        last = dotted.rpartition(".")[2]
        if last == "__version__" and (release := self._release(top)) is not None:
            return release
        found = asked_by_name(last, self._release)
        if found is None:
            if rest and last[:1].isupper() is False and self._has(dotted) is False:
                return ABSENT
            raise _UnknownError
        return found

    def _flag(self, node: ast.Name) -> Any:
        """Return the constant that a name holds where its assignments stand under guards."""
        held: list[Any] = []
        for binding in self._names.bindings(node):
            guards = self._uses.flags.get(id(binding.node))
            if binding.value is None or guards is None:
                raise _UnknownError
            answer = self.open(guards)
            if answer == "no":
                continue
            value = self._value(binding.value, {})
            held = [value] if answer == "yes" or not guards else [*held, value]
        if len({repr(value) for value in held}) != 1:
            raise _UnknownError
        return held[0]

    # -- calls --------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, local: dict[str, Any]) -> Any:
        dotted = self._names.qualified(node.func)
        name = self._names.called(node)
        if dotted in _BUILTINS and not node.keywords:
            return _BUILTINS[dotted](*(self._value(arg, local) for arg in node.args))
        if dotted == "map" and len(node.args) == 2:
            function = self._names.qualified(node.args[0])
            return [_BUILTINS[function](item) for item in self._value(node.args[1], local)]
        if name in ("hasattr", "getattr"):
            return self._asked_attribute(node, local)
        if name == "find_spec" and len(node.args) == 1:
            module = self._value(node.args[0], local)
            found = self._has(module) if isinstance(module, str) and "." in module else None
            return self._told(found)
        if isinstance(node.func, ast.Attribute) and name in _METHODS:
            return getattr(self._value(node.func.value, local), name)(*(self._value(arg, local) for arg in node.args))
        inner = self._names.definition(node.func)
        if isinstance(inner, ast.FunctionDef):
            return self._returned(inner, node)
        given = [self._value(arg, local) for arg in node.args]
        found = called_version(name, dotted, given, self._release)
        if found is None:
            raise _UnknownError
        return found

    def _returned(self, function: ast.FunctionDef, call: ast.Call) -> Any:
        """Return what a function of the module gives that only returns something."""
        returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
        names = [arg.arg for arg in function.args.args]
        if len(returns) != 1 or returns[0].value is None or call.keywords or len(names) != len(call.args):
            raise _UnknownError
        given = {name: self._value(arg, {}) for name, arg in zip(names, call.args, strict=True)}
        return self._value(returns[0].value, given)

    def _asked_attribute(self, node: ast.Call, local: dict[str, Any]) -> Any:
        if len(node.args) < 2 or not isinstance(node.args[1], ast.Constant):
            raise _UnknownError
        home, name = self._names.qualified(node.args[0]), str(node.args[1].value)
        if home and name == "__version__":
            return self._told(True) if self._names.called(node) == "hasattr" else self._of_library(f"{home}.{name}")
        found = self._has(f"{home}.{name}") if home else None
        if found is False and len(node.args) > 2:
            return self._value(node.args[2], local)
        return self._told(found)

    @staticmethod
    def _told(found: bool | None) -> Any:
        if found is None:
            raise _UnknownError
        return True if found else ABSENT


def _negated(answer: Answer) -> Answer:
    return "no" if answer == "yes" else "yes" if answer == "no" else answer


def _least(answers: Any) -> Answer:
    return min(answers, key=_ORDER.index, default="yes")
