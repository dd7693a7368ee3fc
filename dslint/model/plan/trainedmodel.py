"""The model that a script hands to the Trainer of transformers, where its config certainly names no hidden size.

``HfTrainerDeepSpeedConfig.trainer_config_finalize`` looks for ``hidden_size``, ``hidden_sizes`` and the same in
``text_config``. Configs that are made of others (an encoder and a decoder) have neither, nor do models of one's own.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from dslint.core.source import Location
from dslint.model.plan.pyscript import PyScript
from dslint.model.trlclasses import PLAIN_TRAINERS

# How the names of classes begin whose configs have none of them: transformers 5.23, each config class made and asked
# (tests/model/test_trained_model.py).
WITHOUT_SIZE = (
    *("EncoderDecoder", "VisionEncoderDecoder", "SpeechEncoderDecoder", "Rag", "Bark", "Musicgen", "Perceiver"),
    *("EfficientNet", "MobileNetV1", "MobileNetV2", "MobileViTV2", "Cvt", "SwiftFormer", "TimmWrapper", "Sam"),
    *("Qwen2_5Omni", "Qwen3OmniMoe", "ColPali", "ColQwen2", "ParakeetCTC"),
)
# What follows in the name of the whole model: parts of it have configs of their own.
_WHOLE = (
    *("Model", "ForConditionalGeneration", "ForCausalLM", "ForImageClassification", "ForRetrieval", "ForCTC"),
    *("SequenceForGeneration", "TokenForGeneration", "ForMaskedLM", "ForSequenceClassification"),
)
_CLASSES = frozenset(f"{name}{end}" for name in WITHOUT_SIZE for end in _WHOLE)
_MAKES = frozenset({"from_pretrained", "from_config", "from_encoder_decoder_pretrained", "_from_config"})


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """``name`` is the class of the model; ``is_own``: it is defined in the script and has no ``config`` at all."""

    name: str
    is_own: bool
    location: Location


def model_without_size(script: PyScript) -> TrainedModel | None:
    """The model of the one Trainer of the script, when nothing in the script gives its config a hidden size."""
    trainers = [call for name, call in script.called if name in PLAIN_TRAINERS]
    if len(trainers) != 1 or "hidden_size" in script.source.text:
        return None
    node = next((k.value for k in trainers[0].keywords if k.arg == "model"), None)
    node = node if node is not None or not trainers[0].args else trainers[0].args[0]
    made = script.resolved(node) if node is not None else None
    if not isinstance(made, ast.Call):
        return None
    first, _, rest = script.qualified(made.func).partition(".")
    names = rest.split(".")
    if first == "transformers":
        name = names[-2] if names[-1] in _MAKES and len(names) > 1 else names[-1]
        return TrainedModel(name, False, script.location(made, "the model")) if name in _CLASSES else None
    own = script.classes.get(first) if not rest else None
    return TrainedModel(first, True, script.location(made, "the model")) if own and _is_plain(script, own) else None


def _is_plain(script: PyScript, owner: ast.ClassDef) -> bool:
    """A ``torch.nn.Module`` and nothing else, that sets no ``config`` and makes up no attributes."""
    if not owner.bases or any(script.qualified(base) != "torch.nn.Module" for base in owner.bases) or owner.keywords:
        return False
    if owner.decorator_list or any(name.endswith(".config") for name in script.assigned_dotted):
        return False
    for node in ast.walk(owner):
        if isinstance(node, ast.Attribute) and node.attr == "config":
            return False
        if isinstance(node, ast.Name) and node.id in ("config", "setattr"):
            return False
        if isinstance(node, ast.FunctionDef) and node.name in ("config", "__getattr__", "__getattribute__"):
            return False
    return True
