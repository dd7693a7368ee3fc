"""The names that a module of the project has when it has run, and what else an import of the project may find."""

from __future__ import annotations

import ast
import posixpath
import re
from typing import TYPE_CHECKING

from dslint.python.scopes import module_scope, own_nodes

if TYPE_CHECKING:
    from dslint.python.program import Program
    from dslint.python.source import Module

# What every module has.
_ALWAYS = frozenset(
    ("__name__", "__file__", "__doc__", "__path__", "__package__", "__spec__", "__dict__", "__loader__")
)
# Code that gives a module names which do not stand there.
_OPEN = re.compile(
    r"\bglobals\(\)|\bexec\(|\bsys\.modules\b|(?m:^(?:def )?__getattr__\b|import.*\b__getattr__\b)|\b__path__\b|"
    r"\blocals\(\)|\bvars\(|\bsetattr\(__|"
    r"\b_?[lL]azy\w*\(|\blazy_loader\b|\bimport_ipython\b|\bextend_path\b"
)


class ModuleNames:
    """Answers for the modules of one run."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[Module, frozenset[str] | None] = {}
        self._set: list[frozenset[str]] | None = None

    def of(self, module: Module) -> frozenset[str] | None:
        """Return the names that a module binds, by star imports too; `None` where it may have any others."""
        if module not in self._known:
            self._known[module] = None  # while modules import each other
            self._known[module] = self._bound(module)
        return self._known[module]

    def _bound(self, module: Module) -> frozenset[str] | None:
        if module.search(_OPEN) is not None:
            return None
        taken = self.of_stars(module)
        return None if taken is None else frozenset(module_scope(module.tree).locals | _ALWAYS | taken)

    def of_stars(self, module: Module) -> set[str] | None:
        """Return the names that a module takes by star imports; `None` where nobody knows which."""
        found: set[str] = set()
        for home in module.once(_stars):
            inner = self._program.named(module, home)
            names = self.of(inner) if inner is not None and inner is not module else None
            if names is None:
                return None
            found |= names
        return found

    def is_set(self, name: str) -> bool:
        """Return whether some code sets an attribute of that name: perhaps of the module."""
        if self._set is None:
            self._set = [module.once(_fields_set) for module in self._program.modules()]
        return any(name in fields for fields in self._set)

    def submodule(self, package: str, name: str) -> bool:
        """Return whether something of that name stands in a folder: a module, a folder, an extension, a generator."""
        beside = self._program.asked("entries", package).splitlines()
        return any(entry.partition(".")[0] == name for entry in beside)

    def is_ignored(self, path: str) -> bool:
        """Return whether git ignores a module of that path (without an ending): something makes it."""
        return any(self._program.asked("ignored", f"{path}{end}") for end in (".py", "/", "/__init__.py"))

    def is_folder(self, path: str) -> bool:
        """Return whether a folder with something in it stands at a path."""
        return bool(self._program.asked("entries", path))


def _fields_set(module: Module) -> frozenset[str]:
    """Return the fields that a module sets of anything but the object of a method."""
    stored = (node for node in module.nodes_of(ast.Attribute) if isinstance(node.ctx, ast.Store))
    return frozenset(n.attr for n in stored if not (isinstance(n.value, ast.Name) and n.value.id == "self"))


def _stars(module: Module) -> list[str]:
    """Return the modules of which a module takes all names."""
    imports = [node for node in own_nodes(module.tree) if isinstance(node, ast.ImportFrom)]
    return [home_of(node) for node in imports if any(alias.name == "*" for alias in node.names)]


def home_of(node: ast.ImportFrom) -> str:
    """Return the module of `from module import name` as it is written."""
    return f"{'.' * node.level}{node.module or ''}"


def folder_of(module: Module) -> str:
    """Return the folder that holds the submodules of a package, or a module itself."""
    return posixpath.dirname(module.absolute)
