"""The mode of models: `self.training` after `model.train()` and `model.eval()`."""

from __future__ import annotations

from dslint.python import containers
from dslint.python.binding import BoundArguments
from dslint.python.joins import join
from dslint.python.libraries import Row
from dslint.python.machine import Machine
from dslint.python.parts import modules_in
from dslint.python.values import FALSE, OPAQUE, TRUE, Atom, Instance, one, unknown

TRAINING = "training"
_OFF = "off"
# Trainers set the mode themselves, as they go on from one stage to the next.
_STAGES = frozenset({"trainer-train", "trainer-evaluate", "trainer-predict"})
_MODELS = ("model", "model_wrapped", ("argument", "model"))


def changed(m: Machine, row: Row, bound: BoundArguments, receiver: Atom | None) -> None:
    """Set the mode of a model as a call does; after a trainer has taken it nobody knows it."""
    if "sets_mode" in row.extra and isinstance(receiver, Instance):
        _set(m, row, bound, receiver)
    elif row.tags & _STAGES:
        held = (m.store.get((receiver, name)) for name in _MODELS) if isinstance(receiver, Instance) else ()
        for module in modules_in(m, (*bound.given.values(), *(value for value in held if value is not None))):
            if m.store.get((module, TRAINING)) is not None:
                m.store.set((module, TRAINING), unknown(OPAQUE, "mode of a model", type_="builtins.bool"))


def _set(m: Machine, row: Row, bound: BoundArguments, receiver: Instance) -> None:
    """Set the mode of a model and of all modules inside, as far as these are known.

    Where the receiver stands for several objects, only one of them gets the mode.
    """
    word = str(row.extra["sets_mode"])
    mode = FALSE if word == _OFF else bound.given.get(word, TRUE)
    is_sure = containers.is_owned(m, receiver)
    for module in modules_in(m, (one(receiver),)):
        old = m.store.get((module, TRAINING))
        m.store.set((module, TRAINING), mode if is_sure or old is None else join(old, mode))
