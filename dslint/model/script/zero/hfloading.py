"""Calls that load a transformers model, and those after which transformers knows of ZeRO stage 3.

``from_pretrained`` and ``from_config`` partition the weights as they build the model when an ``HfDeepSpeedConfig`` of
stage 3 is alive (``is_deepspeed_zero3_enabled``). ``TrainingArguments`` make one of their ``deepspeed`` argument.
"""

from __future__ import annotations

import re
from itertools import takewhile

import libcst as cst

from dslint.model.script.dotted import dotted, last_name
from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.tree import Tree

HF_CONFIG = frozenset(
    {
        "transformers.integrations.HfDeepSpeedConfig",
        "transformers.integrations.deepspeed.HfDeepSpeedConfig",
        "transformers.deepspeed.HfDeepSpeedConfig",
    }
)
_LOADERS = frozenset({"from_pretrained", "from_config"})
# ``AutoModelForCausalLM``, ``LlamaForCausalLM``, ``T5Model``, ``BertLMHeadModel``.
_MODEL = re.compile(r"^[A-Z]\w*(?:Model|For[A-Z]\w*|LM)$")
_NO_MODEL = re.compile(r"Config|Tokenizer|Processor|Extractor|Pipeline|Scheduler|Peft|VLLM|Flax|TF[A-Z]")
_OTHER_LIBRARIES = ("diffusers.", "peft.", "optimum.", "sentence_transformers.", "vllm.", "open_clip.", "timm.")
_PARSERS = frozenset({"parse_args_into_dataclasses", "parse_args_and_config", "parse_dict", "parse_json_file"})


class HfLoading:
    """Loading calls of one module, and who tells transformers of DeepSpeed before them."""

    def __init__(self, tree: Tree, names: Names, objects: Objects) -> None:
        self._tree = tree
        self._names = names
        self._objects = objects
        self._told: dict[int, bool] = {}

    def is_load(self, call: cst.Call) -> bool:
        """``AutoModelForCausalLM.from_pretrained(...)`` and the like."""
        if not (isinstance(call.func, cst.Attribute) and call.func.attr.value in _LOADERS):
            return False
        owner = (self._names.qualified(call.func.value) or "").rpartition(".")[2] or last_name(call.func.value)
        name = self._names.qualified(call.func) or dotted(call.func) or ""
        return bool(_MODEL.match(owner)) and not _NO_MODEL.search(owner) and not name.startswith(_OTHER_LIBRARIES)

    def is_hf_config(self, call: cst.Call) -> bool:
        """``HfDeepSpeedConfig(...)``."""
        return self._names.qualified(call.func) in HF_CONFIG

    def is_teller(self, call: cst.Call) -> bool:
        """After this call transformers knows the DeepSpeed config of the run, if there is one."""
        name = self._names.called(call)
        if name in _PARSERS or name == "Accelerator" or self.is_hf_config(call):
            return True
        return self._objects.kind(call) == "training_arguments"

    def is_told_before(self, call: cst.Call) -> bool:
        """A call of the same function, or of the module, may have told transformers before a call."""
        at, function = self._tree.position(call), self._tree.function(call)
        before = takewhile(lambda other: self._tree.position(other) < at, self._tree.every(cst.Call))
        return any(self._tree.function(t) in (function, None) and self._tells(t) for t in before)

    def _tells(self, call: cst.Call) -> bool:
        found = self._told.get(id(call))
        if found is None:
            found = self._told[id(call)] = self.is_teller(call)
        return found
