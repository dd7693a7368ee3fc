"""What libraries call: functions that are handed to them, and the methods of their classes that a project overrides."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import partial

from dslint.python import attributes, containers
from dslint.python.binding import Arguments, BoundArguments
from dslint.python.environment import by_rank
from dslint.python.events import Event
from dslint.python.libraries import Row, parse_returns
from dslint.python.machine import Machine
from dslint.python.parts import modules_in
from dslint.python.results import Place
from dslint.python.values import NOTHING, Atom, Bound, ClassAtom, Function, Instance, Value, one
from dslint.python.varies import CLOCK, DATA, HOST, LOCAL, NODE, RANDOM, RANK

_WORDS = {
    "same": 0,
    "data": DATA,
    "rank": RANK,
    "local-rank": LOCAL,
    "node": NODE,
    "clock": CLOCK,
    "random": RANDOM,
    "host": HOST,
}


def callbacks(m: Machine, row: Row, bound: BoundArguments, receiver: Atom | None, node: ast.AST) -> None:
    """Run functions of the project that a library calls: perhaps, and perhaps several times."""
    from dslint.python.loops import repeat

    spawned = row.extra.get("callback")
    names = [*(name for name, _ in row.callbacks), *([spawned] if isinstance(spawned, str) else [])]
    for name in names:
        value = bound.given.get(name)
        if value is None or not _functions(value):
            continue
        if "spawns" in row.tags:
            _spawn(m, row, bound, value, node)
            continue
        repeat(m, node, lambda name=name, value=value: _call_back(m, row, name, value, receiver, node))  # type: ignore[misc]


def _call_back(m: Machine, row: Row, name: str, value: Value, receiver: Atom | None, node: ast.AST) -> None:
    """Call a function that a library got for a parameter, with what its row says that it passes first."""
    forms = row.extra.get("callback_arguments", {}).get(name, ())
    owner = one(receiver) if receiver is not None else NOTHING
    for atom in _functions(value):
        function = atom.function if isinstance(atom, Bound) else atom
        assert isinstance(function, Function)
        names = function.node.args.args[isinstance(atom, Bound) :]
        given = [_passed(m, owner, p.arg, form, row, p) for p, form in zip(names, forms, strict=False)]
        call_open(m, one(atom), node, given)


def _functions(value: Value) -> list[Atom]:
    return [
        a for a in value.atoms if isinstance(a, Function) or (isinstance(a, Bound) and isinstance(a.function, Function))
    ]


def _spawn(m: Machine, row: Row, bound: BoundArguments, value: Value, node: ast.AST) -> None:
    """`mp.spawn(f, args)`: each process runs `f(local_rank, *args)`."""
    from dslint.python.invoke import call_value

    extra = bound.given.get("args")
    items = containers.exact_items(m, extra) if extra is not None else []
    first = [by_rank(m, 1)] if row.extra.get("first") == "rank" or row.path.endswith("spawn") else []
    call_value(m, value, Arguments([*first, *(items or [])]), node)
    m.alive = True


def call_open(m: Machine, value: Value, node: ast.AST, first: Sequence[Value] = ()) -> None:
    """Call a function with arguments of which only the first ones are known."""
    from dslint.python.entries import open_arguments
    from dslint.python.invoke import call_atom

    for atom in value.atoms:
        function = atom.function if isinstance(atom, Bound) else atom
        if isinstance(function, Function):
            given = open_arguments(m, function, isinstance(atom, Bound))
            for name, argument in zip(list(given.keywords), first, strict=False):
                given.keywords[name] = argument
            call_atom(m, atom, value, given, node)
            m.alive = True


# -- methods that a project overrides ---------------------------------------------------------------------------


def passed(m: Machine, receiver: Value, cls: ClassAtom | str, method: str, name: str, node: ast.AST) -> Value | None:
    """Return what a library passes for a parameter of a method that a class of the project overrides."""
    for base in attributes.lineage(m, cls) if isinstance(cls, ClassAtom) else [cls]:
        if not isinstance(base, str) or not base or m.libraries.method(base, method) is None:
            continue
        for row in m.libraries.lineage(base):
            form = row.constructor.extra.get("passes", {}).get(name)
            if form is not None:
                return _passed(m, receiver, name, form, row.constructor, node)
    return None


def first_name(m: Machine, cls: ClassAtom | str, method: str) -> str:
    """Return what a library calls the first argument that it passes to a method; empty where names decide."""
    for base in attributes.lineage(m, cls) if isinstance(cls, ClassAtom) else [cls]:
        row = m.libraries.method(base, method) if isinstance(base, str) and base else None
        if row is not None and row.extra.get("passes_first"):
            return str(row.extra["passes_first"])
    return ""


def _passed(m: Machine, receiver: Value, name: str, form: str, row: Row, node: ast.AST) -> Value:
    if form in _WORDS:
        return m.thing(node, f"`{name}` that the library passes", varies=_WORDS[form], shape=_WORDS[form] & DATA)
    atom = receiver.single
    returns = parse_returns(form)
    if returns.word == "field":
        return attributes.read(m, receiver, returns.name, node)
    place = Place(m, row, BoundArguments(), atom, node)
    if isinstance(atom, Instance):
        place.anchor = (atom, f"passed {name}")
    return place.make(returns)


def self_calls(m: Machine, row: Row, receiver: Atom | None, node: ast.AST) -> None:
    """Run the methods of a project's subclass that a library method runs on the same object: `trainer.train()`."""
    from dslint.python.loops import repeat

    table = row.extra.get("self_calls")
    if not table or not isinstance(receiver, Instance) or not isinstance(receiver.cls, ClassAtom):
        return
    found = {name: _own_method(m, receiver, name) for name in table}
    own = {name: method for name, method in found.items() if method is not None}
    for name, method in own.items():
        if table[name] == "once":
            call_hook(m, receiver, name, method, node)
    many = [name for name in own if table[name] == "many"]

    def turn() -> None:
        for name in many:
            call_hook(m, receiver, name, own[name], node)

    if many:
        repeat(m, node, turn)


def _own_method(m: Machine, receiver: Instance, name: str) -> Value | None:
    assert isinstance(receiver.cls, ClassAtom)
    found = attributes.of_class(m, receiver.cls, name, receiver)
    return found if found is not None and _functions(found) else None


def call_hook(m: Machine, receiver: Instance, name: str, method: Value, node: ast.AST) -> None:
    """Call a method that a library calls, with what its row says that it passes."""
    from dslint.python.entries import open_arguments
    from dslint.python.invoke import call_value
    from dslint.python.restrictions import on_lanes

    row = _restricted_row(m, receiver.cls, name) if isinstance(receiver.cls, ClassAtom) else None
    mask = _lanes(m, row, node)
    for atom in _functions(method):
        function = atom.function if isinstance(atom, Bound) else atom
        assert isinstance(function, Function)
        given = open_arguments(m, function, True, receiver)
        result = on_lanes(m, mask, (m.frame.module, node), partial(call_value, m, one(atom), given, node))
        m.alive = True
        if name == _STEP:
            _note_loss(m, receiver, result, node)
    if row is not None and "waits_after" in row.extra:
        m.events.append(Event(row.path, _MEETS, node, m.frame.module, one(receiver), {}, None, m.lanes, m.control))


def _note_loss(m: Machine, receiver: Instance, result: Value, node: ast.AST) -> None:
    """Note what a training step returns: the library runs the backward pass of it."""
    event = Event(f"{_STEP}()", _GIVES_LOSS, node, m.frame.module, one(receiver), {}, result, m.lanes, m.control)
    given = {"loss": result} | {f"*{at}": held for at, held in enumerate(containers.held(m, result))}
    event.snapshot = {name: (m.varies(v), m.shape(v), m.made_by(v)) for name, v in given.items()}
    m.events.append(event)


_STEP = "training_step"
_GIVES_LOSS = frozenset({"gives-loss"})
_HOOKS = frozenset({"callback", "hook"})
_MEETS = frozenset({"barrier"})
_STEPS = frozenset({"training_step", "validation_step", "test_step", "predict_step", "configure_optimizers"})


# A function that the constructor got, and every evaluation calls.
_METRICS = "compute_metrics"
_EVALUATES = frozenset({"trainer-train", "trainer-evaluate", "trainer-predict"})
# What a trainer is given whose methods it calls; a data module may stand in the place of loaders.
_TRAINED = ("model", "datamodule", "train_dataloaders", "dataloaders")
# What runs while a trainer predicts, and while it evaluates.
_PREDICTS = re.compile(r"predict|write_on|^setup$|^teardown$|^prepare_data$")
_ASSESSES = re.compile(r"(?:^|_)(?:test|val|validation|evaluate)(?:_|$)|^setup$|^teardown$|^prepare_data$")


def trainer_callbacks(m: Machine, row: Row, receiver: Atom | None, bound: BoundArguments, node: ast.AST) -> None:
    """Run the callbacks and models of the project that a trainer got: their hooks, any number of times."""
    from dslint.python.loops import repeat

    kinds = {"trainer-predict": _PREDICTS, "trainer-evaluate": _ASSESSES}
    only = next((names for tag, names in kinds.items() if tag in row.tags), None)
    if row.tags & _EVALUATES and isinstance(receiver, Instance):
        metrics = m.store.get((receiver, ("argument", _METRICS))) or NOTHING
        if _functions(metrics):
            repeat(m, node, lambda: _call_back(m, row, _METRICS, metrics, receiver, node))
    if not row.tags & _EVALUATES or not isinstance(receiver, Instance):
        return
    found: list[Instance] = []
    given = (bound.given.get(name) for name in _TRAINED)
    for value in (m.store.get((receiver, ("argument", "callbacks"))), *given):
        if value is None:
            continue
        parts = containers.exact_items(m, value) or [value]
        found += [a for p in parts for a in p.atoms if isinstance(a, Instance) and isinstance(a.cls, ClassAtom)]

    def turn() -> None:
        for atom in found:
            for name, method in _hooks(m, atom):
                if only is None or only.search(name):
                    call_hook(m, atom, name, method, node)

    if found:
        begun = next((e for e in reversed(m.events) if isinstance(e, Event) and e.node is node), None)
        repeat(m, node, turn)
        if begun is not None and "model" in bound.given:
            begun.modules = modules_in(m, (bound.given["model"],))  # hooks may have built them


def _hooks(m: Machine, atom: Instance) -> list[tuple[str, Value]]:
    """Return the methods of an object that a library calls: the ends of steps and epochs last."""
    assert isinstance(atom.cls, ClassAtom)
    names: dict[str, None] = {}
    for base in attributes.lineage(m, atom.cls):
        for row in m.libraries.lineage(base) if isinstance(base, str) and base else ():
            names.update(dict.fromkeys(n for n, r in row.methods.items() if r.tags & _HOOKS or n in _STEPS))
    found = [(name, _own_method(m, atom, name)) for name in sorted(names, key=_comes_late)]
    return [(name, own) for name, own in found if own is not None]


def _comes_late(name: str) -> bool:
    return name.endswith("_end") or name == "teardown"


def hook_lanes(m: Machine, cls: ClassAtom, name: str) -> int:
    """Return the lanes on which a library runs a method that a class of the project overrides."""
    return _lanes(m, _restricted_row(m, cls, name), cls.node)


def _lanes(m: Machine, row: Row | None, node: ast.AST) -> int:
    from dslint.python.restrictions import lanes_of

    found = lanes_of(m, row, Place(m, row, BoundArguments(), None, node)) if row is not None else None
    return m.worlds.full if found is None else found


def _restricted_row(m: Machine, cls: ClassAtom, name: str) -> Row | None:
    for base in attributes.lineage(m, cls):
        row = m.libraries.method(base, name) if isinstance(base, str) and base else None
        if row is not None and "hook" in row.tags and "runs_on" in row.extra:
            return row
    return None
