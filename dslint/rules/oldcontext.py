"""What visitors still ask of the old reader of scripts (`model/script/`); it goes with the last of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import libcst as cst

from dslint.core.fact import Fact
from dslint.core.source import Location, labelled
from dslint.model.context import Context
from dslint.parse.python import ScriptDoc
from dslint.parse.tree import Tree

if TYPE_CHECKING:
    from dslint.model.script.across.imported import Imported
    from dslint.model.script.collective.summaries import Summaries
    from dslint.model.script.constants import Constants
    from dslint.model.script.names import Names
    from dslint.model.script.objects.objects import Objects
    from dslint.model.script.ranks.guards import Guard, Guards
    from dslint.model.script.traces.divergence import Divergences
    from dslint.model.script.zero.zero3 import ZeroStages
    from dslint.model.script.zero.zeromodels import ZeroModels
    from dslint.python.project import Project


class OldContext:
    """The analyses over the LibCST tree, each made on the first question."""

    doc: ScriptDoc
    run: Context
    tree: Tree
    _modules: Project | None
    _is_imported: bool

    def location(self, node: cst.CSTNode, label: str = "") -> Location:
        """The place of a node."""
        return self.doc.location(node, label)

    @cached_property
    def names(self) -> Names:
        """Scopes and bindings."""
        from dslint.model.script.names import Names

        return Names(self.tree, self.run.vocabulary)

    @cached_property
    def constants(self) -> Constants:
        """Values that the file states."""
        from dslint.model.script.constants import Constants

        return Constants(self.doc, self.names, self.run.arguments)

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
        from dslint.model.script.across.project import Project

        modules = self._modules if isinstance(self._modules, Project) else None
        return Imported(self, modules, self.run, is_imported=self._is_imported)

    @cached_property
    def divergences(self) -> Divergences:
        """Collectives that some ranks run and others do not."""
        from dslint.model.script.traces.divergence import Divergences

        return Divergences(
            self.tree, self.names, self.guards, self.objects, self.summaries, self.zero3_evidence, self.project
        )

    @cached_property
    def zero(self) -> ZeroStages:
        """Which ZeRO stages a node may run under."""
        from dslint.model.script.zero.zero3 import ZeroStages

        return ZeroStages(self.doc, self.tree, self.names, self.constants, self.run)

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
