"""ZeRO-3 without gathering the weights when the model is saved.

**What.** A stage-3 config in which `stage3_gather_16bit_weights_on_model_save` is missing or false, or `"auto"`, which
accelerate fills with `zero3_save_16bit_model`: false unless somebody sets it. DeepSpeed alone drops `"auto"`.

**Why it hurts.** At stage 3 every rank holds a part of each weight. `save_16bit_model` then returns False and writes
nothing; the transformers Trainer writes a partitioned checkpoint and no `model.safetensors`; accelerate raises
`Cannot get 16bit model weights`. It shows when the training has ended.

**Fix.** Set it to true; `--unsafe-fixes` does. Saving then needs memory for the whole model on rank 0.

**When it stays quiet.** Other stages. A warning where transformers
reads the config for training (a launch command says so, or a batch size, optimizer, scheduler or precision is left to
it as `"auto"`), else an information, because inference and benchmarks save nothing; an information also where a file of
accelerate names the config (`save_state` keeps the parts of each rank), where the
name of the file speaks of inference or evaluation, and for a dict of a script that is run, or of a test function, in
which nothing trains and nothing is saved. For `"auto"` it is an
information too: a command may pass `--zero3_save_16bit_model`.

**Evidence.** `DeepSpeedEngine.save_16bit_model` in `deepspeed/runtime/engine.py`;
https://github.com/huggingface/transformers/issues/20082, https://github.com/huggingface/transformers/pull/25817;
`"auto"`: `DeepSpeedPlugin.deepspeed_config_process` of accelerate 1.15, run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.config import flag, stage_of, trains_with_hf
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.model.edits import insert_member, replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL161",
    name="z3-gather-missing",
    kind="config",
    severity=Severity.WARNING,
    summary="A ZeRO-3 run that will save no usable weights",
    fix="unsafe",
    references=(
        "https://github.com/huggingface/transformers/issues/20082",
        "https://github.com/huggingface/transformers/pull/25817",
    ),
    depends_on_run=True,
)

_SECTION = "/zero_optimization"
_KEY = "stage3_gather_16bit_weights_on_model_save"
# The name without prefix and the old name mean the same to DeepSpeed.
_NAMES = tuple(
    f"{_SECTION}/{name}"
    for name in (_KEY, "gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save")
)

_SAVES = re.compile(r"save\w*\(|push_to_hub\(|state_dict\(|Trainer\(|\.train\(")
_RUNS_ONLY = re.compile(r"(?<![a-z])(infer|eval)", re.I)

_BARE = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {
    "stage": 3,
    "reduce_bucket_size": "auto"
  }
}
"""

_SCRIPT = """\
from transformers import AutoModel, TrainingArguments


def build(name):
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "train_batch_size": "auto",
        "zero_optimization": {"stage": 3},
    }
    kept = TrainingArguments(output_dir="out", deepspeed=config)
    model = AutoModel.from_pretrained(name)


if __name__ == "__main__":
    build("gpt2")
"""

EXAMPLES = (
    bad(
        "transformers will save no weights",
        {"zero3.json": _BARE},
        "zero3.json:4 warning",
        fixed={
            "zero3.json": _BARE.replace(
                '"auto"\n  }',
                '"auto",\n    "stage3_gather_16bit_weights_on_model_save": true\n  }',
            )
        },
    ),
    bad(
        "switched off",
        {"zero3.json": _BARE.replace('"auto"\n  }', f'"auto",\n    "{_KEY}": false\n  }}')},
        "zero3.json:6 warning",
    ),
    bad(
        "an inference config, perhaps",
        {"ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3}}\n'},
        "ds.json:1 info",
    ),
    bad(
        "a loop of the project under accelerate, which may save its state alone",
        {
            "zero3.json": _BARE,
            "zero3.yaml": "distributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\ndeepspeed_config:\n"
            "  deepspeed_config_file: zero3.json\n  zero3_init_flag: true\n",
        },
        "zero3.json:4 info",
    ),
    bad("by its name, no training", {"zero3_inference.json": _BARE}, "zero3_inference.json:4 info"),
    bad(
        "a script that only builds the model",
        {"tiny.py": _SCRIPT},
        "tiny.py:8 info",
    ),
    bad("a script that saves it", {"tiny.py": f"{_SCRIPT}    model.save_pretrained('out')\n"}, "tiny.py:8 warning"),
    bad("for scripts to import", {"tiny.py": _SCRIPT.partition("\n\n\nif")[0] + "\n"}, "tiny.py:8 warning"),
    bad(
        "a test that saves nothing, beside one that does",
        {
            "test_tiny.py": _SCRIPT.replace("def build", "def test_build")
            + "\n\ndef test_save(model):\n    model.save_model()\n"
        },
        "test_tiny.py:8 info",
    ),
    good("gathered", {"zero3.json": _BARE.replace('"auto"\n  }', f'"auto",\n    "{_KEY}": true\n  }}')}),
    good("stage 2 keeps whole weights", {"zero2.json": _BARE.replace('"stage": 3', '"stage": 2')}),
    bad(
        "accelerate fills in false",
        {"zero3.json": _BARE.replace('"auto"\n  }', f'"auto",\n    "{_KEY}": "auto"\n  }}')},
        "zero3.json:6 info",
        fixed={"zero3.json": _BARE.replace('"auto"\n  }', f'"auto",\n    "{_KEY}": true\n  }}')},
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Stage 3 and the switch, under any of its names."""
    if stage_of(doc).get_or(0) != 3:
        return
    gathered = flag(doc, _NAMES)
    pointer = next((name for name in _NAMES if doc.has(name)), None)
    is_auto = pointer is not None and doc.get(pointer) == "auto"
    if (gathered.is_unknown and not is_auto) or gathered.get_or(False):
        return
    edits = replace_value(doc, pointer, "true") if pointer else insert_member(doc, _SECTION, _KEY, "true")
    state = _state(view_of(doc, context)) if is_auto else "is false" if pointer else "is not set"
    # A file that says in its name that it only runs the model.
    runs_only = _RUNS_ONLY.search(doc.path.rpartition("/")[2]) is not None or not _may_save(doc)
    reader = context.consumer.get_or("")
    saved_by_library = not runs_only and reader != "accelerate" and (reader == "hf" or trains_with_hf(doc))
    loss = "the saved model has no usable weights"
    if reader == "accelerate":  # the loop is the project's own, and may save with `save_state` alone
        loss = "`accelerator.get_state_dict` and `save_model` raise an error"
    elif not saved_by_library:
        loss = "`save_16bit_model` writes nothing"
    message = f"`{_KEY}` {state} at ZeRO stage 3: {loss}"
    at = pointer or f"{_SECTION}/stage"
    yield META.finding(
        doc.value(at) if doc.has(at) else doc.value(_SECTION),
        message,
        hint=f"Set `{_KEY}` to true if this run saves its model: stage 3 splits every weight over the ranks",
        fix=Fix(f"Set `{_KEY}` to true", edits, Safety.UNSAFE) if edits else None,
        # A command may pass `--zero3_save_16bit_model`, a file of accelerate may say it.
        severity=Severity.WARNING if saved_by_library and not is_auto else Severity.INFO,
        pointer=pointer or f"{_SECTION}/stage",
        facts={"gather": False if pointer else None, "consumer": context.consumer.get_or(None)},
    )


def _state(view: ConfigView) -> str:
    if view.consumer in ("deepspeed", "lightning"):
        return 'is "auto" (false for DeepSpeed)'
    return 'is "auto" (false by default)'


def _may_save(doc: DataDoc) -> bool:
    """A dict in Python is for the script around it, in a test for the test function."""
    text = doc.source.text
    if not doc.path.endswith(".py"):
        return True
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    line = doc.value(_SECTION).region.line
    for node in ast.walk(tree):
        is_test = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test")
        if isinstance(node, ast.stmt) and is_test and node.lineno <= line <= (node.end_lineno or 0):
            return _SAVES.search(ast.get_source_segment(text, node) or text) is not None
    # A module may be there for scripts to import.
    return "__main__" not in text or _SAVES.search(text) is not None
