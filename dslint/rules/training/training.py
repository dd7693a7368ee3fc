"""The parts of a training step in a run: engines and Accelerators, what they own, and the micro batches they count."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.source import Location, labelled
from dslint.python.events import Alt, Event, Loop, events
from dslint.python.queries.arms import Arm, inside, other_arms
from dslint.python.values import Const, Instance, Tuple, Value
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.zero.stagetests import expressions_behind

ENGINE, ACCELERATOR = "engine", "accelerator"
# Names of a number of micro batches.
COUNTS = re.compile(r"accum|^gas$|_gas$|grad_acc", re.I)
_COUNTED_IN_TEST = re.compile(r"accum|\bgas\b", re.I)
_STAGE = re.compile(r"stage|zero", re.I)
_STEPS = "gradient_accumulation_steps"


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """How many micro batches a step takes: a value of the program, a number where it is known, and the place."""

    value: Value | None
    count: int | None
    places: tuple[Location, ...] = ()
    default: int | None = None  # of the option or open parameter that it is
    is_parameter: bool = False

    @property
    def known(self) -> int | None:
        """Return the number, or that of the default."""
        return self.count if self.count is not None else self.default


def owners_of(run: RunQuery, value: Value | None, kind: str) -> list[Instance]:
    """Return the objects that a value may be when all of them are of a kind; else none."""
    found = instances(value)
    libraries = run.machine.libraries
    is_sure = all(isinstance(atom.cls, str) and libraries.is_class(atom.cls, kind) for atom in found)
    return found if value is not None and found and is_sure and len(found) == len(value.atoms) else []


def maker_of(run: RunQuery, owners: list[Instance]) -> Event | None:
    """Return the call that made the first of some objects."""
    return next((run.makers[atom] for atom in owners if atom in run.makers), None)


@dataclass(frozen=True, slots=True)
class Owned:
    """An object of an engine: where the engine was made, and whether the script has handed the object over."""

    made: Happening
    is_client: bool

    @property
    def maker(self) -> Event:
        """Return the call that made the engine."""
        return self.made.event


def owned_by(run: RunQuery, parameter: str, at: int) -> dict[Instance, Owned]:
    """Return the objects that engines own: what they got by a parameter, and what comes back at a position."""
    found: dict[Instance, Owned] = {}
    for made in run.occurrences("makes-engine"):
        maker = made.event
        for atom in instances(maker.arguments.get(parameter)):
            found.setdefault(atom, Owned(made, True))
        result = maker.result.single if maker.result is not None else None
        for atom in instances(result.items[at]) if isinstance(result, Tuple) and at < len(result.items) else ():
            found.setdefault(atom, Owned(made, False))
    return found


def owners_by_object(run: RunQuery) -> dict[Instance, Happening]:
    """Return where the engine was made whose gradients an object holds: the engine, its model, and optimizers."""
    found: dict[Instance, Happening] = {}
    for made in run.occurrences("makes-engine"):
        given = [made.event.arguments.get(name) for name in ("model", "optimizer")]
        for atom in (*first_of(made.event.result), *(a for value in given for a in instances(value))):
            found.setdefault(atom, made)
    return {**{atom: owned.made for atom, owned in owned_by(run, "optimizer", 1).items()}, **found}


def first_of(value: Value | None) -> list[Instance]:
    """Return the objects that a value may be; of a tuple its first part."""
    atom = value.single if value is not None else None
    return instances(atom.items[0] if isinstance(atom, Tuple) and atom.items else value)


def parameter_owners(run: RunQuery) -> dict[ast.AST, list[Instance]]:
    """Return the models that calls of `parameters()` ask, by the node of the call."""
    found: dict[ast.AST, list[Instance]] = {}
    for asked in run.occurrences("parameters"):
        found.setdefault(asked.event.node, []).extend(instances(asked.event.receiver))
    return found


def models_given(event: Event, asked: dict[ast.AST, list[Instance]]) -> Iterator[Instance]:
    """Yield the models of `model.parameters()` in what an optimizer gets."""
    node = event.nodes.get("params")
    for part in expressions_behind(event.module, node) if node is not None else ():
        yield from asked.get(part, ())
    for atom in instances(event.arguments.get("params")):
        yield from asked.get(atom.node, ())
    # Groups that a helper makes: lists and comprehensions in dictionaries.
    for atom in (atom for value in event.items.get("params", ()) for atom in instances(value)):
        for part in ast.walk(atom.node):
            yield from asked.get(part, ())


def micro_batches(run: RunQuery, owners: list[Instance], kind: str) -> MicroBatches | None:
    """Return the micro batches of a step of an engine or Accelerator; `None` where nobody states them."""
    maker = maker_of(run, owners)
    steps = run.context.accumulation
    if kind == ENGINE and not steps.is_absent:
        return MicroBatches(None, steps.get_or(None), labelled(steps.origins, "accumulates"))
    if maker is None or maker.accumulation is None:
        return None
    stated = maker.accumulation
    known = stated.constants
    is_count = known is not None and len(known) == 1 and type(known[0]) is int
    node = maker.nodes.get(_STEPS) or maker.nodes.get("config")
    places = (run.location(maker.module, node or maker.node, "the number of micro batches of a step"),)
    count = known[0] if is_count and known is not None else None
    default = constant_of(run.machine.defaults.get(stated.number))
    is_parameter = isinstance(stated.number, tuple) and stated.number[0] == "parameter"
    return MicroBatches(
        stated,
        count if isinstance(count, int) else None,
        places,
        default if isinstance(default, int) else None,
        is_parameter,
    )


def first_made(run: RunQuery, atom: Instance) -> Instance:
    """Return the object of the events that made it; a call that is not interpreted again gives another one."""
    while atom in run.machine.renewed:
        atom = run.machine.renewed[atom]
    return atom


def is_same_number(one: Value, other: Value) -> bool:
    """Return whether two values are certainly the same number, which is not 1."""
    if one.constants is not None or other.constants is not None:
        return one.constants == other.constants and one.constants not in ((1,), (None,))
    mine = one.number if one.number is not None else one.single
    theirs = other.number if other.number is not None else other.single
    return mine is not None and mine == theirs


def is_own_count(value: Value) -> bool:
    """Return whether a value is what an engine or Accelerator says of its micro batches itself."""
    number = value.number
    path = number[0] if isinstance(number, tuple) and number else None
    return isinstance(path, str) and path.endswith(f".{_STEPS}")


def counts(node: ast.AST | None) -> bool:
    """Return whether an expression speaks of accumulation: `args.gradient_accumulation_steps`, `accum_iter`, `gas`."""
    return COUNTS.search(last_name(node)) is not None


def last_name(node: ast.AST | None) -> str:
    """Return the last name of an expression: of an attribute, of a call, of `config["steps"]`; else nothing."""
    while isinstance(node, ast.Call) and not node.args:
        node = node.func
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    key = node.slice if isinstance(node, ast.Subscript) else None
    return str(key.value) if isinstance(key, ast.Constant) else ""


def tests_beyond(found: Happening, other: Happening) -> Iterator[Alt]:
    """Yield the tests that decide on one happening and not on another."""
    around = {id(node) for node in other.around}
    for node in found.around:
        if isinstance(node, Alt) and id(node) not in around:
            yield node


def asks_for_count(alt: Alt, count: Value) -> bool:
    """Return whether a test asks whether there are several micro batches, by its words or by the number itself."""
    if _COUNTED_IN_TEST.search(test_text(alt)) is not None:
        return True
    wanted = count.number if count.number is not None else count.single
    asked = alt.test.number if alt.test is not None else None
    return wanted is not None and not isinstance(wanted, Const) and _mentions(asked, wanted)


def _mentions(number: object, wanted: object) -> bool:
    """Return whether a number is computed from another one."""
    pending = [number]
    while pending:
        top = pending.pop()
        if top == wanted:
            return True
        if isinstance(top, tuple | frozenset):
            pending.extend(top)
    return False


def test_text(alt: Alt) -> str:
    """Return the code of a test."""
    return alt.module.text(getattr(alt.node, "test", alt.node))


def beside(found: Happening, tag: str) -> list[Event]:
    """Return the events with a tag that run in the same turn of the innermost loop that has some, in order."""
    excluded = inside(arms_of(found))
    loops = [node.body for node in reversed(found.around) if isinstance(node, Loop)]
    for scope in loops or [found.entry.tree]:
        kept = [event for event in events(scope) if tag in event.tags and id(event) not in excluded]
        if kept:
            return kept
    return []


def arms_of(found: Happening) -> list[Arm]:
    """Return the sides of tests that are not taken where something happens."""
    return list(other_arms(found.entry.tree, found.around, found.event))


def has_other_arm(found: Happening, method: str, *tags: str) -> bool:
    """Return whether a side that is not taken calls the method as well, on whatever: two ways to train."""
    wanted, call = frozenset(tags), re.compile(rf"\.{method}\s*\(")
    arms = arms_of(found)
    return any(call.search(arm.text) or any(e.tags & wanted for e in events(arm.block)) for arm in arms)


def excludes(one: Happening, other: Happening) -> bool:
    """Return whether a test that both depend on is true for one of two happenings and false for the other."""
    mine, theirs = _decided(one), _decided(other)
    return any(mine[number] != theirs[number] for number in mine.keys() & theirs.keys())


def _decided(found: Happening) -> dict[object, bool]:
    """Return the tests that are decided where something happens, by their numbers."""
    decided: dict[object, bool] = {}
    for arm in arms_of(found):
        number: object = arm.alt.test.number if arm.alt.test is not None else None
        holds = not arm.holds
        while isinstance(number, tuple) and len(number) == 2 and number[0] == "not":
            number, holds = number[1], not holds
        if number is not None:
            decided[number] = holds
    return decided


def constant_of(value: Value | None) -> object:
    """Return the constant that a value is; `None` for anything else."""
    atom = value.single if value is not None else None
    return atom.value if isinstance(atom, Const) else None


def stage_at(run: RunQuery, maker: Event | None) -> int | None:
    """Return the ZeRO stage of an engine: of the run, or of the dictionary that it gets."""
    return run.stage if run.stage is not None or maker is None else maker.stage


def asks_for_stage(found: Happening) -> bool:
    """Return whether a test around something asks for the ZeRO stage."""
    return any(isinstance(node, Alt) and _STAGE.search(test_text(node)) for node in found.around)
