"""**What.** `fsdp_transformer_layer_cls_to_wrap` names a class that the model does not have: that of another model
(`BertLayer` for an XLM-RoBERTa), or one with other capitals (`LLaMADecoderLayer`). It is read from the command,
the config of `accelerate launch` and the `--fsdp_config` of the Trainer.

**Why it hurts.** Every rank loads the model and stops: `Could not find the transformer layer class LLaMADecoderLayer
in the model`.

**Fix.** The class of the model's layers, best left to the library: without the key, transformers takes the classes
that a model names itself (`_no_split_modules`).

**When it stays quiet.** When the project defines the class, when the model is not known by the name of its
checkpoint, and for classes that no release of transformers knows in any spelling.

**Evidence.** accelerate 1.15 `get_module_class_from_name`, transformers 5 `modeling_*.py`: the table is made from
these sources.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL364",
    name="fsdp-layer-class-missing",
    kind="plan",
    severity=Severity.WARNING,
    summary="FSDP is told to wrap a class of layers that the model does not have",
    depends_on_run=True,
    no_experiment="it takes the weights of a model; the classes are read from the sources of transformers",
    references=(
        "https://huggingface.co/docs/transformers/fsdp",
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/dataclasses.py",
    ),
    needs=("layer_class",),
)

_RUN = (
    "torchrun --nproc_per_node=4 train.py --model_name_or_path %s --output_dir out \\\n"
    "  --fsdp 'full_shard auto_wrap' --fsdp_transformer_layer_cls_to_wrap %s\n"
)
_SCRIPT = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
"""
_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: %s
num_machines: 1
num_processes: 4
"""
_LOADS = """\
from accelerate import Accelerator
from transformers import AutoModel

MODEL = "FacebookAI/xlm-roberta-base"
model = Accelerator().prepare(AutoModel.from_pretrained(MODEL))
"""
_LAUNCH = "accelerate launch --config_file fsdp.yaml %strain.py\n"

EXAMPLES = (
    bad("other capitals", {"run.sh": _RUN % ("huggyllama/llama-7b", "LLaMADecoderLayer")}, "run.sh:2 warning"),
    bad("the class of another model", {"run.sh": _RUN % ("Qwen/Qwen2.5-7B-Instruct", "LlamaDecoderLayer")},
        "run.sh:2 warning"),
    bad("the config of accelerate launch", {
        "run.sh": _LAUNCH % "", "fsdp.yaml": _FILE % "BertLayer", "train.py": _LOADS,
    }, "fsdp.yaml:5 warning"),
    bad("a flag of accelerate launch", {
        "run.sh": "accelerate launch --use_fsdp --num_processes 2 --fsdp_transformer_layer_cls_to_wrap GPT2Block \\\n"
        "  train.py --model_name EleutherAI/pythia-1b\n",
        "train.py": "print()\n",
    }, "run.sh:1 warning"),
    bad("a copy of the documentation", {
        "run.sh": _LAUNCH.rstrip("\n") % "" + " --model_name_or_path THUDM/glm-4-9b-chat-hf\n",
        "fsdp.yaml": _FILE % "GPT2Block", "train.py": "print()\n",
    }, "fsdp.yaml:5 warning"),
    bad("a model whose code comes with the checkpoint", {
        "run.sh": _RUN % ("THUDM/chatglm3-6b", "GPT2Block"),
    }, "run.sh:2 warning"),
    bad("a name that another one contains", {
        "run.sh": _RUN % ("microsoft/deberta-v3-large", "BertLayer"),
    }, "run.sh:2 warning"),
    bad("the file of the Trainer", {
        "run.sh": "torchrun --nproc_per_node 2 train.py --model_name_or_path mistralai/Mistral-7B-v0.3 \\\n"
        "  --fsdp 'full_shard auto_wrap' --fsdp_config fsdp.json\n",
        "fsdp.json": '{\n  "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]\n}\n',
    }, "fsdp.json:2 warning"),
    good("the class of the model", {"run.sh": _RUN % ("meta-llama/Llama-2-7b-hf", "LlamaDecoderLayer")}),
    good("a model that is not known by its name", {"run.sh": _RUN % ("./checkpoints/mine", "LlamaDecoderLayer")}),
    good("the class that comes with the checkpoint", {
        "run.sh": _RUN % ("THUDM/glm-4-9b-chat", "GLMBlock"),
        "new.sh": _RUN % ("THUDM/glm-4-9b-chat-hf", "GlmDecoderLayer")}),
    good("a class that nobody knows", {"run.sh": _RUN % ("Qwen/Qwen2.5-7B", "MyOwnBlock")}),
    good("a class of the project", {
        "run.sh": _LAUNCH % "", "fsdp.yaml": _FILE % "BertLayer",
        "train.py": _LOADS + "\n\nclass BertLayer:\n    pass\n",
    }),
    good("the class of the checkpoint", {
        "run.sh": _LAUNCH % "", "fsdp.yaml": _FILE % "XLMRobertaLayer", "train.py": _LOADS,
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """A class that is none of the model's."""
    found = plan.layer_class
    if found is None:
        return
    one = f"`{found.meant[0]}`"
    message = (
        f"`{found.model}` has no `{found.name}`: FSDP does not find the class, and every rank stops"
        if found.model
        else f"transformers has no `{found.name}`, only {one}: FSDP does not find the class, and every rank stops"
    )
    yield META.finding(
        found.location,
        message,
        hint=f"Write {one}, or leave the key out: the library knows the layers of its models",
        related=(*found.places, plan.command.location.labelled("the command that starts this run")),
        severity=Severity.INFO if plan.command.in_docs and plan.accelerate is None else None,
        facts={"class": found.name},
    )
