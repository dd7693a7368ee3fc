"""What script rules may ask about the script that they judge: ``self.ctx``.

Rules visit the nodes of LibCST. What a name means is told by Python's binding rules (:mod:`dslint.python.names`), what
an expression holds and which ranks come to it by the interpreter, on the first such question about a file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import libcst as cst

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import Location, Span
from dslint.core.testfiles import is_test
from dslint.model.context import Context
from dslint.parse.python import ScriptDoc
from dslint.parse.tree import Loop, Tree
from dslint.parse.twins import Twins
from dslint.python.names import Names as Bindings
from dslint.python.names import names_of
from dslint.python.passed import Passed, passed

if TYPE_CHECKING:
    from dslint.python.beliefs import Beliefs
    from dslint.python.project import Project


class ScriptContext:
    """What rules may ask about the script they judge. Nearly all is computed on the first question and kept."""

    def __init__(self, doc: ScriptDoc, context: Context, modules: Project | None = None) -> None:
        self.doc = doc
        self.run = context
        self.tree = Tree(doc.module)
        doc.parents = self.tree.parents
        self._modules = modules

    @cached_property
    def is_test(self) -> bool:
        """The file is run by pytest or unittest: by its name and by what it defines."""
        return is_test(str(self.doc.path), self.doc.source.text)

    # -- text and places ----------------------------------------------------------------------------------------

    def text(self, node: cst.CSTNode) -> str:
        """The source text of a node."""
        return self.doc.module.code_for_node(node).strip()

    def span(self, node: cst.CSTNode) -> Span:
        """The span of a node, for edits."""
        return self.doc.span(node)

    def location(self, node: cst.CSTNode, label: str = "") -> Location:
        """The place of a node; the code of its statement is written for it, so ask only for a finding."""
        return self.doc.location(node, label)

    # -- structure ----------------------------------------------------------------------------------------------

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node around a node."""
        return self.tree.parent(node)

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around a node, the nearest first."""
        return self.tree.parents(node)

    def descendants(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """A node and all nodes inside it, in source order."""
        return self.tree.descendants(node)

    def enclosing_function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """The function that holds a node; ``None`` at module and class level."""
        return self.tree.function(node)

    def enclosing_class(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """The class that holds a node."""
        found = self.tree.enclosing(node, cst.ClassDef)
        return found if isinstance(found, cst.ClassDef) else None

    def loops(self, node: cst.CSTNode) -> tuple[Loop, ...]:
        """The loops of the same function that repeat a node, the innermost first."""
        return self.tree.loops(node)

    # -- names --------------------------------------------------------------------------------------------------

    @cached_property
    def _plain(self) -> ast.Module:
        return self.doc.tree or ast.Module([], [])

    @cached_property
    def _twins(self) -> Twins:
        return Twins(self.doc.module, self._plain)

    @cached_property
    def bindings(self) -> Bindings:
        """What the names of the file mean, in the standard library's tree."""
        return names_of(self._plain)

    def plain(self, node: cst.CSTNode | None) -> ast.AST | None:
        """The same node in the standard library's tree."""
        return self._twins.plain(node) if node is not None else None

    def _expression(self, node: cst.CSTNode | None) -> ast.expr | None:
        found = self.plain(node)
        return found if isinstance(found, ast.expr) else None

    def qualified_name(self, node: cst.CSTNode | None) -> str | None:
        """The canonical dotted name of an expression, whatever the import style.

        ``torch.distributed.barrier`` for ``dist.barrier`` after ``import torch.distributed as dist``; builtins by
        their bare name; ``None`` for local variables, parameters, local functions, calls.
        """
        return self.bindings.qualified(self.plain(node)) or None

    def called(self, call: cst.Call) -> str:
        """The last part of the name of what a call calls, as it is called where it is defined."""
        found = self.plain(call)
        return self.bindings.called(found) if isinstance(found, ast.Call) else ""

    def class_bases(self, name: str) -> list[str]:
        """All bases of a class of this file, nearest first: qualified names, bare names of local classes."""
        return self.bindings.bases(name)

    # -- what calls pass ----------------------------------------------------------------------------------------

    def _passed(self, call: cst.Call) -> Passed:
        found = self.plain(call)
        return passed(self.bindings, found) if isinstance(found, ast.Call) else Passed(is_open=bool(call.args))

    def argument(self, call: cst.Call, name: str, position: int | None = None) -> cst.BaseExpression | None:
        """The expression passed as ``name=`` (or at ``position``), also by what is unpacked where the file tells it."""
        return self._concrete(self._passed(call).argument(name, position))

    def positional_arguments(self, call: cst.Call) -> list[cst.BaseExpression]:
        """The expressions passed by position, as far as their position is known."""
        return [node for node in map(self._concrete, self._passed(call).positional) if node is not None]

    def argument_names(self, call: cst.Call) -> frozenset[str]:
        """The names under which a call passes something, also by what is unpacked where the file tells it."""
        return frozenset(self._passed(call).named)

    def has_unpacked_arguments(self, call: cst.Call) -> bool:
        """``f(*a)`` or ``f(**k)`` of which the file does not tell what they hold: any argument may be there."""
        return self._passed(call).is_open

    def _concrete(self, node: ast.expr | None) -> cst.BaseExpression | None:
        found = self._twins.concrete(node) if node is not None else None
        return found if isinstance(found, cst.BaseExpression) else None

    # -- values and ranks ---------------------------------------------------------------------------------------

    def has_module(self, name: str) -> bool:
        """Whether the project has a package or module of that name where Python looks first."""
        if self._modules is None:
            return False
        path = self._modules.files.absolute(str(self.doc.path))
        return self._modules.holds(("script", path), path, name)

    @cached_property
    def _beliefs(self) -> Beliefs:
        from dslint.python.beliefs import Beliefs

        return Beliefs(self.doc.source, self._plain, self._modules, self.run.launches, self.run.vocabulary)

    def constant(self, node: cst.CSTNode | None, *, origins: bool = False) -> Fact[object]:
        """The value of an expression: a literal, a name that gets one once, or what the interpreter knows it holds.

        Never absent: known or unknown. ``origins`` adds the place of the value; ask for it only for a finding.
        """
        found = self._expression(node)
        if node is None or found is None:
            return unknown("there is no expression")
        written = self.bindings.behind(found)
        try:
            value: object = ast.literal_eval(written)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            held = self._beliefs.constants(found)
            if held is None or len(held) != 1:
                return unknown("the value is not the same constant on every way to it")
            value = held[0]
        place = self._twins.concrete(written) or node
        return known(value, *((self.doc.location(place),) if origins else ()))

    def class_of(self, node: cst.CSTNode) -> str:
        """The class of a library that an expression certainly holds an object of, by its dotted name; else empty.

        Of an object of a class of the project it is the nearest class of a library among its bases.
        """
        found = self._expression(node)
        return self._beliefs.class_of(found) if found is not None else ""

    def is_own(self, node: cst.CSTNode) -> bool:
        """An expression certainly holds an object of a class of the project that no library class is a base of."""
        found = self._expression(node)
        return found is not None and self._beliefs.is_own(found)

    def is_text(self, node: cst.CSTNode) -> bool:
        """An expression certainly holds a text, whichever."""
        found = self._expression(node)
        return found is not None and self._beliefs.is_text(found)

    def tags(self, call: cst.Call) -> frozenset[str]:
        """What a call of a library is known for (``schemas/libraries/README.md``): ``collective``, ``saves``, ..."""
        found = self.plain(call)
        return self._beliefs.tags(found) if found is not None else frozenset()

    def only_on(self, node: cst.CSTNode) -> str:
        """Which ranks come to an expression, in words, where not all do: ``ranks 0 of 4 only``; else empty."""
        found = self._expression(node)
        return self._beliefs.only_on(found) if found is not None else ""
