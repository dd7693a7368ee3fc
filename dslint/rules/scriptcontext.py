"""What script rules may ask about the script that they judge: ``self.ctx``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import libcst as cst

from dslint.core.fact import Fact
from dslint.core.source import Location, Span, labelled
from dslint.model.context import Context
from dslint.model.script.constants import Constants
from dslint.model.script.given import given
from dslint.model.script.names import Names
from dslint.model.script.tree import Loop, Tree
from dslint.parse.python import ScriptDoc

if TYPE_CHECKING:
    from dslint.model.script.across.imported import Imported
    from dslint.model.script.across.project import Project
    from dslint.model.script.collective.summaries import Summaries
    from dslint.model.script.data.loaders import Loaders
    from dslint.model.script.data.uneven import UnevenLoops
    from dslint.model.script.objects.objects import Objects
    from dslint.model.script.ranks.guards import Guard, Guards
    from dslint.model.script.traces.divergence import Divergences
    from dslint.model.script.zero.zero3 import ZeroStages
    from dslint.model.script.zero.zeromodels import ZeroModels


# A script for evaluation may have such a name, too.
_TEST = re.compile(r"(?:^|[/\\])(?:test_[^/\\]*|[^/\\]*_test|conftest)\.py$")


class ScriptContext:
    """What rules may ask about the script they judge. Nearly all is computed on the first question and kept."""

    def __init__(
        self, doc: ScriptDoc, context: Context, modules: Project | None = None, *, is_imported: bool = False
    ) -> None:
        self.doc = doc
        self.run = context
        self.tree = Tree(doc.module)
        # Scopes and bindings; whatever is asked about a file, its names come first.
        self.names = Names(self.tree, context.vocabulary)
        doc.parents = self.tree.parents
        self._modules = modules
        self._is_imported = is_imported

    @cached_property
    def is_test(self) -> bool:
        """The file is run by pytest or unittest: by its name and by what it defines."""
        if _TEST.search(str(self.doc.path)) is None:
            return False
        return any(f.name.value.startswith("test") for f in self.tree.every(cst.FunctionDef))

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

    # -- names and values ---------------------------------------------------------------------------------------

    @cached_property
    def constants(self) -> Constants:
        """Values that the file states."""
        return Constants(self.doc, self.names, self.run.arguments)

    def qualified_name(self, node: cst.CSTNode | None) -> str | None:
        """The canonical dotted name of an expression, whatever the import style.

        ``torch.distributed.barrier`` for ``dist.barrier`` after ``import torch.distributed as dist``; builtins by
        their bare name; ``None`` for local variables, parameters, local functions, calls.
        """
        return self.names.qualified(node)

    def called(self, call: cst.Call) -> str:
        """The last part of the name of what a call calls, as it is called where it is defined."""
        return self.names.called(call)

    def constant(self, node: cst.CSTNode | None, *, origins: bool = False) -> Fact[object]:
        """The value of an expression: literals, names assigned once, arithmetic, defaults of ``args.x``.

        A value that a launch command passes wins over the default. Never absent: known or unknown.
        ``origins`` adds the place of the value; ask for it only for a finding.
        """
        return self.constants.value(node, origins=origins)

    def argument(self, call: cst.Call, name: str, position: int | None = None) -> cst.BaseExpression | None:
        """The expression passed as ``name=`` (or at ``position``), also by what is unpacked where the file tells it."""
        return given(self.names, call).argument(name, position)

    def has_unpacked_arguments(self, call: cst.Call) -> bool:
        """``f(*a)`` or ``f(**k)`` of which the file does not tell what they hold: any argument may be there."""
        return given(self.names, call).is_open

    def class_bases(self, name: str) -> list[str]:
        """All bases of a class of this file, nearest first: qualified names, bare names of local classes."""
        return self.names.class_bases(name)

    # -- distributed meaning ------------------------------------------------------------------------------------

    @cached_property
    def guards(self) -> Guards:
        """Rank guards of the module."""
        from dslint.model.script.ranks.guards import Guards

        return Guards(self.tree, self.names)

    def guard(self, node: cst.CSTNode) -> Guard | None:
        """The innermost test that lets only some ranks reach a node, else ``None``."""
        return self.guards.guard(node)

    @cached_property
    def objects(self) -> Objects:
        """Which names hold engines, trainers, accelerators, DDP models."""
        from dslint.model.script.objects.objects import Objects

        return Objects(self.tree, self.names)

    def kind(self, node: cst.CSTNode) -> str:
        """What an expression certainly holds: ``engine``, ``ddp``, ... (see ``Objects``), or ``""``.

        ``self.objects`` also says what it may hold, which call made it and which call took it.
        """
        return self.objects.kind(node)

    def excludes(self, node: cst.CSTNode, other: cst.CSTNode) -> bool:
        """No run reaches both: they stand in opposite arms of the same test."""
        return self.objects.conditions.excludes(node, other)

    def implies(self, node: cst.CSTNode, earlier: cst.CSTNode) -> bool:
        """Where ``node`` runs, the tests around ``earlier`` had the outcome that leads there.

        "Is this node in the arm where the engine exists?": ``implies(node, ctx.objects.made(engine))``.
        """
        return self.objects.conditions.implies(node, earlier)

    @cached_property
    def summaries(self) -> Summaries:
        """Which local functions run a collective that they do not guard themselves."""
        from dslint.model.script.collective.summaries import Summaries

        return Summaries(
            self.tree, self.names, self.guards, self.objects, zero3=self.zero3_evidence, project=self.project
        )

    @cached_property
    def project(self) -> Imported:
        """Functions of other files of the project that the names of this one mean."""
        from dslint.model.script.across.imported import Imported

        return Imported(self, self._modules, self.run, is_imported=self._is_imported)

    @cached_property
    def divergences(self) -> Divergences:
        """Collectives that some ranks run and others do not."""
        from dslint.model.script.traces.divergence import Divergences

        return Divergences(
            self.tree, self.names, self.guards, self.objects, self.summaries, self.zero3_evidence, self.project
        )

    @cached_property
    def uneven_loops(self) -> UnevenLoops:
        """Loops over the part of one rank that wait for all ranks in each iteration."""
        from dslint.model.script.data.uneven import UnevenLoops

        return UnevenLoops(
            self.tree, self.names, self.guards, self.constants, self.objects, self.summaries, self.run.world_size
        )

    @cached_property
    def zero(self) -> ZeroStages:
        """Which ZeRO stages a node may run under."""
        from dslint.model.script.zero.zero3 import ZeroStages

        return ZeroStages(self.doc, self.tree, self.names, self.constants, self.run)

    @cached_property
    def loaders(self) -> Loaders:
        """The data loaders, their samplers, and the loops over them."""
        from dslint.model.script.data.loaders import Loaders

        return Loaders(self.tree, self.names)

    @cached_property
    def zero3(self) -> ZeroModels:
        """What ZeRO stage 3 does to the models of the file: which are partitioned, and what gathers them."""
        from dslint.model.script.zero.zeromodels import ZeroModels

        return ZeroModels(self.tree, self.names, self.objects)

    @cached_property
    def zero3_evidence(self) -> Fact[bool]:
        """Whether ZeRO stage 3 is in use: from the run's configs, else from what the file itself states."""
        from dslint.model.script.zero.zero3 import is_zero3

        found: Fact[bool] = is_zero3(self.zero.stated)
        return replace(found, origins=labelled(found.origins, "ZeRO stage"))

    @property
    def stage(self) -> int | None:
        """The ZeRO stage for the experiment of a finding, when the run or the file says it."""
        return self.zero.stated.get_or(None)
