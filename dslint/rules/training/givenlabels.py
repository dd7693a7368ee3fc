"""Every way in which `label_names` gets names: passed, set afterwards, added, or the default of a field."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from dslint.python.names import names_of
from dslint.python.places import ordered
from dslint.python.queries.labels import Evaluation
from dslint.python.values import Bound, ClassAtom, Const, Function, Instance, Partial, Tuple

if TYPE_CHECKING:
    from dslint.core.source import Location
    from dslint.python.events import Event
    from dslint.python.source import Module
    from dslint.python.values import Atom, Value
    from dslint.rules.runs import RunQuery

FIELD = "label_names"
# What everybody calls the arguments of a Trainer, and the Trainer.
_CALLED = frozenset({"training_args", "train_args", "trainer", "targs"})
# What a Trainer gets that makes batches.
_MAKERS = ("data_collator", "train_dataset", "eval_dataset")


@dataclass(frozen=True, slots=True)
class Given:
    """Names that are put into `label_names` at a place; `made` is where their list stands, when elsewhere."""

    module: Module
    node: ast.AST
    names: tuple[str, ...]
    made: tuple[Location, ...] = ()


class GivenLabels:
    """The label names of one run."""

    def __init__(self, run: RunQuery) -> None:
        self._run = run
        self._evaluations: dict[tuple[Module, ...], Evaluation] = {}

    def every(self) -> Iterator[Given]:
        """Yield what each place gives, each once."""
        seen: set[tuple[ast.AST, tuple[str, ...]]] = set()
        for given in chain(self._passed(), self._set(), self._defaults(), self._passed_to_unknown()):
            if given.names and (given.node, given.names) not in seen:
                seen.add((given.node, given.names))
                yield given

    def evaluation(self, module: Module) -> Evaluation:
        """Return the evaluation of the Trainers of the run, as these and the file of the names tell it."""
        modules = tuple(dict.fromkeys((module, *self._around_trainers)))
        if modules not in self._evaluations:
            self._evaluations[modules] = Evaluation(modules)
        return self._evaluations[modules]

    @cached_property
    def _around_trainers(self) -> list[Module]:
        """Return the modules that make Trainers, their collators and their data."""
        found: list[Module] = []
        for event in (happening.event for happening in self._run.occurrences("trainer")):
            atoms = (a for name in _MAKERS if name in event.arguments for a in ordered(event.arguments[name].atoms))
            found += [event.module, *(m for m in map(_home, atoms) if m is not None)]
        return list(dict.fromkeys(found))

    # -- what the interpreter has seen --------------------------------------------------------------------------

    def _passed(self) -> Iterator[Given]:
        """Yield `TrainingArguments(label_names=[...])`, also where a dictionary is unpacked."""
        for event in (happening.event for happening in self._run.occurrences("training-arguments")):
            value = event.arguments.get(FIELD)
            if value is not None:
                written = event.nodes.get(FIELD)
                names = self._held(event, FIELD, value, written)
                made = value.single.node if isinstance(value.single, Instance) else None
                inside = made is not None and event.module.holds(made)
                node = written or (made if inside and made is not None else event.node)
                yield Given(event.module, node, names, self._where(made, node))

    def _set(self) -> Iterator[Given]:
        """Yield `args.label_names = [...]`, `setattr(...)`, and what `+=`, `append` and `extend` add."""
        for event in (happening.event for happening in self._run.occurrences("names-labels")):
            written = _write(event)
            if written is not None and (event.api or self._is_called_so(event.module, written.owner)):
                names = self._held(event, "value", event.arguments["value"], written.value)
                # What is added comes to the labels.
                names = ("labels", *names) if names and written.adds else names
                yield Given(event.module, written.value or event.node, names)

    def _held(self, event: Event, key: str, value: Value, written: ast.expr | None) -> tuple[str, ...]:
        """Return the names that a value certainly has in it, as a text, a list, or a part of a sum."""
        atom = value.single
        items: Sequence[Value] = [value] if isinstance(atom, Const) else atom.items if isinstance(atom, Tuple) else ()
        items = event.items.get(key, ()) if isinstance(atom, Instance) else items
        texts = [item.single.value for item in items if isinstance(item.single, Const)]
        found = tuple(dict.fromkeys(text for text in texts if isinstance(text, str)))
        return found or (tuple(self._written(event.module, written)) if written is not None else ())

    def _where(self, made: ast.AST | None, node: ast.AST) -> tuple[Location, ...]:
        """Return where a list stands that is written elsewhere than at the call."""
        if made is None or made is node:
            return ()
        home = self._run.machine.program.home_of(made)
        return (home.location(made, "the names are here"),) if home is not None else ()

    # -- what stands in the code only ---------------------------------------------------------------------------

    def _defaults(self) -> Iterator[Given]:
        """Yield the default of a field in a subclass of `TrainingArguments`."""
        for cls in self._run.analysis.program.noted.classes:
            for statement in cls.node.body:
                is_field = isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
                if is_field and isinstance(statement, ast.AnnAssign) and getattr(statement.target, "id", "") == FIELD:
                    bases = names_of(cls.module.tree).bases(cls.node.name)
                    if statement.value is not None and any(base.endswith("TrainingArguments") for base in bases):
                        node = self._default(cls.module, statement.value)
                        yield Given(cls.module, node, tuple(self._written(cls.module, node)))

    def _passed_to_unknown(self) -> Iterator[Given]:
        """Yield `label_names=[...]` in calls of classes that no row describes but whose names tell what they are."""
        made = (happening.event for happening in self._run.occurrences("training-arguments"))
        told = {event.node for event in made if FIELD in event.arguments}
        for module in self._run.machine.program.modules():
            calls = module.nodes if FIELD in module.source.text else ()
            for call in (node for node in calls if isinstance(node, ast.Call) and node not in told):
                node = next((k.value for k in call.keywords if k.arg == FIELD), None)
                if node is not None and self._makes_arguments(module, call):
                    yield Given(module, node, tuple(self._written(module, node)))

    def _makes_arguments(self, module: Module, call: ast.Call) -> bool:
        """Return whether a call makes `TrainingArguments`, a config of TRL, or a copy of such an object."""
        names = names_of(module.tree)
        name, full = names.called(call), names.qualified(call.func)
        bases = names.bases(name) if not full and isinstance(call.func, ast.Name) else []
        if name.endswith("TrainingArguments") or any(_is_arguments(base) for base in bases):
            return True
        if full == "dataclasses.replace":
            made = names.behind(call.args[0]) if call.args else None
            is_made = isinstance(made, ast.Call) and self._makes_arguments(module, made)
            return is_made or (bool(call.args) and self._is_called_so(module, call.args[0]))
        return name.endswith(("Config", "Arguments")) and full.startswith(("transformers.", "trl."))

    def _is_called_so(self, module: Module, node: ast.expr) -> bool:
        """Return whether an object is a Trainer or its arguments by its name, or by the class around it."""
        is_own = isinstance(node, ast.Attribute) and node.attr == "args"
        root = node.value if is_own and isinstance(node, ast.Attribute) else node
        if isinstance(root, ast.Name) and root.id == "self":
            owner = names_of(module.tree).class_around(node)
            bases = names_of(module.tree).bases(owner.name) if owner is not None else []
            return any(base.endswith("Trainer") for base in bases)
        last = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return last.lower() in _CALLED

    def _default(self, module: Module, value: ast.expr) -> ast.expr:
        """Return what `field(default_factory=lambda: [...])` makes; other values are themselves."""
        if isinstance(value, ast.Call) and names_of(module.tree).called(value) == "field":
            factory = next((k.value for k in value.keywords if k.arg == "default_factory"), None)
            if isinstance(factory, ast.Lambda):
                return factory.body
        return value

    def _written(self, module: Module, value: ast.expr) -> Iterator[str]:
        """Yield the names that an expression writes out: of a list, of one text, of each part of a sum."""
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            yield from self._written(module, value.left)
            yield from self._written(module, value.right)
            return
        behind = names_of(module.tree).behind
        value = behind(value)
        elements = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        for element in map(behind, elements):
            if isinstance(element, ast.Constant) and isinstance(element.value, str):
                yield element.value


def _is_arguments(base: str) -> bool:
    return base.endswith("TrainingArguments") or base.startswith("trl.")


@dataclass(frozen=True, slots=True)
class _Write:
    """The object whose `label_names` are set, and the expression that is set or added, where one is written there."""

    owner: ast.expr
    value: ast.expr | None
    adds: bool = False


def _write(event: Event) -> _Write | None:
    """Return what the code of an event sets; `None` for a mere reading, and for what `+=` does besides adding."""
    node = event.node
    if "value" not in event.arguments:
        return None
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute):
        return _Write(node.target.value, node.value, adds=True)
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call) and isinstance(called, ast.Attribute) and isinstance(called.value, ast.Attribute):
        return _Write(called.value.value, node.args[-1], adds=True) if node.args else None
    if isinstance(node, ast.Call) and len(node.args) == 3:  # `setattr`, which may set one of several
        return _Write(node.args[0], node.args[2] if isinstance(node.args[1], ast.Constant) else None)
    statement = event.module.statement(node)
    if not isinstance(node, ast.Attribute) or isinstance(statement, ast.AugAssign):
        return None
    is_whole = isinstance(statement, ast.Assign) and node in statement.targets
    is_whole = is_whole or (isinstance(statement, ast.AnnAssign) and statement.target is node)
    return _Write(node.value, getattr(statement, "value", None) if is_whole else None)


def _home(atom: Atom) -> Module | None:
    """Return the file of a function, or of the class of an object."""
    if isinstance(atom, Bound):
        atom = atom.function if isinstance(atom.function, Function) else atom.receiver
    if isinstance(atom, Partial):
        inner = atom.function.single
        return _home(inner) if inner is not None else None
    if isinstance(atom, Instance) and isinstance(atom.cls, ClassAtom):
        return atom.cls.module
    return atom.module if isinstance(atom, Function | ClassAtom) else None
