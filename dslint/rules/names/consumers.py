"""Where the value of an expression goes, and whether anybody makes use of it.

A value that is handed to a parameter which no code reads, kept in a variable or field that no code reads, taken by
`**kwargs` that nobody looks into, or only printed, is used by nobody. Whatever is not understood is a use.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from dslint.python.names import names_of
from dslint.python.queries.mentions import (
    calls_made,
    fields_read,
    functions_defined,
    items_read,
    mentions,
    names_read,
)
from dslint.python.source import Module
from dslint.rules.names.targets import Target, parameter_of, says_nothing_of_use, targets_of
from dslint.rules.runs import RunQuery

Piece = tuple[Module, ast.AST]
_Assignment = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr
_MOST = 200
PRINTED = "only printed"
# What only shows a value.
_SHOWS = re.compile(
    r"(?:\w+\.)*(?:(?:r|p|pp)?print\w*|(?:logger|logging|log|LOGGER|_logger)\.(?:info|debug|warning|warn|log|critical|error))"
)
# Functions of a value that do nothing else.
_PURE = re.compile(
    r"(?:int|float|str|bool|abs|min|max|round|len|list|tuple|set|sorted|Path|pathlib\.Path|repr)"
    r"|os\.path\.(?:join|abspath|expanduser|realpath|basename|dirname|normpath)|math\.\w+"
)
_PURE_METHODS = frozenset(
    ("split", "strip", "lower", "upper", "format", "replace", "join", "rstrip", "lstrip", "title")
)
_FLOWS = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.JoinedStr, ast.FormattedValue, ast.IfExp, ast.List, ast.Set,
    ast.Slice,
)  # fmt: skip
# Classes of libraries that read no field that a class of the project sets.
_BASES = re.compile(r"(?:(?:torch\.)?nn\.)?Module|(?:[\w.]+\.)?(?:Iterable)?Dataset|object|(?:[\w.]+\.)?Sampler|ABC")
_OPEN = re.compile(r"\b(?:vars|setattr|locals)\(|__dict__|getattr\(\s*self\s*,\s*[^'\"]|__getattr")


@dataclass
class Fate:
    """What becomes of a value: whether somebody may use it, and where it ends."""

    is_used: bool = False
    is_read: bool = False
    is_kept: bool = False
    ends: list[tuple[Module, ast.AST, str]] = field(default_factory=list)

    @property
    def is_shown(self) -> bool:
        """Return whether something prints the value as it is: that may be what it is for."""
        return not self.is_kept and any(how == PRINTED for _, _, how in self.ends)


class Consumers:
    """The uses of values in the modules of one run."""

    def __init__(self, run: RunQuery) -> None:
        self._program = run.machine.program
        self._modules = self._program.modules()

    def fate(self, start: list[Piece]) -> Fate:
        """Return what becomes of the values of some expressions."""
        found, pending, seen = Fate(is_read=bool(start)), list(start), set[int]()
        while pending:
            module, node = pending.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            further = self._next(module, node, found) if len(seen) < _MOST else None
            if further is None:
                return Fate(is_used=True, is_read=True)
            pending += further
        return found

    # -- one step -----------------------------------------------------------------------------------------------

    def _next(self, module: Module, node: ast.AST, fate: Fate) -> list[Piece] | None:
        """Return where a value goes from an expression; `None` where it is used."""
        parent = module.parents.get(node)
        if isinstance(parent, ast.keyword):
            node, parent = parent, module.parents.get(parent)
        if isinstance(parent, ast.Call):
            return self._given(module, parent, node, fate) if node is not parent.func else None
        if isinstance(parent, _FLOWS) or (isinstance(parent, ast.Subscript) and node is parent.value):
            return [(module, parent)]
        if isinstance(parent, ast.Attribute):
            call = module.parents.get(parent)
            is_pure = parent.attr in _PURE_METHODS and isinstance(call, ast.Call) and call.func is parent
            return [(module, call)] if is_pure and call is not None else None
        if isinstance(parent, _Assignment) and node is parent.value:
            return self._kept(module, parent, fate)
        if isinstance(parent, ast.Tuple):
            return self._part(module, parent, node)
        if isinstance(parent, ast.Return):
            return self._returned(module, parent, None)
        return [] if isinstance(parent, ast.Expr) else None

    # -- calls --------------------------------------------------------------------------------------------------

    def _given(self, module: Module, call: ast.Call, node: ast.AST, fate: Fate) -> list[Piece] | None:
        """Return where an argument of a call goes."""
        func = ast.unparse(call.func)
        if _SHOWS.fullmatch(func) and not any(keyword.arg == "file" for keyword in call.keywords):
            fate.ends.append((module, call, PRINTED))
            return []
        if _PURE.fullmatch(func) or func.rpartition(".")[2] in _PURE_METHODS:
            return [(module, call)]
        targets = targets_of(self._program, module, call)
        if targets is None:
            return None
        found: list[Piece] = []
        for target in targets:
            taken = parameter_of(target, call, node)
            if taken is None or says_nothing_of_use(target):
                return None
            loads = self._reads_of_parameter(target, taken[0])
            if loads and taken[1]:
                return None
            if not loads:
                arguments = target.function.args
                each = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
                at = next((a for a in each if a.arg == taken[0]), arguments.kwarg or arguments.vararg)
                how = f"`{target.name}` takes it by `**{taken[0]}`" if taken[1] else f"`{target.name}` never reads it"
                fate.ends.append((target.module, at or target.function, how))
            found += loads
        return found

    def _reads_of_parameter(self, target: Target, name: str) -> list[Piece]:
        loads = (n for n in ast.walk(target.function) if isinstance(n, ast.Name) and n.id == name)
        return [(target.module, n) for n in loads if isinstance(n.ctx, ast.Load)]

    # -- what is kept -------------------------------------------------------------------------------------------

    def _kept(self, module: Module, statement: _Assignment, fate: Fate) -> list[Piece] | None:
        """Return the reads of what an assignment binds to a value."""
        fate.is_kept = True
        found: list[Piece] = [(module, statement)] if isinstance(statement, ast.NamedExpr) else []
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            if _is_foreign(target) and not _is_changed(target, statement.value):
                return None
            reads = self._reads(module, target)
            if reads is None:
                return None
            if not reads:
                fate.ends.append((module, target, "never read"))
            found += reads
        return found

    def _reads(self, module: Module, target: ast.AST) -> list[Piece] | None:
        """Return the reads of a variable or field; `None` where others may read it."""
        if isinstance(target, ast.Name):
            return self._reads_of_name(module, target)
        if not isinstance(target, ast.Attribute):
            return None
        if any(target.attr in m.once(functions_defined) for m in self._modules):
            return None  # a property, or a method that is replaced
        cls = names_of(module.tree).class_around(target)
        if isinstance(target.value, ast.Name) and target.value.id in ("self", "cls"):
            if cls is None or any(not _BASES.fullmatch(ast.unparse(b)) for b in cls.bases) or cls.decorator_list:
                return None
            if _OPEN.search(module.text(cls)):
                return None
        return self.reads_of_field(target.attr)

    def reads_of_field(self, name: str) -> list[Piece]:
        """Return where code reads a field of that name of anything, also by its name as a text."""
        return [(m, node) for m in self._modules for node in m.once(fields_read).get(name, ())]

    def reads_of_item(self, name: str) -> list[Piece]:
        """Return where code reads an item of that name of anything: `settings["name"]`."""
        return [(m, node) for m in self._modules for node in m.once(items_read).get(name, ())]

    def _reads_of_name(self, module: Module, target: ast.Name) -> list[Piece] | None:
        if module not in self._modules:  # the program has taken it in since
            return None
        names = names_of(module.tree)
        bound = names.bindings(target)
        nodes = {id(b.node) for b in bound}
        found: list[Piece] = []
        for load in module.once(names_read).get(target.id, ()):
            if any(id(b.node) in nodes for b in names.bindings(load)):
                found.append((module, load))
        is_inner = module.function(target) is not None and names.class_around(target) is None
        if not is_inner or any(target.id in n.names for n in module.nodes_of(ast.Global)):
            found += self.reads_of_field(target.id)
            for other in self._modules:
                if "*" in other.imported or any(inner == target.id for _, inner in other.imported.get(target.id, ())):
                    found += [(other, n) for n in other.once(names_read).get(target.id, ())]
            if module.path.endswith("__init__.py"):
                return None
        return found

    # -- what is given back -------------------------------------------------------------------------------------

    def _part(self, module: Module, parent: ast.Tuple, node: ast.AST) -> list[Piece] | None:
        """Return where a part of a tuple goes that is assigned or returned part by part."""
        at = next(i for i, part in enumerate(parent.elts) if part is node)
        around = module.parents.get(parent)
        if isinstance(around, ast.Return):
            return self._returned(module, around, at)
        if isinstance(around, ast.Compare):
            return [(module, around)]
        return self._unpacked(module, parent, at)

    def _unpacked(self, module: Module, value: ast.AST, at: int) -> list[Piece] | None:
        around = module.parents.get(value)
        target = around.targets[0] if isinstance(around, ast.Assign) and len(around.targets) == 1 else None
        if not isinstance(target, ast.Tuple) or any(isinstance(t, ast.Starred) for t in target.elts):
            return None
        return self._reads(module, target.elts[at]) if at < len(target.elts) else None

    def _returned(self, module: Module, statement: ast.Return, at: int | None) -> list[Piece] | None:
        """Return the calls of the function that returns a value, or what takes that part of what they give."""
        function = module.function(statement)
        if not isinstance(function, ast.FunctionDef) or function.decorator_list or _is_generator(function):
            return None
        calls = self._called(function.name)
        if not calls or len(calls) != self._mentioned(function.name):
            return None
        if at is None:
            return list(calls)
        found: list[Piece] = []
        for home, call in calls:
            parts = self._unpacked(home, call, at)
            if parts is None:
                return None
            found += parts
        return found

    def _called(self, name: str) -> list[Piece]:
        return [(m, call) for m in self._modules for call in m.once(calls_made).get(name, ())]

    def _mentioned(self, name: str) -> int:
        return sum(m.once(mentions).get(name, 0) for m in self._modules)


def _is_foreign(target: ast.AST) -> bool:
    """Return whether an assignment sets a field of something other than the object of a method."""
    base = target.value if isinstance(target, ast.Attribute) else None
    return base is not None and not (isinstance(base, ast.Name) and base.id == "self")


def _is_changed(target: ast.AST, value: ast.AST | None) -> bool:
    """Return whether a field gets another value that is computed from its own: `args.lr = args.lr * 8`."""
    name = ast.unparse(target)
    return value is not None and any(ast.unparse(n) == name for n in ast.walk(value) if isinstance(n, ast.Attribute))


def _is_generator(function: ast.FunctionDef) -> bool:
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(function))
