"""The functions of other files that the names of one script mean: ``ctx.project``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dslint.model.context import Context
from dslint.model.script.across.project import Analysis, Foreign, Project
from dslint.model.script.dotted import is_self, is_super

# ``from .x import f`` in an ``__init__``, of which another ``__init__`` imports it.
_MAX_HOPS = 4


@dataclass(frozen=True, slots=True)
class _Want:
    """What is looked for: only what may wait, or anything; and through how many files the search came."""

    waiting: bool
    hops: int = 0

    def further(self) -> _Want:
        return _Want(self.waiting, self.hops + 1)


class Imported:
    """The functions of other files that one script means: ``ctx.project``. Unknown ones are ``None``."""

    def __init__(self, here: Analysis, project: Project | None, run: Context, *, is_imported: bool = False) -> None:
        self._here = here
        self._project = project
        self._run = run
        self._path = project.files.absolute(here.doc.path) if project is not None else ""
        self._asker = ("module" if is_imported else "script", self._path)
        self._known: dict[tuple[int, bool], Foreign | None] = {}
        self._by_name: dict[tuple[str, bool, int], Foreign | None] = {}

    def function(self, call: cst.Call, *, waiting: bool = False) -> Foreign | None:
        """The function, method or ``__init__`` of another file of the project that a call runs.

        ``waiting``: only one that may wait for other ranks, by a first look that spares the parse of all others.
        """
        return self.named(call.func, waiting=waiting)

    def named(self, node: cst.BaseExpression, *, waiting: bool = False) -> Foreign | None:
        """The function of another file that an expression names: a callee, a decorator, a context manager."""
        if self._project is None:
            return None
        if isinstance(node, cst.Call):  # ``@retry(3)``, ``with main_first():``
            node = node.func
        key = (id(node), waiting)
        if key not in self._known:
            self._known[key] = self._meant(node, _Want(waiting))
        return self._known[key]

    def _meant(self, node: cst.BaseExpression, want: _Want) -> Foreign | None:
        names = self._here.names
        full = names.qualified(node)
        if full is not None:
            return self.at(full, want)
        if not isinstance(node, cst.Attribute):
            return None
        method = node.attr.value
        if is_self(node.value) or is_super(node.value):
            owner = self._here.tree.enclosing(node, cst.ClassDef)
            return self.inherited(owner, method, want) if isinstance(owner, cst.ClassDef) else None
        made = names.single_value(node.value) if isinstance(node.value, cst.Name | cst.Attribute) else node.value
        kind = names.qualified(made.func) if isinstance(made, cst.Call) else None
        return self.at(f"{kind}.{method}", want) if kind else None

    def inherited(self, owner: cst.ClassDef, method: str, want: _Want) -> Foreign | None:
        """A method that a class of this file has from a base class in another file."""
        bases = (base for base in self._here.names.class_bases(owner.name.value) if "." in base)
        return next(filter(None, (self.at(f"{base}.{method}", want.further()) for base in bases)), None)

    def at(self, full: str, want: _Want) -> Foreign | None:
        """The function with a qualified name as this file sees it (``pkg.mod.f``, ``..mod.Class.method``)."""
        if self._project is None or want.hops > _MAX_HOPS:
            return None
        key = (full, want.waiting, want.hops)
        if key not in self._by_name:
            self._by_name[key] = self._found(self._project, full, want)
        return self._by_name[key]

    def _found(self, project: Project, full: str, want: _Want) -> Foreign | None:
        for name, rest in _splits(full):
            path = project.module(self._asker, self._path, name)
            if path:
                return self._inside(project, path, rest, want) if path != self._path else None
        return None

    def _inside(self, project: Project, path: str, rest: list[str], want: _Want) -> Foreign | None:
        raw = project.text(self._asker, path)
        if raw is None or (rest[0].encode() not in raw and b"*" not in raw):
            return None
        if want.waiting:
            names = project.exported(self._asker, path, raw, self._run).get(rest[0], frozenset())
            # A class is called for its ``__init__``, and has its own name there only if that may wait.
            if (rest[1] if rest[1:] else rest[0]) not in names:
                return None
        context = project.analysis(self._asker, path, self._run)
        return context.project.own(rest, want) if context is not None else None

    def own(self, parts: list[str], want: _Want) -> Foreign | None:
        """What other files find in this one under a name: a function, a method of a class, or what it imports."""
        here = self._here
        found = here.names.bindings(parts[0], here.tree.module)
        node = found[0].node if len(found) == 1 else None
        if isinstance(node, cst.FunctionDef):
            return Foreign(here, node) if len(parts) == 1 else None
        if isinstance(node, cst.ClassDef):
            return self._member(node, parts[1:], want)
        if found:
            # ``try: from fast import f ... except ImportError: from slow import f`` means one of the two.
            target = found[0].target if len(found) == 1 else ""
            return self.at(".".join([target, *parts[1:]]), want.further()) if target else None
        return self._starred(parts, want)

    def _member(self, owner: cst.ClassDef, rest: list[str], want: _Want) -> Foreign | None:
        if len(rest) > 1:
            return None
        name = rest[0] if rest else "__init__"
        function = self._here.names.member(owner, name)
        return Foreign(self._here, function) if function is not None else self.inherited(owner, name, want)

    def _starred(self, parts: list[str], want: _Want) -> Foreign | None:
        modules = (module if module.endswith(".") else f"{module}." for module in self._here.names.star_imports)
        return next(filter(None, (self.at(module + ".".join(parts), want.further()) for module in modules)), None)


def _splits(full: str) -> Iterator[tuple[str, list[str]]]:
    """``a.b.c`` -> (``a.b``, [c]), (``a``, [b, c]): modules before what stands in them, the longest first."""
    dots = full[: len(full) - len(full.lstrip("."))]
    parts = full[len(dots) :].split(".")
    for at in range(len(parts) - 1, -1 if dots else 0, -1):
        yield dots + ".".join(parts[:at]), parts[at:]
