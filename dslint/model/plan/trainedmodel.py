"""The model that a script hands to the Trainer of transformers, where its config certainly names no hidden size.

``HfTrainerDeepSpeedConfig.trainer_config_finalize`` looks for ``hidden_size``, ``hidden_sizes`` and the same in
``text_config``. Configs that are made of others (an encoder and a decoder) have neither, nor do models of one's own.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from dslint.core.source import Location, SourceFile
from dslint.model.plan.questions import TRAINERS, trainer_question
from dslint.model.plan.scriptrun import ScriptRun, script_run
from dslint.model.workspace import Workspace
from dslint.python.attributes import bases
from dslint.python.values import ClassAtom, Instance

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
# Keys of a config that the Trainer fills in from the hidden size.
SIZES = (
    "/zero_optimization/reduce_bucket_size",
    "/zero_optimization/stage3_prefetch_bucket_size",
    "/zero_optimization/stage3_param_persistence_threshold",
)
_WORTH_READING = re.compile(rf"\bModule\b|\b(?:{'|'.join(WITHOUT_SIZE)})")
_SETS_CONFIG = re.compile(r"\.config\s*=[^=]")


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """``name`` is the class of the model; ``is_own``: it is defined in the script and has no ``config`` at all."""

    name: str
    is_own: bool
    location: Location


def model_without_size(source: SourceFile, workspace: Workspace) -> TrainedModel | None:
    """The model of the one Trainer of a script, when nothing in the script gives its config a hidden size."""
    run = script_run(source.path, workspace, trainer_question()) if _WORTH_READING.search(source.text) else None
    return _model(run) if run is not None else None


def _model(run: ScriptRun) -> TrainedModel | None:
    trainers = [event for api in TRAINERS for events in run.calls(api) for event in events]
    event = trainers[0] if len(trainers) == 1 else None
    value = event.arguments.get("model") if event is not None else None
    model = value.single if value is not None else None
    if event is None or not isinstance(model, Instance) or "hidden_size" in event.module.source.text:
        return None
    place = run.made(value, event, "the model")
    if isinstance(model.cls, ClassAtom):
        return TrainedModel(model.cls.node.name, True, place) if _is_plain(run, model.cls) else None
    library, _, rest = model.cls.partition(".")
    name = rest.rpartition(".")[2]
    return TrainedModel(name, False, place) if library == "transformers" and name in _CLASSES else None


def _is_plain(run: ScriptRun, own: ClassAtom) -> bool:
    """A ``torch.nn.Module`` and nothing else, that sets no ``config`` and makes up no attributes."""
    texts = {event.module.source.text for event in run.all_events} | {own.module.source.text}
    if bases(run.analysis.machine, own) != ["torch.nn.Module"] or own.node.keywords or own.node.decorator_list:
        return False
    if "hidden_size" in own.module.source.text or any(_SETS_CONFIG.search(text) for text in texts):
        return False
    for node in ast.walk(own.node):
        if isinstance(node, ast.Attribute) and node.attr == "config":
            return False
        if isinstance(node, ast.Name) and node.id in ("config", "setattr"):
            return False
        if isinstance(node, ast.FunctionDef) and node.name in ("config", "__getattr__", "__getattribute__"):
            return False
    return True
