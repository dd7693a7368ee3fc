"""Models whose parameters are float16 while they are trained."""

from __future__ import annotations

import ast
import re

from dslint.python.events import Event
from dslint.python.values import Api, Instance, Value
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

_HALVES = frozenset({"torch.float16", "torch.half"})
_NAMES = ("torch_dtype", "dtype")
_WORDS = ("float16", "half", "torch.float16", "torch.half")
_QUANTIZED = ("quantization_config", "load_in_4bit", "load_in_8bit")
# Whatever may give the weights another type, keep them from training, or train others in their place.
ELSEWHERE = re.compile(
    r"\.float\(\)|float32|\bfp32\b|cast_training_params|upcast|requires_grad|get_peft_model|\bLora|add_adapter|"
    r"prepare_model_for|set_default_dtype|autocast_adapter|master_(?:params|weights)|FP16_Optimizer|\bapex\b|"
    r"FullyShardedDataParallel|\bFSDP\b|fully_shard|deepspeed\.initialize|load_in_[48]bit|BitsAndBytes"
)


def halved_by(run: RunQuery, model: Instance) -> tuple[Event, ast.AST] | None:
    """Return the call that makes the parameters of a model float16, with the word that says so."""
    for found in run.occurrences("casts", "moves-to-device"):
        event = found.event
        if event.may or model not in instances(event.receiver):
            continue
        if event.api.endswith(".half") or any(map(_is_half, event.arguments.values())):
            return event, event.node
    maker = run.makers.get(model)
    if maker is None or "loads" not in maker.tags or maker.open or any(name in maker.arguments for name in _QUANTIZED):
        return None
    name = next((name for name in _NAMES if name in maker.arguments), "")
    return (maker, maker.nodes.get(name, maker.node)) if _is_half(maker.arguments.get(name)) else None


def _is_half(value: Value | None) -> bool:
    if value is None:
        return False
    parts = [part for atom in value.atoms for part in getattr(atom, "items", ())]
    if parts:
        return any(map(_is_half, parts))
    atom = value.single
    is_word = value.constants is not None and len(value.constants) == 1 and value.constants[0] in _WORDS
    return is_word or (isinstance(atom, Api) and atom.path in _HALVES)
