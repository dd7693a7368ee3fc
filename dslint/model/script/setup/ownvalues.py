"""Values that each process makes for itself, so that they differ between the ranks: clocks, random names, the rank."""

from __future__ import annotations

from dataclasses import dataclass, replace

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.given import given
from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.ranks.rankvalues import RankValues

_MAX_STEPS = 8
# Never the same in two processes.
_UNIQUE = {
    "uuid.uuid1": "a UUID",
    "uuid.uuid4": "a UUID",
    "os.getpid": "a process id",
    "tempfile.mkdtemp": "a temporary folder",
    "tempfile.mktemp": "a temporary name",
    "secrets.token_hex": "a random text",
    "secrets.token_urlsafe": "a random text",
    "time.time": "the clock",
    "time.time_ns": "the clock",
    "time.perf_counter": "the clock",
    "time.monotonic": "the clock",
    "datetime.datetime.now": "the clock",
    "datetime.datetime.utcnow": "the clock",
    "datetime.datetime.today": "the clock",
}
# The same on the ranks of one host.
_PER_HOST = {"socket.gethostname": "the host name", "platform.node": "the host name", "os.uname": "the host name"}
# The same when the ranks ask within the same second (or minute, as the format says).
_COARSE = frozenset({"time.strftime", "time.ctime", "time.asctime", "time.localtime", "time.gmtime"})
# Another text in each process, unless something seeded the generator.
_DRAWN = frozenset(
    {f"random.{name}" for name in ("random", "randint", "randrange", "getrandbits", "choice", "choices", "uniform")}
    | {f"numpy.random.{name}" for name in ("rand", "randint", "random", "choice", "uniform")}
)
# The value of one of these follows from its arguments (or from the object in front of it).
_PASSING = frozenset({"str", "int", "round", "repr", "float", "format", "hex"})
_PASSING_METHODS = frozenset({"format", "isoformat", "timestamp", "replace", "strip", "lower", "upper", "hexdigest"})
_PASSING_PATHS = frozenset({"os.path.join", "pathlib.Path", "os.path.abspath", "os.fspath"})
_COARSE_METHODS = frozenset({"strftime", "ctime", "date"})


@dataclass(frozen=True, slots=True)
class OwnValue:
    """A value of the process's own inside an expression.

    ``kind``: ``clock`` | ``rank`` | ``host`` | ``loss`` | ``unique``; ``what`` says it in words. ``is_certain``: two
    ranks never get the same one; otherwise they may, as two that ask within the same second.
    """

    node: cst.BaseExpression
    kind: str
    what: str
    is_certain: bool


class OwnValues:
    """Looks for such values behind the expressions of one module."""

    def __init__(self, names: Names, ranks: RankValues, objects: Objects) -> None:
        self._names = names
        self._ranks = ranks
        self._objects = objects

    def of(self, node: cst.BaseExpression) -> OwnValue | None:
        """The value that makes an expression different on each rank; ``None`` when none is known."""
        return self._of(node, _MAX_STEPS, True)

    def _of(self, node: cst.BaseExpression, steps: int, is_certain: bool) -> OwnValue | None:
        if steps < 0:
            return None
        if isinstance(node, cst.Call):
            return self._call(node, steps, is_certain)
        if isinstance(node, cst.Name | cst.Attribute):
            return self._named(node, steps, is_certain)
        if self._ranks.is_rank(node):
            return OwnValue(node, "rank", "the rank", True)
        if isinstance(node, cst.Subscript):
            return self._cut(node, steps, is_certain)
        parts: list[cst.BaseExpression] = []
        if isinstance(node, cst.FormattedString):
            parts = [p.expression for p in node.parts if isinstance(p, cst.FormattedStringExpression)]
            coarse = [p.format_spec is not None for p in node.parts if isinstance(p, cst.FormattedStringExpression)]
            found = (self._of(p, steps - 1, is_certain and not c) for p, c in zip(parts, coarse, strict=True))
            return next((f for f in found if f is not None), None)
        if isinstance(node, cst.BinaryOperation):
            # ``time.time() // 60`` and ``rank // 8``: what is left may be the same.
            divides = isinstance(node.operator, cst.FloorDivide) or (
                isinstance(node.operator, cst.Modulo) and not isinstance(node.left, cst.SimpleString)
            )
            parts = [] if divides else [node.left, node.right]
        elif isinstance(node, cst.Tuple):
            parts = [e.value for e in node.elements]
        return next((f for p in parts if (f := self._of(p, steps - 1, is_certain)) is not None), None)

    def _cut(self, node: cst.Subscript, steps: int, is_certain: bool) -> OwnValue | None:
        """``str(uuid.uuid4())[:8]``; an item of a list is what the list holds, which may have been broadcast."""
        if not any(isinstance(part.slice, cst.Slice) for part in node.slice):
            return None
        found = self._of(node.value, steps - 1, is_certain)
        return replace(found, is_certain=found.kind == "unique") if found is not None else None

    def _call(self, node: cst.Call, steps: int, is_certain: bool) -> OwnValue | None:
        name = self._names.qualified(node.func) or ""
        if name in _UNIQUE:
            clock = _UNIQUE[name] == "the clock"
            return OwnValue(node, "clock" if clock else "unique", _UNIQUE[name], is_certain)
        if name in _PER_HOST:
            return OwnValue(node, "host", _PER_HOST[name], False)
        if name in _COARSE:
            return OwnValue(node, "clock", "the clock", False)
        if name in _DRAWN and not any("seed" in word.lower() for word in self._names.words):
            return OwnValue(node, "unique", "a random number", False)
        if self._ranks.is_rank(node):
            return OwnValue(node, "rank", "the rank", True)
        if name in _PASSING or name in _PASSING_PATHS:
            certain = is_certain and name not in ("int", "round")
            found = (self._of(a.value, steps - 1, certain) for a in node.args)
            return next((f for f in found if f is not None), None)
        if not isinstance(node.func, cst.Attribute):
            return None
        return self._method(node, node.func, steps, is_certain)

    def _method(self, node: cst.Call, called: cst.Attribute, steps: int, is_certain: bool) -> OwnValue | None:
        method = called.attr.value
        if method == "item" and self._is_local_loss(called.value, steps):
            return OwnValue(node, "loss", "the loss of this rank's batch", False)
        coarse = method in _COARSE_METHODS
        if not coarse and method not in _PASSING_METHODS:
            return None
        inner = self._of(called.value, steps - 1, is_certain and not coarse)
        if inner is None and method == "format":
            found = (self._of(a.value, steps - 1, is_certain) for a in node.args)
            inner = next((f for f in found if f is not None), None)
        return inner

    def _named(self, node: cst.Name | cst.Attribute, steps: int, is_certain: bool) -> OwnValue | None:
        if self._ranks.is_rank(node) and not self._is_counter(node):
            return OwnValue(node, "rank", "the rank", True)
        if isinstance(node, cst.Attribute) and node.attr.value in ("hex", "nodename"):
            return self._of(node.value, steps - 1, is_certain)
        value = self._names.single_value(node)
        return self._of(value, steps - 1, is_certain) if value is not None else None

    def _is_counter(self, node: cst.Name | cst.Attribute) -> bool:
        """``for rank in range(world_size)``, or a parameter: some rank, not necessarily this one."""
        found: list[Binding] = self._names.bindings(node.value, node) if isinstance(node, cst.Name) else []
        return any(b.kind in ("loop", "param", "unpack") for b in found)

    def _is_local_loss(self, node: cst.BaseExpression, steps: int) -> bool:
        """The result of a forward pass of the engine, which nothing has made the same on all ranks."""
        if steps < 0:
            return False
        if isinstance(node, cst.Attribute) and node.attr.value == "loss":
            return self._is_local_loss(node.value, steps - 1)
        if isinstance(node, cst.Call):
            return self._objects.kind(node.func) in ("engine", "ddp")
        if not isinstance(node, cst.Name) or self._is_passed(node):
            return False
        value = self._names.single_value(node)
        return value is not None and self._is_local_loss(value, steps - 1)

    def _is_passed(self, node: cst.Name) -> bool:
        """Some call but `backward` gets the variable: it may be reduced there."""
        tree = self._names.tree
        calls = tree.every(cst.Call)
        others = (c for c in calls if self._names.called(c) not in ("backward", "print", "float"))
        given_to = ((given(self._names, c) if any(a.star for a in c.args) else None, c) for c in others)
        passed = (v for g, c in given_to for v in (g.positional if g is not None else [a.value for a in c.args]))
        return any(isinstance(value, cst.Name) and value.value == node.value for value in passed)
