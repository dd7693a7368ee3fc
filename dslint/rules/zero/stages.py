"""The ZeRO stage under which something of a run happens: of its launch, its configs, and the tests around it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dslint.core.source import Location, labelled
from dslint.python.events import Context, Event
from dslint.python.queries.arms import Arm, other_arms
from dslint.python.values import Function, Instance, Tuple
from dslint.rules.training.plateaus import instances
from dslint.rules.zero.stagetests import ALL, ZERO3, Outcome, outcome

if TYPE_CHECKING:
    from dslint.python.source import Module
    from dslint.python.values import Value
    from dslint.rules.runs import Happening, RunQuery

# What has a DeepSpeed config, or stands for one.
_STATES = ("makes-engine", "training-arguments", "live-config", "starts-group", "prepares")
_STAGED = re.compile(r"stage")
_SECTION = "zero_optimization"
_MOST_FLAGS = 4
_EXPECTS_FAILURE = ("raises", "assertRaises", "assertRaisesRegex")


@dataclass(frozen=True, slots=True)
class StageHere:
    """The stages under which something may happen.

    `is_open`: a condition on the way may ask for the stage in a way that is not understood, so that nothing is
    certain. `places` say the stage, for a finding.
    """

    possible: frozenset[int] = ALL
    is_open: bool = False
    places: tuple[Location, ...] = ()
    tests: tuple[Location, ...] = ()

    def is_among(self, *stages: int) -> bool:
        """Return whether it certainly happens under one of these stages."""
        return not self.is_open and bool(self.possible) and self.possible <= set(stages)

    def may_be(self, *stages: int) -> bool:
        """Return whether nothing rules these stages out."""
        return bool(self.possible & set(stages))

    @property
    def stage(self) -> int | None:
        """Return the stage, when it is one only."""
        return next(iter(self.possible)) if len(self.possible) == 1 and not self.is_open else None


@dataclass
class Stages:
    """Answers for one run of a script."""

    run: RunQuery
    _written: dict[Module, list[tuple[ast.AST, int | None]]] = field(default_factory=dict)

    @cached_property
    def stated(self) -> tuple[int | None, tuple[Location, ...]]:
        """Return the stage of the run where all that states one agrees, with the places."""
        fact = self.run.context.zero_stage
        if not fact.is_absent:
            return fact.get_or(None), labelled(fact.origins, "ZeRO stage")
        made = [found.event for found in self.run.happenings(*_STATES)]
        told = [event for event in made if event.stage is not None]
        if any(_is_hidden(event) for event in made):
            return None, ()
        stages = {event.stage for event in told}
        places = [self._place(event) for event in told]
        if not told:
            written = self._in_text()
            stages, places = {stage for _, stage in written}, [place for place, _ in written]
        return (stages.pop(), tuple(places[:1])) if len(stages) == 1 else (None, ())

    def maker(self, value: Value | None) -> Event | None:
        """Return the call that made the engine, or the model that a library prepared, that a value certainly is."""
        found = instances(value)
        makers = [self._makers.get(atom) for atom in found]
        is_sure = value is not None and len(found) == len(value.atoms)
        return makers[0] if makers and is_sure and None not in makers else None

    @cached_property
    def _makers(self) -> dict[Instance, Event]:
        made: dict[Instance, Event] = {}
        for found in self.run.occurrences("makes-engine", "prepares"):
            event = found.event
            result = event.result.single if event.result is not None else None
            is_engine = "makes-engine" in event.tags
            parts = list(result.items[: 1 if is_engine else None]) if isinstance(result, Tuple) else [event.result]
            for atom in (atom for part in parts for atom in instances(part)):
                made.setdefault(atom, event)
        return made

    def of(self, event: Event) -> int | None:
        """Return the stage of what an event makes: of its own config, else that of the run."""
        if event.stage is not None:
            return event.stage
        return None if event.keys is not None and _SECTION in event.keys else self.stated[0]

    def at(self, found: Happening, maker: Event | None = None) -> StageHere:
        """Return the stages at an event; `maker` has made the engine that it is about."""
        stage, places = self.stated
        if maker is not None and maker.stage is not None and self.run.stage is None:
            stage, places = maker.stage, (self._place(maker),)
        possible = frozenset({stage}) if stage in ALL else ALL
        is_open, tests = any(map(_expects_failure, found.around)), list[Location]()
        for arm in other_arms(found.entry.tree, found.around, found.event):
            if self._is_passed_by(arm):
                possible = frozenset()
            for module, test, holds in _asked(arm):
                told = outcome(module, test)
                if told is None:
                    is_open = True
                elif not possible <= (stages := _side(told, holds)):
                    possible = possible & stages
                    tests.append(module.location(test, "asks for the ZeRO stage"))
        return StageHere(possible, is_open, tuple(dict.fromkeys((*places, *tests))), tuple(tests))

    def _is_passed_by(self, arm: Arm) -> bool:
        """The stage is that of certain commands, and none of these comes there: they do not pass the switch."""
        context, (number, holds) = self.run.context, self._asked_option(arm)
        if context.launcher.is_absent or context.zero_stage.is_absent or not isinstance(number, tuple):
            return False
        name = str(number[-1])
        default = self.run.machine.defaults.get(number)
        known = (default.constants if default is not None else None) or ()
        is_left = number[0] == "option" and len(known) == 1 and name not in context.arguments
        return is_left and bool(known[0]) is holds

    def _asked_option(self, arm: Arm) -> tuple[object, bool]:
        """Return the number of what a test asks, past `not` and flags, and its answer on this side."""
        number, holds = arm.alt.test.number if arm.alt.test is not None else None, arm.holds
        for _ in range(_MOST_FLAGS):
            choice = self.run.machine.chosen.get(number)
            if isinstance(number, tuple) and number[0] == "not":
                number, holds = number[1], not holds
            elif choice is not None and {choice.first.constants, choice.second.constants} == {(True,), (False,)}:
                number, holds = choice.test.number, holds is (choice.first.constants == (True,))
        return number, holds

    def _place(self, event: Event) -> Location:
        node = event.nodes.get("config") or event.nodes.get("deepspeed") or event.node
        return event.module.location(node, "ZeRO stage")

    def _in_text(self) -> list[tuple[Location, int | None]]:
        """Return the stages in dictionaries that nothing is known to use."""
        found: list[tuple[Location, int | None]] = []
        for module in dict.fromkeys(entry.module for entry in self.run.entries):
            if _SECTION in module.code:
                found += [(module.location(node, "ZeRO stage"), stage) for node, stage in _sections(module.tree)]
        return found


def _is_hidden(event: Event) -> bool:
    """Return whether a config is passed of which nobody knows the stage."""
    if event.stage is not None or event.config is None or event.config.constants == (None,):
        return False
    return event.keys is None or _SECTION in event.keys


def _sections(tree: ast.Module) -> Iterator[tuple[ast.AST, int | None]]:
    for node in ast.walk(tree):
        for key, value in _items(node) or ():
            if key == _SECTION:
                yield value, _stage_in(value)
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        key = target.slice if isinstance(target, ast.Subscript) else None
        if isinstance(key, ast.Constant) and key.value == _SECTION and isinstance(node, ast.Assign):
            yield node.value, _stage_in(node.value)


def _stage_in(section: ast.expr) -> int | None:
    items = _items(section)
    if items is None:
        return None
    for key, value in items:
        if key == "stage":
            return value.value if isinstance(value, ast.Constant) and type(value.value) is int else None
    return 0 if all(key is not None for key, _ in items) else None


def _items(node: ast.AST) -> list[tuple[object, ast.expr]] | None:
    """Return the keys and values of `{...}` or `dict(...)`, `None` for a key that is no constant."""
    if isinstance(node, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        return list(zip(keys, node.values, strict=True))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return [*((keyword.arg, keyword.value) for keyword in node.keywords), *((None, part) for part in node.args)]
    return None


def _side(told: Outcome, holds: bool) -> frozenset[int]:
    return told[0 if holds else 1]


def _asked(arm: Arm) -> Iterator[tuple[Module, ast.expr, bool]]:
    """Yield the expressions that decide against a side of a test, and whether they hold then."""
    alt, holds = arm.alt, not arm.holds
    if isinstance(alt.asks, ast.BoolOp):
        # `a and b`: what comes before the operand is true where it runs, of `a or b` false.
        before = next((n for n, value in enumerate(alt.asks.values) if value is alt.node), 0)
        is_and = isinstance(alt.asks.op, ast.And)
        for value in alt.asks.values[:before] if holds or before == 1 else ():
            yield alt.module, value, holds == is_and
    elif isinstance(alt.node, ast.If | ast.IfExp | ast.While):
        yield alt.module, alt.node.test, holds
    elif isinstance(alt.node, ast.expr) and alt.asks is None and alt.test is not None:
        yield alt.module, alt.node, holds


def _expects_failure(node: object) -> bool:
    items = node.node.items if isinstance(node, Context) and isinstance(node.node, ast.With) else []
    calls = [item.context_expr for item in items if isinstance(item.context_expr, ast.Call)]
    return any(ast.unparse(call.func).endswith(_EXPECTS_FAILURE) for call in calls)


def is_left_to_another_branch(found: Happening, does: re.Pattern[str]) -> bool:
    """Return whether a function around something has a branch for stage 3 alone that calls such a thing."""
    scopes = [(found.entry.module, found.entry.node)]
    scopes += [
        (call.function.module, call.function.node) for call in found.calls if isinstance(call.function, Function)
    ]
    return any(_does_at_3(module, node, does) for module, node in scopes)


def _does_at_3(module: Module, scope: ast.AST, does: re.Pattern[str]) -> bool:
    for node in ast.walk(scope):
        if isinstance(node, ast.Match):
            asks = _STAGED.search(module.text(node.subject))
            if asks and any(_is_3(case.pattern) and _calls(module, case.body, does) for case in node.cases):
                return True
        elif isinstance(node, ast.BoolOp) and len(node.values) == 2:
            told = outcome(module, node.values[0]) or (ALL, ALL)
            if told[0 if isinstance(node.op, ast.And) else 1] == ZERO3 and _calls(module, [node.values[1]], does):
                return True
        elif isinstance(node, ast.If | ast.IfExp):
            told = outcome(module, node.test) or (ALL, ALL)
            for arm, stages in ((node.body, told[0]), (node.orelse, told[1])):
                parts = arm if isinstance(arm, list) else [arm]
                if stages == ZERO3 and _calls(module, parts, does):
                    return True
            if told[1] == ZERO3 and isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return | ast.Raise):
                return True  # what follows is for stage 3
    return False


def _is_3(pattern: ast.pattern) -> bool:
    return isinstance(pattern, ast.MatchValue) and isinstance(pattern.value, ast.Constant) and pattern.value.value == 3


def _calls(module: Module, parts: Sequence[ast.AST], does: re.Pattern[str]) -> bool:
    """Return whether code calls such a thing, or a function of its module does that it calls."""
    seen: set[ast.AST] = set()
    pending = list(parts)
    while pending:
        calls = [node for node in ast.walk(pending.pop()) if isinstance(node, ast.Call)]
        called = {ast.unparse(call.func).rpartition(".")[2] for call in calls}
        if any(map(does.search, called)):
            return True
        inner = [f for f in module.tree.body if isinstance(f, ast.FunctionDef) and f.name in called and f not in seen]
        seen.update(inner)
        pending += inner
    return False
