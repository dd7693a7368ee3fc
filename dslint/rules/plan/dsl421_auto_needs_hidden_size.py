"""**What.** `reduce_bucket_size`, `stage3_prefetch_bucket_size` or `stage3_param_persistence_threshold` is `"auto"`,
and the model of the Trainer has no hidden size to work it out from: its config is made of two others
(`VisionEncoderDecoderModel`, `Qwen2_5OmniForConditionalGeneration`), or it is a `torch.nn.Module` without a `config`.

**Why it hurts.** `ValueError: The model's config file has neither hidden_size nor hidden_sizes entry`, on every rank,
in `train()`: after the job was queued and the model and the data were loaded. The stage does not matter: at stage 2
the `"auto"` of a stage 3 key stops the run, too.

**Fix.** Write numbers: `reduce_bucket_size` 5e8, `stage3_prefetch_bucket_size` 5e7,
`stage3_param_persistence_threshold` 1e5 are what DeepSpeed takes by itself; or delete the keys.

**When it stays quiet.** For a model that is not made in the script, or in one of several ways; where the script speaks
of a `hidden_size` (`model.config.hidden_size = ...`); with more than one Trainer; and for a Trainer of one's own.

**Evidence.** `HfTrainerDeepSpeedConfig.trainer_config_finalize`, run with transformers 5.23. A test makes the config of
each class that the rule knows and asks it. A checkpoint may state more than its class does: there it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.recipe import starts
from dslint.model.plan.runplan import RunPlan
from dslint.model.plan.trainedmodel import SIZES
from dslint.parse.data import dotted_key
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL421",
    name="auto-needs-hidden-size",
    kind="plan",
    severity=Severity.ERROR,
    summary='`"auto"` sizes of ZeRO for a model whose config has no hidden size',
    depends_on_run=True,
    needs=("config",),
    references=("https://huggingface.co/docs/transformers/deepspeed",),
)

_SCRIPT = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments, VisionEncoderDecoderModel

parser = HfArgumentParser(TrainingArguments)
(training_args,) = parser.parse_args_into_dataclasses()
model = VisionEncoderDecoderModel.from_pretrained("microsoft/trocr-base-stage1")
trainer = Trainer(model=model, args=training_args)
trainer.train()
"""
_OWN = _SCRIPT.replace(", VisionEncoderDecoderModel", "").replace(
    'model = VisionEncoderDecoderModel.from_pretrained("microsoft/trocr-base-stage1")\n',
    """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x, labels):
        return {"loss": (self.layer(x) - labels).pow(2).mean()}


model = Net()
""",
)
_OWN = f"from torch import nn\n{_OWN}"
_CONFIG = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {
    "stage": 2,
    "reduce_bucket_size": "auto"
  }
}
"""
_RUN = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --output_dir out\n"
_FILES = {"run.sh": _RUN, "ds.json": _CONFIG, "train.py": _SCRIPT}

EXAMPLES = (
    bad("an encoder and a decoder", _FILES, "ds.json:5 warning"),
    bad("a module without a config", {**_FILES, "train.py": _OWN}, "ds.json:5 error"),
    bad("a key of stage 3", {
        **_FILES, "ds.json": _CONFIG.replace("reduce_bucket_size", "stage3_param_persistence_threshold"),
    }, "ds.json:5 warning"),
    good("numbers", {**_FILES, "ds.json": _CONFIG.replace('size": "auto"', 'size": 5e8')}),
    good("a model with a hidden size", {
        **_FILES, "train.py": _SCRIPT.replace("VisionEncoderDecoderModel", "AutoModel"),
    }),
    good("a part of such a model", {
        **_FILES,
        "train.py": _SCRIPT.replace("VisionEncoderDecoderModel", "Qwen2_5OmniThinkerForConditionalGeneration"),
    }),
    good("the script gives it one", {
        **_FILES, "train.py": _SCRIPT.replace("trainer = ", "model.config.hidden_size = 768\ntrainer = "),
    }),
    good("a module with a config", {
        **_FILES,
        "train.py": _OWN.replace("def __init__(self)", "def __init__(self, config)")
        .replace("        self.layer", "        self.config = config\n        self.layer")
        .replace("Net()", "Net(load_config())"),
    }),
    good("a model from elsewhere", {**_FILES, "train.py": _OWN.replace("model = Net()", "model = build_model(Net)")}),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Sizes that the Trainer cannot fill in."""
    doc, model = plan.config, plan.trained
    if doc is None or model is None or plan.consumer.get_or("") != "hf" or plan.config_is_rewritten:
        return
    left = [pointer for pointer in SIZES if doc.get(pointer) == "auto"]
    if not left:
        return
    keys = " and ".join(f"`{dotted_key(pointer)}`" for pointer in left)
    lacks = "has no `config`" if model.is_own else "has no `hidden_size`"
    yield META.finding(
        doc.value(left[0]),
        f'{keys} {"is" if len(left) == 1 else "are"} `"auto"`, but `{model.name}` {lacks}: the Trainer stops',
        hint="Write a number, or delete the key",
        related=(model.location, starts(plan.command)),
        severity=Severity.WARNING if plan.command.in_docs or not model.is_own else None,
        pointer=left[0],
        facts={"consumer": "hf", "model": model.name, "own": model.is_own},
    )
