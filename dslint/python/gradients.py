"""Gradients that only some ranks have: of layers that run where each rank's own batch says so."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dslint.python.effects import class_in_place
from dslint.python.heap import RAN
from dslint.python.models import has_parameters, is_wrapped
from dslint.python.parts import modules_in
from dslint.python.values import NONE, TRUE, Instance, Tuple, Value, one
from dslint.python.varies import DATA

if TYPE_CHECKING:
    from dslint.python.machine import Machine

# Of a parameter: its model. Of a model: all have a gradient now.
_OF, _FILLED = "#parameter of", "#gradients filled"
_PARAMETER = "torch.nn.Parameter"
GRAD = "grad"


def note_run(m: Machine, base: Value | None) -> None:
    """Note that a layer runs: where ways meet, the machine joins it with those that leave the layer out."""
    atom = base.single if base is not None else None
    if isinstance(atom, Instance) and isinstance(atom.cls, str) and has_parameters(atom.cls):
        m.store.set((atom, RAN), TRUE)


def note_parameters(m: Machine, base: Value | None, result: Value) -> None:
    """Remember of which model the parameters are that a call hands out."""
    model, atom = base.single if base is not None else None, result.single
    given = m.store.get((atom, "#yields")) if isinstance(atom, Instance) else None
    if base is None or not isinstance(model, Instance) or given is None:
        return
    for inner in given.atoms:
        values = inner.items if isinstance(inner, Tuple) else (one(inner),)
        for part in (value.single for value in values):
            if isinstance(part, Instance) and part.cls == _PARAMETER:
                m.store.set((part, _OF), base)


def perhaps(m: Machine, base: Value, found: Value) -> Value:
    """Return a gradient that is missing on the ranks whose batch has left a layer out."""
    model = _model(m, base)
    if model is None or m.store.get((model, _FILLED)) is not None:
        return found
    modules = modules_in(m, (one(model),))
    ran = (m.store.get((layer, RAN)) for layer in modules)
    is_own = any(value is not None and value.varies & DATA for value in ran)
    if not is_own or m.control & DATA or class_in_place(m, model) or any(is_wrapped(m, part) for part in modules):
        return found
    return Value(found.atoms | NONE.atoms, found.varies | DATA, found.shape, found.made_by, None, found.origin)


def note_written(m: Machine, base: Value, value: Value) -> None:
    """Note that a parameter gets a gradient that is none of its own: from then on all of the model may have one."""
    model, atom = _model(m, base), value.single
    if model is not None and isinstance(atom, Instance) and isinstance(atom.node, ast.Call):
        m.store.set((model, _FILLED), TRUE)


def _model(m: Machine, base: Value) -> Instance | None:
    atom = base.single
    held = m.store.get((atom, _OF)) if isinstance(atom, Instance) and atom.cls == _PARAMETER else None
    model = held.single if held is not None else None
    return model if isinstance(model, Instance) else None
