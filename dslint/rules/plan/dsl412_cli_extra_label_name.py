"""**What.** A launch command passes `--label_names` with a batch key besides the labels, such as `metadata`, to a
script that reads the arguments of the Hugging Face Trainer.

**Why it hurts.** The Trainer pads every listed key and gathers it from all ranks in each evaluation step. Text or
dicts raise `TypeError: Unsupported types (<class 'str'>) passed to _pad_across_processes`; a key that one rank lacks,
or whose shapes differ, makes the ranks wait for each other forever. The evaluation that worked on one GPU never
returns on eight, and nothing in the script shows why: the name is on the command line.

**Fix.** Pass `--label_names labels`, or no such option. Carry metadata to `compute_metrics` through
`--include_for_metrics inputs`, or as an integer id tensor of fixed shape that is looked up afterwards.

**When it stays quiet.** Names that contain "label", `start_positions` and `end_positions`; names that cannot be read;
when the script is not in this project, does not read `TrainingArguments` through `HfArgumentParser`, or assigns
`label_names` itself; and with a Trainer subclass that overrides both `prediction_step` and `evaluation_loop`. It is a
note when the key is a tensor in every batch, or when the run certainly never evaluates. In documentation it weighs one
step less.

**Evidence.** Issue https://github.com/deepspeedai/DeepSpeed/issues/6680, and what DSL203 cites: the same keys named in
Python. Two gloo ranks, transformers 5.23: with `--label_names labels metadata` and dicts of text both ranks raise the
`TypeError` in the first evaluation; with `--label_names labels` the same run ends well.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL412",
    name="cli-extra-label-name",
    kind="plan",
    severity=Severity.WARNING,
    summary="`--label_names` passes a key besides the labels: evaluation gathers it from all ranks",
    versions=("transformers>=4.0",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/6680",),
    depends_on_run=True,
    needs=("labels",),
)

_SCRIPT = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments


def collate(features):
    batch = {"labels": [f["labels"] for f in features]}
    batch["metadata"] = [{"id": f["id"]} for f in features]
    return batch


def main(data):
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    trainer = Trainer(
        None, args, data_collator=collate, eval_dataset=data, compute_metrics=print
    )
    trainer.train()
"""
_RUN = """\
torchrun --nproc_per_node 8 train.py \\
    --output_dir out \\
    --eval_strategy steps \\
    --label_names labels metadata
"""
_TENSOR = _SCRIPT.replace('[{"id": f["id"]} for f in features]', 'torch.tensor([f["id"] for f in features])')

_OWN = """

class OwnTrainer(Trainer):
    def prediction_step(self, *args, **kwargs):
        return None, None, None

    def evaluation_loop(self, *args, **kwargs):
        return None
"""

EXAMPLES = (
    bad("metadata is a list of dicts", {"run.sh": _RUN, "train.py": _SCRIPT}, "run.sh:4 error"),
    bad("the script does not show what the key holds", {
        "run.sh": _RUN,
        "train.py": _SCRIPT.replace("metadata", "ids"),
    }, "run.sh:4 info"),
    bad("in documentation", {
        "README.md": f"# Train\n\n```bash\n{_RUN}```\n",
        "train.py": _SCRIPT,
    }, "README.md:7 warning"),
    bad("a tensor in every batch: a note", {"run.sh": _RUN, "train.py": "import torch\n" + _TENSOR}, "run.sh:4 info"),
    bad("a run without evaluation: a note", {
        "run.sh": _RUN.replace("    --eval_strategy steps \\\n", ""),
        "train.py": _SCRIPT,
    }, "run.sh:3 info"),
    good("the labels only", {"run.sh": _RUN.replace(" metadata", ""), "train.py": _SCRIPT}),
    good("what a question answering model declares", {
        "run.sh": _RUN.replace("labels metadata", "start_positions end_positions"),
        "train.py": _SCRIPT,
    }),
    good("names from elsewhere", {"run.sh": _RUN.replace("labels metadata", "$NAMES"), "train.py": _SCRIPT}),
    good("the script decides", {
        "run.sh": _RUN,
        "train.py": _SCRIPT.replace("    trainer = ", '    args.label_names = ["labels"]\n    trainer = '),
    }),
    good("an option of another program", {
        "run.sh": "torchrun --nproc_per_node 8 draw.py --label_names epoch loss\n",
        "draw.py": "import argparse\n\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("--label_names", nargs="+")\nprint(parser.parse_args())\n',
    }),
    good("a trainer with its own evaluation", {
        "run.sh": _RUN,
        "train.py": _SCRIPT.replace("trainer = Trainer(", "trainer = OwnTrainer(")
        + _OWN,
    }),
)  # fmt: skip

_HINT = (
    "Pass `--label_names labels` and carry metadata through `--include_for_metrics inputs` or as an id tensor of fixed"
    " shape"
)
_LOWER = {Severity.ERROR: Severity.WARNING, Severity.WARNING: Severity.INFO, Severity.INFO: Severity.INFO}


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Report label names on the command line that the Trainer cannot gather."""
    labels = plan.labels
    if labels is None:
        return
    severity = labels.verdict.severity
    yield META.finding(
        labels.location,
        labels.verdict.message(labels.names),
        hint=_HINT,
        related=labels.made,
        severity=_LOWER[severity] if plan.command.in_docs else severity,
        facts=labels.verdict.facts,
    )
