"""Parameters of models that ZeRO stage 3 spreads over the ranks: whose they are, and which hold no numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from dslint.python.attributes import is_instance_of
from dslint.python.source import Module
from dslint.python.values import ClassAtom, Instance, Value
from dslint.rules.runs import Happening
from dslint.rules.zero.zero3 import Spread, is_applied, is_inside_init

_PARAMETER = "torch.nn.Parameter"
_TABLE = "transformers.EmbeddingLayer"
_NAMES = frozenset({"weight", "bias"})
# After `deepspeed.initialize` small weights are whole again (`stage3_param_persistence_threshold`, 100,000 numbers):
# heads with few classes, norms, biases. These layers are large in every model worth stage 3.
_LARGE = re.compile(r"embed|wte|wpe|lm_head|[qkvo]_proj|qkv|gate_proj|up_proj|down_proj|c_attn|c_proj|c_fc|fc[12]|mlp")
# What an Accelerator prepares of which nobody knows the class: only a model has parameters.
_NO_MODEL = re.compile(r"optim|sched|load|data|sampler|tokenizer", re.I)
_OF_TRAINER = frozenset({"model", "model_wrapped", "deepspeed"})

# What spreads a parameter: a call, or the class of a Trainer.
Place = tuple[Module, ast.AST]


@dataclass(frozen=True, slots=True)
class _Holder:
    """What has an object among its parts, and the names on the way to that; one of all parameters has none."""

    atom: Instance
    names: tuple[str, ...] = ()
    is_one_of_all: bool = False


class SpreadParameters:
    """Answers for one entry of a script, at the moment to which `spread` has been read."""

    def __init__(self, spread: Spread) -> None:
        self.spread = spread

    def of_parameter(self, found: Happening, value: Value | None, text: str) -> Place | None:
        """Return what spread the parameter that a value certainly is; `text` is the code that names it."""
        if is_inside_init(found) and ((text.startswith("self.") and text.count(".") == 1) or is_applied(found)):
            return None
        return _of_all(value, lambda atom: self._of_parameter(atom, text)) or self._applied(found, value)

    def of_module(self, value: Value | None, text: str) -> Place | None:
        """Return what spread the parameters of the module that a value certainly is."""
        return _of_all(value, lambda atom: self._of_module(atom, text))

    def _of_module(self, atom: Instance, text: str) -> Place | None:
        if not atom.cls and _NO_MODEL.search(text.rpartition(".")[2]):
            return None
        found = (self._by(holder) for holder in self._above(atom))
        return next((place for place in found if place is not None), None)

    def _applied(self, found: Happening, value: Value | None) -> Place | None:
        """Return what spread the model whose `apply` has called the function where something happens."""
        tensor = value.single if value is not None else None
        if not is_applied(found) or not isinstance(tensor, Instance) or self._field(tensor)[1] not in _NAMES:
            return None
        owners = (owner for call in found.calls for owner in self.spread.owners.get(id(call.node), ()))
        since = next((self.spread.since[owner] for owner in owners if owner in self.spread.since), None)
        return (since.module, since.node) if since is not None else None

    def _of_parameter(self, atom: Instance, text: str) -> Place | None:
        tensor, name = atom, self._field(atom)[1]
        while name == "data":
            tensor = self._field(tensor)[0] or tensor
            name = self._field(tensor)[1]
        if tensor.cls != _PARAMETER and name not in _NAMES:
            return None
        for holder in self._above(tensor):
            place = self._by(holder)
            if place is not None:
                is_spread = holder.is_one_of_all or not self._is_engine(holder)
                return place if is_spread or _is_large(holder, text) else None
        return None

    def _by(self, holder: _Holder) -> Place | None:
        event = self.spread.engines.get(holder.atom) or self.spread.since.get(holder.atom)
        if event is not None:
            return event.module, event.node
        cls = holder.atom.cls
        is_own = isinstance(cls, ClassAtom) and bool(holder.names) and holder.names[0] in _OF_TRAINER
        if (
            isinstance(cls, ClassAtom)
            and is_own
            and is_instance_of(self.spread.run.machine, cls, "transformers.Trainer")
        ):
            return cls.module, cls.node
        return None

    def _is_engine(self, holder: _Holder) -> bool:
        since = self.spread.since.get(holder.atom)
        return since is None or "makes-engine" in since.tags or holder.atom in self.spread.engines

    def _above(self, atom: Instance) -> Iterator[_Holder]:
        """Yield an object and all of which it is a part, nearest first."""
        pending, seen = [_Holder(atom)], set[Instance]()
        while pending:
            below = pending.pop(0)
            if below.atom in seen:
                continue
            seen.add(below.atom)
            yield below
            is_one = below.is_one_of_all or below.atom.cls == _PARAMETER
            holder, name = self._field(below.atom)
            whole = self.spread.run.machine.parts.get(below.atom)
            if holder is not None:
                pending.append(_Holder(holder, (name, *below.names, *_words(holder)), below.is_one_of_all))
            elif whole is not None:
                pending.append(_Holder(whole, below.names, below.is_one_of_all))
            else:
                given = self.spread.owners.get(id(below.atom.node), ())
                pending += [_Holder(owner, below.names, is_one) for owner in given]

    def _field(self, atom: Instance) -> tuple[Instance | None, str]:
        """Return of which object something is a field, and the name; a field that has been set is none."""
        holder, name = self._fields.get(atom.context, (None, ""))
        return holder, name.rpartition(".")[2]

    @cached_property
    def _fields(self) -> dict[int, tuple[Instance, str]]:
        return self.spread.run.machine.fields()


def _of_all(value: Value | None, of: Callable[[Instance], Place | None]) -> Place | None:
    """Return what is found for each object that a value may be, and for nothing else."""
    atoms = [atom for atom in value.atoms if isinstance(atom, Instance)] if value is not None else []
    found = [of(atom) for atom in atoms]
    return found[0] if found and value is not None and len(found) == len(value.atoms) and None not in found else None


def _words(layer: Instance) -> tuple[str, ...]:
    return ("embeddings",) if layer.cls == _TABLE else ()


def _is_large(holder: _Holder, text: str) -> bool:
    return "bias" not in holder.names and _LARGE.search(".".join((*holder.names, text))) is not None
