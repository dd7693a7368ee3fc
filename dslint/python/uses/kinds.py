"""A use of a name of a library in one module, and the guards around it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """A condition under which code runs, as far as a release of a library may decide it.

    ``test``: an expression that must be true (``holds``) or false. ``works``: the imports in ``tried`` must succeed, or
    one of them fail (not ``holds``); ``is_open``: something else in the block may fail, too. ``called``: one of the
    ``ways`` must be open, since nobody else calls the function.
    """

    kind: Literal["test", "works", "called"]
    holds: bool = True
    test: ast.expr | None = None
    tried: tuple[str, ...] = ()
    is_open: bool = False
    ways: list[Guards] = field(default_factory=list)


Guards = tuple[Guard, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """A name of a library that a module imports or reads.

    ``dotted`` are the names that it may mean: several where a `try` imports it from several places. ``home`` is the
    module that an import names. ``caught`` are the exceptions that somebody handles; an empty text is all of them.
    ``is_bound``: it is read from an object of the class that the name begins with.
    """

    kind: Literal["module", "name", "attribute"]
    dotted: tuple[str, ...]
    node: ast.AST
    guards: Guards = ()
    caught: frozenset[str] = frozenset()
    call: ast.Call | None = None
    home: str = ""
    is_bound: bool = False

    @property
    def name(self) -> str:
        """Return the name that is meant where there is one."""
        return self.dotted[0]


@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """A class of the module that derives from one of a library, with the methods that it defines.

    ``inherited`` are the methods that it has of classes of the project.
    """

    node: ast.ClassDef
    bases: tuple[str, ...]
    guards: Guards = ()
    caught: frozenset[str] = frozenset()
    inherited: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)

    @property
    def methods(self) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        """Return the methods in its body; the last one of a name counts."""
        return {n.name: n for n in self.node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}


@dataclass(slots=True)
class Uses:
    """All that one module uses of libraries. ``patched`` are the names that it puts into them.

    ``flags``: the guards under which a name gets a constant, by the node of the name. ``asked``: which tests speak of
    releases, as far as somebody has asked.
    """

    uses: list[Use] = field(default_factory=list)
    derived: list[Derived] = field(default_factory=list)
    patched: set[str] = field(default_factory=set)
    flags: dict[int, Guards] = field(default_factory=dict)
    asked: dict[int, bool] = field(default_factory=dict)
