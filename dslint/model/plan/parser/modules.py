"""Modules of the project by the names under which a script imports them."""

from __future__ import annotations

import ast
import posixpath
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from dslint.model.plan.pyscript import PyScript, read_script
from dslint.model.workspace import Workspace

# Folders that packaging puts on the path beside the top of a project.
_SOURCES = ("", "src")


@dataclass(slots=True)
class Module:
    """One Python file: what it defines at its top level."""

    path: str
    script: PyScript
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    # By identity of the function.
    _factories: dict[int, bool] = field(default_factory=dict)

    def makes_parser(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """The function adds options to a parser and returns something."""
        source = self.script.source
        start, end = source.offset(function.lineno, 1), source.offset(function.end_lineno or function.lineno, 1)
        if source.text.find("add_argument", start, end + len(source.line_text(function.end_lineno or 1))) < 0:
            return False  # most functions, and a ``main`` is long
        if id(function) not in self._factories:
            nodes = list(ast.walk(function))
            returns = any(isinstance(n, ast.Return) and n.value is not None for n in nodes)
            adds = any(isinstance(n, ast.Attribute) and n.attr == "add_argument" for n in nodes)
            self._factories[id(function)] = returns and adds
        return self._factories[id(function)]


# Syntax trees are large, and scripts that follow each other import the same modules.
_KEPT = 32
_recent: WeakKeyDictionary[Workspace, OrderedDict[str, Module | None]] = WeakKeyDictionary()

_found: WeakKeyDictionary[Workspace, dict[tuple[str, str], str | None]] = WeakKeyDictionary()
_tops: WeakKeyDictionary[Workspace, dict[tuple[str, str], tuple[str, ...]]] = WeakKeyDictionary()


def load(path: str, workspace: Workspace) -> Module | None:
    """The module in a file; ``None`` when it cannot be read or is no Python."""
    kept = _recent.setdefault(workspace, OrderedDict())
    if path in kept:
        kept.move_to_end(path)
        return kept[path]
    source = workspace.read(path)
    kept[path] = module = None if source is None else _module(path, read_script(source))
    if len(kept) > _KEPT:
        kept.popitem(last=False)
    return module


def _module(path: str, script: PyScript) -> Module | None:
    if script.tree is None:
        return None
    module = Module(path, script)
    for node in _top_level(script.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            module.functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            module.classes[node.name] = node
    return module


def _top_level(tree: ast.Module) -> list[ast.stmt]:
    """Statements of the module, also those below a top-level ``if`` or ``try``."""
    found: list[ast.stmt] = []
    stack: list[ast.stmt] = list(reversed(tree.body))
    while stack:
        node = stack.pop()
        found.append(node)
        if isinstance(node, (ast.If, ast.Try)):
            bodies = [*node.body, *node.orelse]
            if isinstance(node, ast.Try):
                bodies += [s for handler in node.handlers for s in handler.body]
            stack += reversed(bodies)
    return found


def find_module(name: str, importer: str, workspace: Workspace) -> str | None:
    """The file of ``pkg.module`` or ``.module`` as the file ``importer`` means it; ``None`` for other libraries.

    An absolute name is looked up beside the importer first, as Python does it for a script, then in each folder above.
    """
    known = _found.setdefault(workspace, {})
    if (name, importer) not in known:
        known[name, importer] = _search(name, importer, workspace)
    return known[name, importer]


def _search(name: str, importer: str, workspace: Workspace) -> str | None:
    dots = len(name) - len(name.lstrip("."))
    inner = name[dots:].replace(".", "/")
    folder = posixpath.dirname(importer)
    if dots:
        for _ in range(dots - 1):
            folder = posixpath.dirname(folder)
        return _file(posixpath.join(folder, inner), workspace)
    for root in _roots(folder, inner.partition("/")[0], importer, workspace):
        found = _file(posixpath.join(root, inner), workspace)
        if found is not None and found != workspace.normal(importer):
            return found
    return None


def _roots(folder: str, top: str, importer: str, workspace: Workspace) -> tuple[str, ...]:
    """The folders in which a package or module of that name may stand: none for nearly all imports of a script."""
    known = _tops.setdefault(workspace, {})
    if (folder, top) not in known:
        roots = (posixpath.join(base, source) for base in workspace.bases(importer) for source in _SOURCES)
        stems = ((root, posixpath.join(root, top)) for root in roots)
        known[folder, top] = tuple(r for r, s in stems if workspace.exists(s) or workspace.exists(f"{s}.py"))
    return known[folder, top]


def _file(stem: str, workspace: Workspace) -> str | None:
    candidates = (f"{stem}.py", posixpath.join(stem, "__init__.py"))
    return next((workspace.normal(c) for c in candidates if workspace.is_file(c)), None)


def find_definition(
    qualified: str, module: Module, workspace: Workspace, holds: re.Pattern[str] | None = None, depth: int = 0
) -> tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] | None:
    """The function or class of the project that a dotted name means, through imports and packages that re-export it.

    ``holds``: what the text of its module must hold to be of interest.
    """
    if depth > 4 or not qualified:
        return None
    if "." not in qualified:
        found = module.functions.get(qualified) or module.classes.get(qualified)
        if found is not None:
            return module, found
        return None
    owner, _, name = qualified.rpartition(".")
    if not owner.strip("."):  # ``from . import name``
        owner = qualified[: len(qualified) - len(name)]
    path = find_module(owner, module.path, workspace)
    other = _interesting(path, workspace, holds) if path is not None else None
    if other is None:
        return None
    direct = other.functions.get(name) or other.classes.get(name)
    if direct is not None:
        return other, direct
    origin = other.script.imports.get(name)
    return find_definition(origin, other, workspace, holds, depth + 1) if origin is not None and "." in origin else None


def _interesting(path: str, workspace: Workspace, holds: re.Pattern[str] | None) -> Module | None:
    source = workspace.read(path)
    if source is None:
        return None
    if holds is not None and not path.endswith("__init__.py") and not holds.search(source.text):
        return None
    return load(path, workspace)
