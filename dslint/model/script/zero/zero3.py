"""The ZeRO stage that a piece of a script runs under: from the run, from what the file states, from its branches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dslint.core.fact import Fact
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.embedded.flow import EXPECTS_FAILURE
from dslint.model.script.constants import Constants
from dslint.model.script.names import Names
from dslint.model.script.objects.conditions import ends_elsewhere
from dslint.model.script.tree import Tree, block_of_one_turn
from dslint.model.script.zero.stagetests import ALL, ZERO3, StageTests
from dslint.model.script.zero.stated import StatedStage
from dslint.parse.python import ScriptDoc

_MAX_CALLS = 3


@dataclass(frozen=True, slots=True)
class StageHere:
    """The stages under which a node may run.

    ``possible`` is empty where no run comes; ``is_open``: a condition on the way may ask for the stage in a way that
    is not understood, so that nothing is certain. ``tests``: the conditions that rule stages out.
    """

    possible: frozenset[int] = ALL
    is_open: bool = False
    tests: tuple[cst.BaseExpression, ...] = ()

    def is_among(self, *stages: int) -> bool:
        """The node certainly runs under one of these stages."""
        return not self.is_open and bool(self.possible) and self.possible <= set(stages)

    def may_be(self, *stages: int) -> bool:
        """Nothing rules these stages out."""
        return bool(self.possible & set(stages))

    @property
    def stage(self) -> int | None:
        """The stage, when it is one only."""
        return next(iter(self.possible)) if len(self.possible) == 1 and not self.is_open else None


class ZeroStages:
    """Answers which ZeRO stages the nodes of one module may run under."""

    def __init__(self, doc: ScriptDoc, tree: Tree, names: Names, constants: Constants, run: Context) -> None:
        self._doc = doc
        self._tree = tree
        self._names = names
        self._constants = constants
        self._run = run
        self._tests = StageTests(names)
        self._stated = StatedStage(doc, names, constants, run, self._is_behind_stage_test)

    @property
    def stated(self) -> Fact[int]:
        """The stage of the run's configs, else the one that the file states; absent when nothing hints at DeepSpeed."""
        return self._stated.fact

    def _is_behind_stage_test(self, node: cst.CSTNode) -> bool:
        """Whether a node runs is up to a test that asks for the stage, or may do so."""
        return any(self._tests.outcome(test) != (ALL, ALL) for test, _ in self._conditions(node))

    # -- a node -------------------------------------------------------------------------------------------------

    def at(self, node: cst.CSTNode) -> StageHere:
        """The stages that a node may run under: the stated one, and what the branches around it and its callers say."""
        stated = self.stated
        value = stated.get_or(None)
        here = StageHere(frozenset({value}) if value in ALL else ALL, self._is_expected_to_fail(node))
        return self._narrowed(node, here, 0)

    def origins(self, here: StageHere) -> tuple[Location, ...]:
        """The places that say the stage, for a finding."""
        asked = (self._doc.location(test, "asks for the ZeRO stage") for test in here.tests)
        stated = (place.labelled(place.label or "ZeRO stage") for place in self.stated.origins)
        return tuple(dict.fromkeys((*stated, *asked)))

    def _narrowed(self, node: cst.CSTNode, before: StageHere, calls: int) -> StageHere:
        here = before
        for test, is_true in self._conditions(node):
            if self._is_never(test, is_true):
                return StageHere(frozenset(), here.is_open, here.tests)
            outcome = self._tests.outcome(test)
            if outcome is None:
                here = StageHere(here.possible, True, here.tests)
                continue
            stages = outcome[0 if is_true else 1]
            if not here.possible <= stages:
                here = StageHere(here.possible & stages, here.is_open, (*here.tests, test))
        function = self._tree.function(node)
        callers = self._calls_of(function) if function is not None and calls < _MAX_CALLS else []
        if not callers:
            return here
        found = [self._narrowed(call, here, calls + 1) for call in callers]
        possible = frozenset().union(*(f.possible for f in found))
        return StageHere(possible, any(f.is_open for f in found), found[0].tests)

    def _is_never(self, test: cst.BaseExpression, is_true: bool) -> bool:
        """The stage is that of certain commands, and none of these comes to the answer: they do not pass the switch."""
        if self._run.launcher.is_absent or self._run.zero_stage.is_absent:
            return False
        found = self._constants.value(test)
        return found.is_known and bool(found.value) is not is_true

    def _is_expected_to_fail(self, node: cst.CSTNode) -> bool:
        """Inside ``with pytest.raises(...)``: whatever the mistake is, it is meant."""
        items = (i.item for p in self._tree.parents(node) if isinstance(p, cst.With) for i in p.items)
        return any(isinstance(item, cst.Call) and self._names.called(item) in EXPECTS_FAILURE for item in items)

    def _conditions(self, node: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, bool]]:
        """The tests between a node and its function with the answer that leads to the node."""
        inner = node
        for outer in self._tree.parents(node):
            if isinstance(outer, cst.If | cst.IfExp | cst.While) and inner is not outer.test:
                if not (isinstance(outer, cst.While) and inner is outer.orelse):
                    yield outer.test, inner is outer.body
            elif isinstance(outer, cst.BooleanOperation) and inner is outer.right:
                yield outer.left, isinstance(outer.operator, cst.And)
            elif isinstance(outer, cst.IndentedBlock | cst.Module):
                yield from self._exits_before(outer, inner)
            elif isinstance(outer, cst.FunctionDef | cst.Lambda | cst.ClassDef):
                return
            inner = outer

    def _exits_before(
        self, block: cst.IndentedBlock | cst.Module, inner: cst.CSTNode
    ) -> Iterator[tuple[cst.BaseExpression, bool]]:
        for statement in block.body:
            if statement is inner:
                return
            if isinstance(statement, cst.While) and block_of_one_turn(statement) is not None:
                yield from self._exits_before(statement.body, statement)  # type: ignore[arg-type]
            elif isinstance(statement, cst.If):
                if ends_elsewhere(statement.body):
                    yield statement.test, False
                elif isinstance(statement.orelse, cst.Else) and ends_elsewhere(statement.orelse.body):
                    yield statement.test, True
                yield from self._later_arms(statement)

    def _later_arms(self, chain: cst.If) -> Iterator[tuple[cst.BaseExpression, bool]]:
        """``elif is_zero3: return``: stage 3 has left, as far as the tests before it do not come first."""
        arm = chain.orelse
        while isinstance(arm, cst.If):
            outcome = self._tests.outcome(arm.test)
            if outcome is not None and outcome[0] == ZERO3 and ends_elsewhere(arm.body):
                yield arm.test, False
            arm = arm.orelse

    def _calls_of(self, function: cst.FunctionDef) -> list[cst.Call]:
        """The calls of a function; one that it makes itself says nothing new."""
        return [c for c in self._names.callers.of(function) if self._tree.function(c) is not function]


def is_zero3(stated: Fact[int]) -> Fact[bool]:
    """Whether the stage is 3."""
    return stated.map(lambda stage: {stage} == ZERO3)
