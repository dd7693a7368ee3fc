"""The optimizer that a script gives its Trainer: by an override of `create_optimizer`, or by `optimizers=`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.source import Location
from dslint.model.plan.scriptrun import imported_sources, script_run
from dslint.python.attributes import lineage
from dslint.python.values import ClassAtom, Const, Instance, Tuple

if TYPE_CHECKING:
    from dslint.model.workspace import Workspace
    from dslint.python.events import Event
    from dslint.python.machine import Machine
    from dslint.python.source import Module

_METHOD = "create_optimizer"
_MENTIONS = re.compile(rf"def {_METHOD}\(|\boptimizers\s*=")
_KNOWS_DEEPSPEED = re.compile(r"deepspeed|DummyOptim", re.I)
# Options with a learning rate of their own: `vision_lr`, `mm_projector_lr`, `lr_head`.
_RATE = re.compile(r"(?:^|_)lr(?:_|$)|_learning_rate$|^learning_rate_")
_NO_RATE = re.compile(r"sched|decay|^lr_end|^learning_rate$")
_ADAM = re.compile(r"adam", re.I)
_MOST_MODULES, _MOST_STEPS = 80, 3


@dataclass(frozen=True, slots=True)
class OwnOptimizer:
    """What the one Trainer of a script is given.

    ``passed`` is the `optimizers=` of its constructor. ``override`` is its `create_optimizer`; ``is_guarded``: that
    leaves an optimizer alone which is there already. ``rates`` are the options that give groups a learning rate of
    their own, ``always`` is the place of one that no option decides on.
    """

    passed: Location | None = None
    override: Location | None = None
    is_guarded: bool = True
    rates: tuple[str, ...] = ()
    always: Location | None = None


def own_optimizer(path: str, workspace: Workspace) -> OwnOptimizer | None:
    """The optimizer that a script gives its Trainer; `None` where it gives none, or nobody knows which Trainer runs."""
    sources = imported_sources(path, workspace, _MOST_STEPS, _MOST_MODULES)
    if not any(_MENTIONS.search(source.text) for source in sources):
        return None
    run = script_run(path, workspace)
    if run is None:
        return None
    trained = [event for event in run.events if "trainer-train" in event.tags]
    atoms = {atom for event in trained for atom in (event.receiver.atoms if event.receiver is not None else ())}
    made = [event for event in run.events if "trainer" in event.tags and event.api.startswith("transformers.")]
    if len(atoms) != 1 or len(made) != 1:
        return None
    atom = next(iter(atoms))
    cls = atom.cls if isinstance(atom, Instance) else ""
    found = _override(run.analysis.machine, cls) if isinstance(cls, ClassAtom) else None
    passed = _passed(made[0])
    if found is None:
        return OwnOptimizer(passed) if passed is not None else None
    return _read(*found, passed)


def _passed(made: Event) -> Location | None:
    """Where an optimizer certainly goes into the constructor: `optimizers=(optimizer, ...)`."""
    value, node = made.arguments.get("optimizers"), made.nodes.get("optimizers")
    atom = value.single if value is not None else None
    if made.may or not isinstance(atom, Tuple) or not atom.items:
        return None
    first = atom.items[0]
    if not first.atoms or any(isinstance(a, Const) for a in first.atoms):
        return None
    return made.module.location(node if node is not None else made.node)


def _override(m: Machine, cls: ClassAtom) -> tuple[ast.FunctionDef, Module] | None:
    """The method of the nearest class of the project that has it, unless something unknown stands before."""
    for base in lineage(m, cls):
        if not isinstance(base, ClassAtom):
            return None
        for item in base.node.body:
            if isinstance(item, ast.FunctionDef) and item.name == _METHOD:
                return item, base.module
    return None


def _read(node: ast.FunctionDef, module: Module, passed: Location | None) -> OwnOptimizer:
    """What an override does."""
    text = module.text(node)
    if _KNOWS_DEEPSPEED.search(text):
        return OwnOptimizer(passed)
    tests = [ast.unparse(n.test) for n in ast.walk(node) if isinstance(n, ast.If | ast.IfExp)]
    asks = any("self.optimizer" in test for test in tests) or f"super().{_METHOD}" in text or "super(" in text
    rates = dict.fromkeys(_rates(node))
    always = next(_always(node), None) if not rates else None
    place = module.location(always) if always is not None else None
    return OwnOptimizer(passed, module.location(node), asks, tuple(rates), place)


def _rates(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and ast.unparse(part.value).rpartition(".")[2].endswith("args"):
            found = part.attr if _RATE.search(part.attr) and not _NO_RATE.search(part.attr) else ""
            yield from (found,) if found else ()


def _always(node: ast.FunctionDef) -> Iterator[ast.AST]:
    """Groups with a rate of their own, or an optimizer that is not Adam, where no option decides on it."""
    for part in _undecided(node):
        if isinstance(part, ast.Dict):
            for key, value in zip(part.keys, part.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "lr" and not _is_rate_of_run(value):
                    yield part
        elif isinstance(part, ast.Assign) and any(ast.unparse(t) == "self.optimizer" for t in part.targets):
            made = part.value.func if isinstance(part.value, ast.Call) else None
            name = ast.unparse(made).rpartition(".")[2] if made is not None else ""
            if name[:1].isupper() and not _ADAM.search(name):
                yield part


def _is_rate_of_run(value: ast.expr) -> bool:
    return ast.unparse(value).rpartition(".")[2] in ("learning_rate", "lr")


def _undecided(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function on which no test of an option decides."""
    pending = list(ast.iter_child_nodes(node))
    while pending:
        part = pending.pop()
        if isinstance(part, ast.If | ast.IfExp) and ast.unparse(part.test) != "self.optimizer is None":
            continue
        yield part
        pending.extend(ast.iter_child_nodes(part))
