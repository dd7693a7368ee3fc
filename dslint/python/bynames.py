"""What the names say that everybody gives to things: a loader yields each rank's own items, an optimizer steps."""

from __future__ import annotations

import ast
import re

from dslint.python import ranknames
from dslint.python.binding import Arguments
from dslint.python.events import Event
from dslint.python.heap import CONTENT, LENGTH
from dslint.python.libraries import Row
from dslint.python.machine import Machine
from dslint.python.source import Module
from dslint.python.values import INPUT, LOST_VALUE, Instance, Unknown, Value, one
from dslint.python.varies import DATA, NAMED_DATA

# Loaders, whose items are each rank's own.
_LOADER = re.compile(r"(?:^|_)(?:data)?_?loader$|dataloader$|^(?:train|data)_?iter(?:ator)?$")

# Optimizers, and what steps them.
_OPTIMIZER = re.compile(r"optim|^opt$|_opt$|^opt_", re.I)
_SCALER = re.compile(r"scaler", re.I)


def note_step(m: Machine, name: str, arguments: Arguments, node: ast.AST) -> None:
    """Note that something of which nobody knows anything is stepped and is called an optimizer (`named-step`)."""
    function = node.func if isinstance(node, ast.Call) else None
    if name != "step" or not isinstance(function, ast.Attribute):
        return
    owner: ast.AST | None = function.value
    if _SCALER.search(_word(owner)):
        owner = arguments.nodes.get(0)
    if _OPTIMIZER.search(_word(owner)):
        event = Event("torch.optim.Optimizer.step", frozenset(("named-step",)), node, m.frame.module, None, {}, None,
                      m.lanes, m.control)  # fmt: skip
        m.events.append(event)


def _word(node: ast.AST | None) -> str:
    """Return the last name of an expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# What everybody calls the object of a library, with a word of modules in which the name means it.
_OBJECTS = (
    ("accelerator", "accelerate.Accelerator", re.compile(r"accelerat")),
    ("fabric", "lightning.Fabric", re.compile(r"(?:from|import) lightning")),
    ("strategy", "openrlhf.utils.DeepspeedStrategy", re.compile(r"(?:from|import) openrlhf")),
    ("model_engine", "deepspeed.DeepSpeedEngine", re.compile(r"deepspeed")),
    (
        "trainer",
        "transformers.Trainer",
        re.compile(r"(?:from|import) (?:transformers|trl)\b(?!.*lightning)", re.DOTALL),
    ),
)


def class_of(name: str, module: Module) -> str:
    """Return the class of a library whose objects everybody gives this name to; empty for other names."""
    return next((path for word, path, spoken in _OBJECTS if word == name and spoken.search(module.source.text)), "")


def names_loader(name: str) -> bool:
    """Return whether a parameter or variable is a loader by its name."""
    return _LOADER.search(name) is not None


def yields_own(m: Machine, loader: Instance, name: str, module: Module, node: ast.AST, place: ast.AST) -> None:
    """Let iteration over an object of which nobody knows anything give items of this rank; `place` names it."""
    item = m.instance(node, m.context(("item of parameter", name)), "")
    own = DATA | NAMED_DATA
    kinds = frozenset((Unknown(INPUT, f"item of `{name}`"),))
    m.store.set((item, CONTENT), Value(kinds, own, own, frozenset(), None, (module, place)))
    m.store.set((loader, "#yields"), one(item))


def assigned(m: Machine, name: str, value: Value, target: ast.AST) -> Value:
    """Return what a variable holds that is called a loader or a rank, where code without a model has made it."""
    ranked = ranknames.assigned(m, name, value, target)
    if ranked is not None:
        return ranked
    atom = value.single
    if not names_loader(name) or not isinstance(atom, Instance) or atom.cls:
        return value
    content = m.content(atom)
    unknown = [a for a in content.atoms if isinstance(a, Unknown) and a.kind != LOST_VALUE] if content else []
    if not unknown or m.store.get((atom, "#yields")) is not None or m.store.get((atom, LENGTH)) is not None:
        return value
    # One of several results stands for all of them: the others may be no loaders.
    made = m.thing(target, f"`{name}`, by its name", (value,), kind=unknown[0].kind)
    loader = made.single
    assert isinstance(loader, Instance)
    yields_own(m, loader, name, m.frame.module, target, target)
    return made


# Modules have them; of their state also optimizers and schedules, with the same meaning.
_STATE = frozenset({"load_state_dict", "state_dict", "parameters", "named_parameters"})
# Models of transformers alone have them.
_TABLES = frozenset({"get_input_embeddings", "get_output_embeddings"})


# What everybody calls a model of transformers.
_MODEL = re.compile(r"^[A-Z]\w*For[A-Z]\w*$")


def loader_of(m: Machine, owner: str, name: str) -> Row | None:
    """Return what loads a model of transformers whose class stands in a module that nobody has read."""
    is_named = name == "from_pretrained" and _MODEL.match(owner.rpartition(".")[2]) is not None
    is_one = is_named and owner.partition(".")[0] not in m.libraries.roots
    return m.libraries.method("transformers.PreTrainedModel", name) if is_one else None


# Tensors whose parts lie on several ranks have them alone.
_OF_SHARDS = frozenset({"full_tensor"})


def method_of(m: Machine, name: str) -> Row | None:
    """Return the method of a module, a tensor or a table that this name means on an object that nobody knows."""
    if name in _OF_SHARDS:
        kind = "torch.distributed.tensor.DTensor"
    elif name in _TABLES:
        kind = "transformers.PreTrainedModel"
    else:
        kind = "torch.nn.Module" if name in _STATE else "torch.Tensor"
    return m.libraries.method(kind, name) or m.libraries.method("pandas.core.generic.NDFrame", name)
