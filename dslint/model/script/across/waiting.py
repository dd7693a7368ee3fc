"""Which names that a file imports from its project may wait for other ranks when they are called: a cheap first look.

It may name too many, as the prechecks do, but the words that mean a collective must be clear ones: a function that only
calls ``optimizer.step()`` would let every file through that imports it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Protocol

from dslint.model.script.collective.vocabulary import ACCELERATE_FUNCTIONS, GROUP_POSITION, METHODS, MMENGINE
from dslint.model.script.marked import Calls, holds, may_wait
from dslint.model.script.quick import Flat, expression_name
from dslint.python.search import is_library

# The names under which something may be called that waits, by the name that a module gives it: a function has one, a
# class those of its methods.
Exports = Mapping[str, frozenset[str]]
_Function = ast.FunctionDef | ast.AsyncFunctionDef

_FROM = re.compile(rb"^[ \t]*from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*(?:\\\r?\n[^\n#]*)*)", re.MULTILINE)
_IMPORT = re.compile(rb"^[ \t]*import[ \t]+([^\n#;]+)", re.MULTILINE)
_COMMENT = re.compile(rb"#[^\n]*")
Asker = tuple[object, ...]
# Names that other objects have as well: who is called decides.
_COMMON = (METHODS - GROUP_POSITION.keys() - MMENGINE - ACCELERATE_FUNCTIONS) | {"initialize"}
_OWNERS = re.compile(r"engine|trainer|accelerator|deepspeed|strategy", re.IGNORECASE)
_TENSOR = frozenset({"reduce", "gather", "scatter", "broadcast"})
_COMMUNICATORS = re.compile(r"dist|comm|accelerator|engine|strategy", re.IGNORECASE)
# Most modules hold none of the words, and fewer match the expression: both come before a parse.
_WORDS = (
    *(b"barrier", b"wait_for_everyone", b"synchronize", b"all_gather", b"all_reduce", b"all_to_all", b"reduce_"),
    *(b".reduce(", b"broadcast", b"gather", b"scatter", b"new_group", b"DistributedDataParallel", b"DDP("),
    *(b"engine.", b"trainer.", b"accelerator.", b"strategy.", b"deepspeed.", b"pad_across", b"collect_results"),
    *(b"fully_shard", b"FullySharded", b"process_first", b"fabric.", b"dcp.", b"checkpoint."),
)
_CALLS = re.compile(
    rb"(?:barrier|wait_for_everyone|synchronize\w*|\ball_\w+|reduce\w*|broadcast\w*|gather\w*|scatter\w*|new_group"
    rb"|DistributedDataParallel|DDP|pad_across_processes|collect_results\w*|fully_shard|FullySharded\w*|\w+_first"
    rb"|(?:engine|trainer|accelerator|strategy|deepspeed|fabric|dcp|checkpoint)\.\w+)\("
)
# Through how many modules that call each other, and through how many ``__init__`` beside them.
_MODULES, _PACKAGES = 1, 3


class Modules(Protocol):
    """The project as far as a first look needs it."""

    def module(self, asker: Asker, importer: str, name: str) -> str:
        """The file of a module, empty when it is none of the project."""

    def text(self, asker: Asker, path: str) -> bytes | None:
        """The bytes of a module."""

    def uses(self, asker: Asker, other: Asker) -> None:
        """The answers that ``other`` got are behind those of ``asker``."""


class WaitingNames:
    """Answers for all files of a project; each module is looked at once."""

    def __init__(self, modules: Modules, own: tuple[str, ...] = ()) -> None:
        self._modules = modules
        self._own = frozenset(word.rpartition(".")[2] for word in own)
        self._exports: dict[tuple[str, int, int], Exports] = {}
        self._outlines: dict[str, _Outline | None] = {}
        self._names: dict[tuple[str, bytes], list[tuple[str, str, str]]] = {}
        self._definitions: dict[tuple[str, frozenset[str]], Exports] = {}

    def imported(self, asker: Asker, path: str, raw: bytes) -> frozenset[str]:
        """The names under which a file with these bytes may call something of another file that waits."""
        return frozenset().union(*self._imports(asker, path, raw, _MODULES, _PACKAGES).values())

    def exported(
        self, asker: Asker, path: str, raw: bytes, modules: int = _MODULES, packages: int = _PACKAGES
    ) -> Exports:
        """What of a module may wait, by the names that others import; ``modules`` and ``packages`` end the search."""
        key = (path, modules, packages)
        self._modules.uses(asker, ("names", *key))
        if key not in self._exports:
            is_package = path.endswith("/__init__.py")
            left = (modules, packages - 1) if is_package else (modules - 1, packages)
            imports = self._imports(("names", *key), path, raw, *left) if min(left) >= 0 else {}
            self._exports[key] = {**imports, **self._defined(path, raw, imports)}
        return self._exports[key]

    def _defined(self, path: str, raw: bytes, imports: Exports) -> Exports:
        names = frozenset().union(*imports.values())
        key = (path, names)
        if key not in self._definitions:
            is_worth_it = b"def " in raw and (names or self._may_call(raw))
            self._definitions[key] = self._waiting(path, raw, imports) if is_worth_it else {}
        return self._definitions[key]

    def _may_call(self, raw: bytes) -> bool:
        if any(word.encode() in raw for word in self._own):
            return True
        return any(word in raw for word in _WORDS) and _CALLS.search(raw) is not None

    def _waiting(self, path: str, raw: bytes, imports: Exports) -> Exports:
        if path not in self._outlines:
            self._outlines[path] = _Outline.of(raw)
        outline = self._outlines[path]
        return outline.waiting(imports, self._own) if outline is not None else {}

    def _imports(self, asker: Asker, path: str, raw: bytes, modules: int, packages: int) -> Exports:
        found: dict[str, frozenset[str]] = {}
        for module, name, bound in self._imported_names(path, raw):
            exports = self._of(asker, path, module, modules, packages)
            if name == "*":
                found.update(exports)
            elif name in exports:
                names = exports[name]
                found[bound] = names - {name} | {bound} if name in names else names
            else:
                # ``import a.b``, or ``from a import b`` where ``b`` is a module: everything in it.
                glue = "" if module.endswith(".") else "."
                inner = self._of(asker, path, f"{module}{glue}{name}", modules, packages) if name else exports
                names = frozenset().union(*inner.values())
                if names:
                    found[bound] = found.get(bound, frozenset()) | names
        return found

    def _imported_names(self, path: str, raw: bytes) -> list[tuple[str, str, str]]:
        """What a file imports, without libraries: nothing of them is part of the project."""
        found = self._names.get((path, raw))
        if found is None:
            names = _imported_names(raw)
            found = self._names[path, raw] = [name for name in names if not is_library(path, name[0])]
        return found

    def _of(self, asker: Asker, path: str, module: str, modules: int, packages: int) -> Exports:
        target = self._modules.module(asker, path, module)
        raw = self._modules.text(asker, target) if target and target != path else None
        return self.exported(asker, target, raw, modules, packages) if raw is not None else {}


@dataclass(frozen=True, slots=True)
class _Definition:
    """A function or class of a module, from one place of the tree to another, with its bases and methods."""

    name: str
    start: int
    end: int
    is_class: bool
    bases: tuple[str, ...] = ()
    methods: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Outline:
    """What is kept of the tree of a module: its calls, and which definition they stand in."""

    calls: Calls
    definitions: tuple[_Definition, ...]

    @staticmethod
    def of(raw: bytes) -> _Outline | None:
        """The outline of a module; ``None`` when it cannot be read."""
        try:
            tree = ast.parse(raw)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        nodes = Flat(tree)

        def named(node: _Function) -> tuple[str, int, int]:
            at = nodes.place(node)
            return node.name, at, nodes.ends[at]

        found = []
        for node in _top_level(tree):
            at = nodes.place(node)
            if isinstance(node, ast.ClassDef):
                methods = tuple(named(inner) for inner in node.body if isinstance(inner, _Function))
                bases = tuple(map(expression_name, node.bases))
                found.append(_Definition(node.name, at, nodes.ends[at], True, bases, methods))
            else:
                found.append(_Definition(node.name, at, nodes.ends[at], False))
        return _Outline(Calls(nodes, _clearly_waits), tuple(found))

    def waiting(self, imports: Exports, own: Set[str]) -> Exports:
        """The definitions that may wait, when what is imported does."""
        places = self.calls.waiting(frozenset().union(*imports.values()) | own)
        found: dict[str, frozenset[str]] = {}
        for one in self.definitions if places else ():
            names = {one.name} if not one.is_class and holds(places, one.start, one.end) else set()
            if one.is_class:
                names = {name for name, start, end in one.methods if holds(places, start, end)}
                for base in one.bases:
                    names |= found.get(base) or imports.get(base) or frozenset()
                names |= {one.name} if "__init__" in names else set()
            if names:
                found[one.name] = frozenset(names)
        return found


def _imported_names(raw: bytes) -> Iterator[tuple[str, str, str]]:
    """(module, name, bound name) of each import; no name for ``import module``."""
    for match in _FROM.finditer(raw):
        module = match[1].decode("utf-8", "replace")
        names = _COMMENT.sub(b"", match[2]).decode("utf-8", "replace").strip("() \t\r\n").replace("\\", " ")
        for item in names.split(","):
            words = item.split()
            if words:
                yield module, words[0], words[-1]
    for match in _IMPORT.finditer(raw):
        for item in match[1].decode("utf-8", "replace").split(","):
            words = item.split()
            if words:
                yield words[0], "", words[-1]


def _top_level(tree: ast.Module) -> Iterator[_Function | ast.ClassDef]:
    """Functions and classes of a module, also those behind ``if`` and ``try``."""
    pending: list[ast.stmt] = list(reversed(tree.body))
    while pending:
        node = pending.pop()
        if isinstance(node, _Function | ast.ClassDef):
            yield node
        elif isinstance(node, ast.If | ast.Try):
            handlers = [s for h in node.handlers for s in h.body] if isinstance(node, ast.Try) else []
            pending += reversed([*node.body, *node.orelse, *handlers])


def _clearly_waits(call: ast.Call, name: str, holders: Set[str]) -> bool:
    if not may_wait(call, name, holders):
        return False
    receiver = expression_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if name in _TENSOR:
        return _COMMUNICATORS.search(receiver) is not None or (not receiver and name != "reduce")
    return name not in _COMMON or receiver.lower() in holders or _OWNERS.search(receiver) is not None
