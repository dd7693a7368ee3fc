"""Layers of a model inside DDP that take no part in a training step: nothing runs them, or only some steps do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dslint.python import attributes
from dslint.python.events import Alt, Call, Event, Lost, Seq, events, walk
from dslint.python.machine import Machine
from dslint.python.queries.containedparts import unread_parts
from dslint.python.queries.counted import Counted
from dslint.python.queries.skipped import is_frozen
from dslint.python.source import Module
from dslint.python.values import ClassAtom, Function, Instance

# With these a class reaches its layers by other ways than `self.x`.
_SWEEPING = ("children", "named_children", "modules", "named_modules", "_modules", "__dict__", "named_parameters")
_BY_TEXT = re.compile(r"\b(?:getattr|setattr|vars)\(")
# Layers that are frozen, or that give a gradient of nothing.
_FREEZES = re.compile(
    r"requires_grad_\(|requires_grad\s*=[^=]|[\"']requires_grad[\"']|_ddp_params_and_buffers_to_ignore"
)
_NOTHING = re.compile(r"(?<![\w.])0(?:\.0*)?\s*\*|\*\s*0(?:\.0*)?(?![\w.])")
# Makes trainable, or asks.
_THAWS = re.compile(r"requires_grad\s*=\s*True|requires_grad_\((?:True)?\)|requires_grad=True")
# A loop over all parameters may add each of them to the loss; one that counts or freezes them does not.
_LOOPS = re.compile(r"\bfor\b[^\n]*\bin\b[^\n]*parameters\(\)[^\n]*(?:\n[^\n]*)?")
# The list for an optimizer of those that are trained.
_PICKS = re.compile(r"[\[(]\s*(\w+)\s+for\s+\1\s+in\b[^\n]*parameters\(\)\s+if\s+\1\.requires_grad\s*[\])]")
# Arguments with which a layer may have no parameters.
_BARE = frozenset({"affine", "elementwise_affine"})


_PLAIN = frozenset({"torch.nn.Module", "builtins.object", "lightning.LightningModule"})


@dataclass(frozen=True, slots=True)
class Layer:
    """A field of a module that holds parameters: `self.x = nn.Linear(...)` in the constructor of `owner`."""

    name: str
    made: ast.expr
    owner: ClassAtom


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A layer that gets no gradient; `test` is what decides, in the forward pass that `call` begins.

    `often` says that some steps run it, and others do not.
    """

    layer: Layer
    call: Event
    test: ast.expr | None = None
    often: bool = False


@dataclass(frozen=True, slots=True)
class Frozen:
    """What is known to be frozen: modules as a whole, and the lines (path and number) where that stands."""

    modules: frozenset[Instance] = frozenset()
    lines: frozenset[tuple[str, int]] = frozenset()


class LeftOuts:
    """The layers that the forward passes of one wrapper leave out."""

    def __init__(
        self, m: Machine, tree: Seq, wrapper: Event, made: Instance | None, frozen: Frozen | None = None
    ) -> None:
        """Look at the forward passes of the wrapper `made`; without one, `wrapper` runs the steps of its model."""
        self._frozen = frozen or Frozen()
        self._wrapper = wrapper
        self._m = m
        self._tree = tree
        self._modules = wrapper.modules
        self._made = made

    def find(self) -> Iterator[LeftOut]:
        """Yield what is left out; nothing where the forward passes are not known."""
        frozen = {id(event) for node in walk(self._tree) if is_frozen(node) for event in events(node)}
        calls = [event for event in self._forwards() if id(event) not in frozen]
        bodies = [body for call in calls for body in self._calls.get(id(call.node), ())]
        if not calls or any(id(call.node) not in self._calls for call in calls):
            return
        if any(isinstance(node, Lost) for body in bodies for node in walk(body)):
            return
        if is_excused(self._m, self._frozen.lines):
            return
        for layer in self._layers():
            found = self._judge(layer, calls[0], bodies)
            if found is not None:
                yield found
        yield from (LeftOut(layer, calls[0]) for layer in self._unread_parts())

    def _forwards(self) -> Iterator[Event]:
        if self._made is None:
            yield self._wrapper
        for event in events(self._tree) if self._made is not None else ():
            if "ddp-forward" in event.tags and event.receiver is not None and self._made in event.receiver.atoms:
                yield event

    @cached_property
    def _calls(self) -> dict[int, list[Call]]:
        found: dict[int, list[Call]] = {}
        for node in walk(self._tree):
            if isinstance(node, Call) and (node.node is not self._wrapper.node or _is_step(node)):
                found.setdefault(id(node.node), []).append(node)
        return found

    def layer(self, owner: ClassAtom, name: str) -> Layer | None:
        """Return a layer that certainly has parameters, unless something may give it a gradient in another way."""
        if is_excused(self._m, self._frozen.lines):
            return None
        return next((layer for layer in self._layers() if layer.owner is owner and layer.name == name), None)

    # -- the layers ---------------------------------------------------------------------------------------------

    def _owners(self) -> list[ClassAtom]:
        owners = {a.cls.node: a.cls for a in self._modules if isinstance(a.cls, ClassAtom)}
        return [owner for owner in owners.values() if self._is_simple(owner)]

    def _unread_parts(self) -> Iterator[Layer]:
        """Yield the parts of a `ModuleDict` or `ModuleList` that nothing reads, where code names those it reads."""
        trained = {atom.node: atom for atom in self._modules - self._without_gradient}
        for owner, (field, value) in [(each, pair) for each in self._owners() for pair in _fields(each.node)]:
            atom = trained.get(value)
            if atom is None or not self._m.libraries.is_class(str(atom.cls), "container"):
                continue
            for name, made in unread_parts(self._m, owner, field, value):
                if self._holds(trained[made]) if made in trained else self._is_plain_layer(made):
                    yield Layer(name, made, owner)

    def _is_plain_layer(self, made: ast.expr) -> bool:
        """Return whether an expression makes a layer of torch: what a `ModuleDict` gets item by item."""
        word = ast.unparse(made.func) if isinstance(made, ast.Call) else ""
        layer = f"torch.nn.{word.rpartition('.')[2]}" if word.startswith(("nn.", "torch.nn.")) else ""
        keywords = {k.arg for k in made.keywords} if isinstance(made, ast.Call) else set()
        return bool(layer) and self._m.libraries.is_class(layer, "layer") and not keywords & _BARE

    def _layers(self) -> list[Layer]:
        found = [layer for owner in self._owners() for layer in self._of_class(owner)]
        return sorted(found, key=lambda layer: (layer.owner.module.path, layer.made.lineno))

    def _is_simple(self, owner: ClassAtom) -> bool:
        """Return whether a class reaches its layers by their names."""
        bases = [base for base in attributes.lineage(self._m, owner) if isinstance(base, str)]
        if any(base not in _PLAIN for base in bases):
            return False
        is_swept = any(name in owner.module.attributes for name in _SWEEPING)
        return not is_swept and not owner.module.search(_BY_TEXT)

    def _of_class(self, owner: ClassAtom) -> Iterator[Layer]:
        for field, value in _fields(owner.node):
            atoms = [atom for atom in self._modules if atom.node is value]
            if atoms and all(self._holds(atom) and atom not in self._without_gradient for atom in atoms):
                yield Layer(field, value, owner)

    @cached_property
    def _without_gradient(self) -> set[Instance]:
        """Return the modules that are frozen, with all that is made in them."""
        found: set[Instance] = set()
        pending = list(self._frozen.modules & self._modules)
        while pending:
            atom = pending.pop()
            if atom in found:
                continue
            found.add(atom)
            places = [atom.node, *([atom.cls.node] if isinstance(atom.cls, ClassAtom) else ())]
            inside = {id(node) for place in places for node in ast.walk(place)}
            pending += [other for other in self._modules if id(other.node) in inside]
        return found

    def _holds(self, atom: Instance) -> bool:
        """Return whether a module certainly has parameters."""
        if isinstance(atom.cls, ClassAtom):
            return any(self._is_layer(a) for _, v in _fields(atom.cls.node) for a in self._modules if a.node is v)
        if self._m.libraries.is_class(atom.cls, "container"):
            inside = {id(node) for node in ast.walk(atom.node)}
            return any(self._is_layer(other) for other in self._modules if id(other.node) in inside)
        return self._is_layer(atom)

    def _is_layer(self, atom: Instance) -> bool:
        keywords = {k.arg for k in atom.node.keywords} if isinstance(atom.node, ast.Call) else set()
        return isinstance(atom.cls, str) and self._m.libraries.is_class(atom.cls, "layer") and not keywords & _BARE

    # -- what runs them -----------------------------------------------------------------------------------------

    def _judge(self, layer: Layer, call: Event, bodies: Sequence[Call]) -> LeftOut | None:
        uses = [(m, use) for m in self._m.program.modules() for use in m.attributes.get(layer.name, ())]
        if not uses:
            return LeftOut(layer, call)
        methods = [part for part in layer.owner.node.body if getattr(part, "name", "") != "__init__"]
        inside = {id(node) for method in methods for node in ast.walk(method)}
        if any(id(use) not in inside for _, use in uses):
            return None
        runs = [event for event in events(self._tree) if self._is_run(event, layer)]
        if runs:
            return self._in_some_steps(layer, call, bodies, runs) or self._in_one_pass(layer, runs)
        tests = [self._closed(use, layer, bodies) for _, use in uses]
        return LeftOut(layer, call, tests[0]) if all(test is not None for test in tests) else None

    def _is_run(self, event: Event, layer: Layer) -> bool:
        return event.receiver is not None and any(
            isinstance(atom, Instance) and atom.node is layer.made for atom in event.receiver.atoms
        )

    def _closed(self, use: ast.AST, layer: Layer, bodies: Sequence[Call]) -> ast.expr | None:
        """Return the test around a call of a layer in a method that ran, and did not come to it."""
        ran = {
            id(n.function.node)
            for b in bodies
            for n in walk(b)
            if isinstance(n, Call) and isinstance(n.function, Function)
        }
        methods = (n for n in layer.owner.node.body if isinstance(n, ast.FunctionDef) and n.name != "__init__")
        nodes = next((found for n in methods if id(n) in ran and use in (found := list(ast.walk(n)))), [])
        if not any(isinstance(node, ast.Call) and node.func is use for node in nodes):
            return None
        tests = [node.test for node in nodes if isinstance(node, ast.If | ast.IfExp) and _is_in_arm(node, use)]
        return tests[-1] if tests else None

    def _in_some_steps(self, layer: Layer, call: Event, bodies: Sequence[Call], runs: list[Event]) -> LeftOut | None:
        counted = Counted(self._m, self._tree)
        tests: list[ast.expr] = []
        covered: set[int] = set()
        for alt in (node for body in bodies for node in walk(body) if isinstance(node, Alt)):
            test = getattr(alt.node, "test", None)
            sides = [{id(e) for e in events(side) if self._is_run(e, layer)} for side in (alt.then, alt.orelse)]
            if (
                bool(sides[0]) == bool(sides[1])
                or not isinstance(test, ast.expr)
                or not alt.then_lanes & alt.else_lanes
            ):
                continue
            if counted.decides(alt.module, test):
                covered |= sides[0] | sides[1]
                tests.append(test)
        return LeftOut(layer, call, tests[0], often=True) if all(id(run) in covered for run in runs) else None

    def _in_one_pass(self, layer: Layer, runs: list[Event]) -> LeftOut | None:
        """Return the layer where a forward pass with a backward pass of its own leaves it to another one."""
        if not self._with_own_backward:
            return None
        forward = next((n for n in layer.owner.node.body if getattr(n, "name", "") == "forward"), None)
        tests = [
            node.test
            for node in (ast.walk(forward) if forward is not None else ())
            if isinstance(node, ast.If | ast.IfExp) and any(_is_decided(node, run.node) for run in runs)
        ]
        for call in self._with_own_backward if tests else ():
            parts = [event for body in self._calls[id(call.node)] for event in events(body)]
            if not any(self._is_run(event, layer) for event in parts):
                return LeftOut(layer, call, tests[-1], often=True)
        return None

    @cached_property
    def _with_own_backward(self) -> list[Event]:
        """Return the forward passes after which a backward pass comes, and before which another one has been."""
        mine = {id(event) for event in self._forwards()} if self._made is not None else set()
        steps = [event for event in events(self._tree) if id(event) in mine or "backward" in event.tags]
        alone = []
        for before, event, after in zip([None, *steps], steps, steps[1:], strict=False):
            is_first = before is None or id(before) not in mine
            if id(event) in mine and is_first and id(after) not in mine and not event.may:
                alone.append(event)
        return alone


def _is_decided(node: ast.If | ast.IfExp, use: ast.AST) -> bool:
    """Return whether a test, or the end of the function in one of its arms, keeps a node from some calls."""
    if _is_in_arm(node, use):
        return True
    last = node.body[-1] if isinstance(node, ast.If) else None
    return isinstance(last, ast.Return) and getattr(use, "lineno", 0) > last.lineno


def _is_step(call: Call) -> bool:
    """Return whether a call that trains runs this method for each batch, with gradients."""
    return isinstance(call.function, Function) and getattr(call.function.node, "name", "") == "training_step"


def is_excused(m: Machine, known: frozenset[tuple[str, int]] = frozenset()) -> bool:
    """Return whether some module freezes layers, or adds all parameters or nothing times something to a loss.

    What is frozen at the `known` lines (path and number) is looked at by who asks.
    """
    return any(_is_excused(module, known) for module in m.program.modules())


def _is_excused(module: Module, known: frozenset[tuple[str, int]]) -> bool:
    text = module.code
    loops = _LOOPS.findall(_PICKS.sub("", text))
    if any("numel" not in line and not _FREEZES.search(line) for line in loops):
        return True
    if _NOTHING.search(text):
        return True
    for found in _FREEZES.finditer(text):
        is_known = (module.path, text.count("\n", 0, found.start()) + 1) in known
        if not is_known and not (known and _THAWS.match(text, found.start())):
            return True
    return False


def _is_in_arm(node: ast.If | ast.IfExp, use: ast.AST) -> bool:
    arms = (node.body, node.orelse) if isinstance(node, ast.IfExp) else (*node.body, *node.orelse)
    return any(inner is use for arm in arms for inner in ast.walk(arm))


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the fields that the constructor sets on every path."""
    init = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    names: dict[str, ast.expr] = {}
    for statement in _straight(init.body) if init is not None else ():
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target, value = statement.targets[0], statement.value
        if isinstance(value, ast.Name):
            value = names.get(value.id, value)
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            yield target.attr, value


def _straight(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run on every path."""
    for statement in body:
        if isinstance(statement, ast.With | ast.Try):
            yield from _straight(statement.body)
        yield statement
