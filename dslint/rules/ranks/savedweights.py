"""Weights that one place saves and another loads: whose they are, in which file, and under which key of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python import paths
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.python.values import ClassAtom, Instance, Value
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.ddps import is_wrapper

_OF_OPTIMIZER = ("torch.optim.",)
_LOADERS = ("torch.load", "load")
# What a wrapper calls the model, and what `accelerator.prepare` gets.
_MODELS = ("module", "model", *(f"*{number}" for number in range(8)))
# What a checkpoint says of its run; weights that somebody publishes seldom do.
OF_RUN = re.compile(r"(?i)epoch|step|iter|best|optim|sched|scaler")
_ITEMS = ("items", "keys", "update")
# A name that says nothing of whose file it is.
_ANY = re.compile(r"(?:\.\*)*(?:\\\.\w+)?")


@dataclass(frozen=True, slots=True)
class Weights:
    """A state dict of a model that is saved or loaded: the model's kind, the name of the file and the key in it.

    `name` is a pattern for the last part of the path, empty where nothing is known of it; `key` is empty where the file
    holds nothing else. `is_changed`: the names of the weights may be others before they are loaded.
    """

    event: Event
    kinds: frozenset[object]
    name: str
    keys: frozenset[str]
    is_changed: bool = False


class Files:
    """The weights that a run saves and loads."""

    def __init__(self, run: RunQuery) -> None:
        self.run = run
        self.derived = run.derived

    def saved(self, states: list[Event]) -> Iterator[Weights]:
        """Yield what `torch.save` gets of these calls of `state_dict()`."""
        made_by = {event.node: event for event in states}
        copies = [found.event for found in self.run.happenings("saves") if "dst" in found.event.arguments]
        for found in self.run.happenings("saves"):
            call = found.event
            given = call.nodes.get("obj") or _first(call.node)
            pieces = self.derived.of(call.module, [given]) if call.api == "torch.save" and given is not None else None
            for _, piece in pieces or ():
                for node in ast.walk(piece):
                    if node in made_by:
                        event = made_by[node]
                        keys = {key for _, other in pieces or () for key in _keys(other, node)}
                        for name in (self.name(call), *self.copied(call, copies)):
                            yield Weights(event, self.kinds(event.receiver), name, frozenset(keys))

    def loaded(self) -> Iterator[Weights]:
        """Yield what is loaded into models."""
        calls = {found.event.node: found.event for found in self.run.happenings("loads")}
        for found in self.run.happenings("loads-state-dict"):
            event = found.event
            pieces = self.pieces(event) if not event.api.startswith(_OF_OPTIMIZER) else []
            for node in loading_calls(pieces):
                call = calls.get(node)
                if call is not None:
                    keys = frozenset(key for piece in pieces for key in _read_keys(piece))
                    yield Weights(event, self.kinds(event.receiver), self.name(call), keys, is_changed(pieces))

    def checkpoints(self, states: list[Event]) -> list[tuple[frozenset[str], frozenset[str]]]:
        """Return the keys under which these states are saved, with those of the progress of training beside them."""
        places = {event.node for event in states}
        found: list[tuple[frozenset[str], frozenset[str]]] = []
        for call in (happening.event for happening in self.run.happenings("saves")):
            given = call.nodes.get("obj") or _first(call.node)
            pieces = self.derived.of(call.module, [given]) if call.api == "torch.save" and given is not None else None
            for node in (node for _, piece in pieces or () for node in ast.walk(piece) if isinstance(node, ast.Dict)):
                inside = {key for state in places for key in _keys(node, state)}
                every = {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
                if inside:
                    found.append((frozenset(inside), frozenset(key for key in every - inside if OF_RUN.search(key))))
        return found

    def pieces(self, event: Event) -> list[ast.AST]:
        """Return the code behind the state that is loaded."""
        state = event.nodes.get("state_dict")
        if state is None and isinstance(event.node, ast.Call) and event.node.args:
            state = event.node.args[0]
        found = self.derived.of(event.module, [state]) if state is not None else None
        return [piece for _, piece in found or ()]

    def kinds(self, value: Value | None) -> frozenset[object]:
        """Return what models an object may be, below the wrappers: classes of the project, or who has made it."""
        found: set[object] = set()
        pending, seen = list(instances(value)), set()
        while pending:
            atom = pending.pop()
            if atom in seen:
                continue
            seen.add(atom)
            maker = self.run.makers.get(atom)
            if is_model_wrapper(self.run, atom):
                inside = (given for name, given in maker.arguments.items() if name in _MODELS) if maker else ()
                pending += [inner for given in inside for inner in instances(given)]
            elif isinstance(atom.cls, ClassAtom):
                found.add((atom.cls.module.absolute, atom.cls.node.name))
            elif atom.cls or (maker is not None and maker.api):
                found.add(atom.cls or (maker.api if maker is not None else ""))
        return frozenset(found)

    def copied(self, call: Event, copies: list[Event]) -> Iterator[str]:
        """Yield patterns for the names of copies of the file that a call writes."""
        mine = self.name(call)
        for copy in copies:
            name = self.name(copy, "dst")
            if mine and name and self.name(copy, "src") == mine:
                yield name

    def name(self, call: Event, argument: str = "f") -> str:
        """Return a pattern for the name of the file that a call writes or reads."""
        value = call.arguments.get(argument)
        known = self.run.likely(value)
        if known is not None:
            names = {re.escape(str(one).replace("\\", "/").rpartition("/")[2]) for one in known if one}
            return "|".join(sorted(names))
        made_of = paths.components(value)
        pattern = _pattern(self.run, made_of[-1]) if made_of else ""
        return "" if _ANY.fullmatch(pattern) else pattern


def is_model_wrapper(run: RunQuery, atom: Instance) -> bool:
    """Return whether an object is a model inside of a wrapper, also of one for several devices of one process."""
    return is_wrapper(run, atom) or atom.cls == "torch.nn.DataParallel"


def loading_calls(pieces: list[ast.AST]) -> set[ast.Call]:
    """Return the calls of `torch.load` in some code."""
    calls = (node for piece in pieces for node in ast.walk(piece) if isinstance(node, ast.Call))
    return {call for call in calls if ast.unparse(call.func) in _LOADERS}


def keys_read(module: Module, call: ast.AST) -> frozenset[str]:
    """Return the keys that a file reads of what a call gives, or asks for, by the variable that takes it."""
    statement = module.parents.get(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {ast.unparse(target) for target in targets}
    found: set[str] = set()
    for node in module.nodes_of(ast.Subscript, ast.Call, ast.Compare) if names else ():
        key: ast.AST | None = None
        if isinstance(node, ast.Subscript):
            key = node.slice if isinstance(node.ctx, ast.Load) and ast.unparse(node.value) in names else None
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and ast.unparse(node.comparators[0]) in names:
            key = node.left if isinstance(node.ops[0], ast.In) else None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            key = node.args[0] if node.args and ast.unparse(node.func.value) in names else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.add(key.value)
    return frozenset(found)


def is_changed(pieces: list[ast.AST]) -> bool:
    """Return whether code makes another dictionary of one, whose keys may be others."""
    return any(
        isinstance(node, ast.DictComp) or (isinstance(node, ast.Attribute) and node.attr in _ITEMS)
        for piece in pieces
        for node in ast.walk(piece)
    )


def is_same_file(one: str, other: str) -> bool | None:
    """Return whether two patterns mean one file; `None` where nothing is known of one of them."""
    if not one or not other:
        return None
    plain = [re.sub(r"\\(.)", r"\1", text).replace(".*", "0") for text in (one, other)]
    return any(
        re.fullmatch(pattern, text) is not None
        for pattern, other_text in ((one, plain[1]), (other, plain[0]))
        for text in other_text.split("|")
    )


def _pattern(run: RunQuery, component: object) -> str:
    if isinstance(component, str):
        return re.escape(component)
    if isinstance(component, tuple) and component and component[0] == "mixed":
        return "".join(re.escape(part) if isinstance(part, str) else ".*" for part in component[1:])
    default = run.machine.defaults.get(component)
    known = default.constants if default is not None else None
    return "|".join(sorted({re.escape(str(one).rpartition("/")[2]) for one in known or () if one})) or ".*"


def _first(node: ast.AST) -> ast.expr | None:
    return node.args[0] if isinstance(node, ast.Call) and node.args else None


def _keys(piece: ast.AST, state: ast.AST) -> Iterator[str]:
    """Yield the keys under which a dictionary holds a state."""
    for node in ast.walk(piece):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and any(inner is state for inner in ast.walk(value)):
                    yield str(key.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            yield from (k.arg for k in node.keywords if k.arg and any(n is state for n in ast.walk(k.value)))


def _read_keys(piece: ast.AST) -> Iterator[str]:
    """Yield the texts by which something is read out of a dictionary."""
    for node in ast.walk(piece):
        key = node.slice if isinstance(node, ast.Subscript) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            key = node.args[0] if node.args else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value
