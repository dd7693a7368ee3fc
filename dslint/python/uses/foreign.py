"""Classes of other modules of a project from which classes of a module derive, and what they derive from themselves."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from dslint.python.names import Names, names_of
from dslint.python.project import Asker, Project
from dslint.python.uses.objects import Ancestry, Objects

# So many modules on the way from a class to the one of a library.
_MOST_STEPS = 4


def foreign(
    names: Names, modules: Project, asker: Asker, path: str, is_tracked: Callable[[str], bool], depth: int = 0
) -> dict[str, Ancestry]:
    """Return the classes of other modules that classes of one derive from, by the names that it has for them.

    ``path`` is the module, absolute.
    """
    found: dict[str, Ancestry] = {}
    for dotted in _imported_bases(names):
        if dotted not in found and not is_tracked(dotted):
            known = _named(dotted, modules, asker, path, is_tracked, depth)
            if known is not None:
                found[dotted] = known
    return found


def _imported_bases(names: Names) -> Iterator[str]:
    for node in ast.walk(names.tree):
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            dotted = names.qualified(base.value if isinstance(base, ast.Subscript) else base)
            if "." in dotted:
                yield dotted


def _named(
    dotted: str, modules: Project, asker: Asker, path: str, is_tracked: Callable[[str], bool], depth: int
) -> Ancestry | None:
    """Return the class that a dotted name of a module means; `None` where it is none of the project."""
    module, _, name = dotted.rpartition(".")
    # `from .base import Trainer` is `.base.Trainer`, and `from . import Trainer` is `.Trainer`.
    module = module if module.strip(".") else module + "."
    file = modules.module(asker, path, module)
    text = modules.text(asker, file) if file and depth < _MOST_STEPS else None
    if text is None or name.encode() not in text:
        return None
    inner = modules.interpreted.module_in(modules.files, file)
    if inner is None:
        return None
    names = names_of(inner.tree)
    node = names.class_named(name)
    if node is not None:
        others = foreign(names, modules, asker, file, is_tracked, depth + 1)
        return Objects(names, is_tracked, {}, others).ancestry(node)
    imports = [b.target for b in names.named(name, inner.tree) if b.kind == "import"]
    if len(imports) != 1:
        return None
    if is_tracked(imports[0]):
        return Ancestry((imports[0],))
    return _named(imports[0], modules, asker, file, is_tracked, depth + 1)
