"""Models that libraries run: on own batches of each rank, by patched functions, and past their wrapper."""

from __future__ import annotations

import ast

from dslint.python import attributes
from dslint.python.binding import Arguments
from dslint.python.events import Event
from dslint.python.joins import join
from dslint.python.libraries import Row
from dslint.python.machine import Machine
from dslint.python.values import NONE, Api, Atom, Bound, ClassAtom, Function, Instance, Value, one

_MODULE = "torch.nn.Module"
# Layers without parameters: whether they run concerns nobody.
_EMPTY = frozenset(
    {"ReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "Softmax", "LogSoftmax", "Dropout", "Identity", "Flatten", "Upsample"}
    | {"MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "AdaptiveAvgPool1d", "CrossEntropyLoss", "MSELoss", "BCELoss"}
    | {"BCEWithLogitsLoss", "L1Loss", "NLLLoss", "KLDivLoss", "SmoothL1Loss", "CosineSimilarity", "LeakyReLU", "ELU"}
)


def has_parameters(path: str) -> bool:
    """Return whether a layer of a library may have parameters."""
    return path.rpartition(".")[2] not in _EMPTY


def perhaps(value: Value) -> Value:
    """Return a value that is there for some batches only."""
    return join(value, NONE)


# -- functions that are patched into classes of libraries -------------------------------------------------------


def _cell(path: str, method: str) -> tuple[Api, str]:
    """Return where a patch is kept: classes of a library are told by their names, whatever module shows them."""
    root, _, name = path.partition(".")[0], "", path.rpartition(".")[2]
    return Api(f"{root}:{name}"), f"patched {method}"


def patch(m: Machine, path: str, method: str, value: Value) -> None:
    """Keep `transformers.SomeModel.forward = own_forward`."""
    if path.rpartition(".")[2][:1].isupper() and any(isinstance(a, Function) for a in value.atoms):
        m.store.set(_cell(path, method), value)


def patched(m: Machine, receiver: Atom | None, method: str) -> Value | None:
    """Return the function that the program has put in the place of a method, bound to the object."""
    if not isinstance(receiver, Instance) or not isinstance(receiver.cls, str) or not receiver.cls:
        return None
    stored = m.store.get(_cell(receiver.cls, method))
    return attributes.bound(m, stored, receiver) if stored is not None else None


# -- training by a library --------------------------------------------------------------------------------------


def train_on_batches(m: Machine, row: Row, receiver: Atom | None, node: ast.AST) -> None:
    """Run the model that a trainer trains, unless the program computes the loss itself."""
    from dslint.python.entries import open_arguments
    from dslint.python.invoke import call_value
    from dslint.python.loops import repeat

    field = row.extra.get("trains")
    if not field or not isinstance(receiver, Instance) or _computes_loss(m, receiver):
        return
    for atom in _atoms(m.store.get((receiver, str(field)))):
        for inner in _atoms(m.store.get((atom, "module"))):
            function = _forward_of(m, inner)
            if function is not None:
                given = open_arguments(m, function, True, of_batch=True)
                model = one(atom)
                repeat(m, node, lambda model=model, given=given: call_value(m, model, given, node))  # type: ignore[misc]
                m.alive = True


def _atoms(value: Value | None) -> list[Instance]:
    return [atom for atom in value.atoms if isinstance(atom, Instance)] if value is not None else []


def _computes_loss(m: Machine, receiver: Instance) -> bool:
    if not isinstance(receiver.cls, ClassAtom):
        return False
    own = (attributes.of_class(m, receiver.cls, name, receiver) for name in ("compute_loss", "training_step"))
    return any(isinstance(getattr(a, "function", None), Function) for value in own if value for a in value.atoms)


def _forward_of(m: Machine, model: Instance) -> Function | None:
    """Return the function of the project that runs a model."""
    found = (
        attributes.of_class(m, model.cls, "forward", model)
        if isinstance(model.cls, ClassAtom)
        else patched(m, model, "forward")
    )
    atom = found.single if found is not None else None
    return atom.function if isinstance(atom, Bound) and isinstance(atom.function, Function) else None


# -- models that run past their wrapper -------------------------------------------------------------------------

# Where the model inside keeps its wrapper; the tag of what is called on it past the wrapper.
_WRAPPED = "#wrapped"
INSIDE = "inside-forward"


def note_wrapper(m: Machine, inner: Value | None, wrapper: Instance) -> None:
    """Remember the wrapper of a model: from now on gradients are averaged where the wrapper runs it."""
    for atom in _atoms(inner):
        if atom is not wrapper:
            m.store.set((atom, _WRAPPED), one(wrapper))


def is_wrapped(m: Machine, model: Instance) -> bool:
    """Return whether a wrapper averages the gradients of a model."""
    return m.store.get((model, _WRAPPED)) is not None


def past_wrapper(m: Machine, atom: Instance, name: str, found: Value, arguments: Arguments, node: ast.AST) -> Value:
    """Note a call on the model inside a wrapper, and that its result comes from there; `name`: a method, or empty."""
    atom = _handed_through(m, atom, name) or atom
    stored = m.store.get((atom, _WRAPPED))
    if (
        stored is None
        or m.forwarding
        or not m.alive
        or (m.frame.receiver is not None and atom in m.frame.receiver.atoms)
    ):
        return found
    if name and name != "forward" and m.libraries.method(_MODULE, name) is not None:
        return found
    given = {str(at): value for at, value in enumerate(arguments.positional)} | arguments.keywords
    tags = frozenset({INSIDE})
    path = f"{_MODULE}.{name or 'forward'}"
    m.events.append(Event(path, tags, node, m.frame.module, one(atom), given, found, m.lanes, m.control))
    return found.with_(0, 0, frozenset((atom,)))


def _handed_through(m: Machine, atom: Instance, name: str) -> Instance | None:
    """Return the model inside a wrapper that hands out its members bare, where a call is for one of these."""
    row = m.libraries.class_(atom.cls) if name and isinstance(atom.cls, str) else None
    redirected = row.constructor.extra.get("redirected") if row is not None else None
    if row is None or redirected is None or name in redirected or m.libraries.method(row.path, name) is not None:
        return None
    inner = m.store.get((atom, "module"))
    found = inner.single if inner is not None else None
    return found if isinstance(found, Instance) else None
