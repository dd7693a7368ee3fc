"""Modules of the project by the names under which a script imports them."""

from __future__ import annotations

import posixpath
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from dslint.core.source import SourceFile
from dslint.model.plan.pyscript import PyScript, read_script
from dslint.model.workspace import Workspace

# Folders that packaging puts on the path beside the top of a project.
_SOURCES = ("", "src")


@dataclass(slots=True)
class Module:
    """One Python file."""

    path: str
    script: PyScript


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
    script = read_script(source) if source is not None else None
    kept[path] = module = None if script is None or script.tree is None else Module(path, script)
    if len(kept) > _KEPT:
        kept.popitem(last=False)
    return module


def imported_sources(path: str, workspace: Workspace, steps: int, most: int) -> Iterator[SourceFile]:
    """Yield a script and the modules of the project that it imports: ``steps`` imports deep, ``most`` files in all."""
    pending, seen = [(path, 0)], {path}
    while pending:
        at, depth = pending.pop(0)
        source = workspace.read(at)
        if source is None:
            continue
        yield source
        module = load(at, workspace) if at.endswith(".py") and depth < steps else None
        for origin in module.script.imports.values() if module is not None else ():
            found = find_module(origin, at, workspace) or find_module(
                origin.rpartition(".")[0] or origin, at, workspace
            )
            if found is not None and found not in seen and len(seen) < most:
                seen.add(found)
                pending.append((found, depth + 1))


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
