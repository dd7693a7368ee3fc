"""**What.** `label_names` of a Hugging Face Trainer names a batch key besides the labels, such as `"metadata"`.

**Why it hurts.** With more than one name the labels of an evaluation step become a tuple, and every tensor in it is
padded (in dimension 1 only) and gathered from all ranks. A key that holds text or dicts raises `TypeError: Unsupported
types (<class 'str'>) passed to _pad_across_processes`. A key that is missing on one rank, or whose shapes differ
between ranks, makes the ranks gather different things: NCCL waits forever, gloo aborts with a size mismatch. The
evaluation that worked on one GPU never returns on eight. A key that no batch holds is worse than an error: `eval_loss`
and the metrics vanish from the results, and nothing says so.

**Fix.** Keep `label_names=["labels"]`. Carry metadata to `compute_metrics` through `include_for_metrics=["inputs"]`, or
as an integer id tensor of fixed shape that is looked up afterwards.

**When it stays quiet.** `["labels"]`, `[]`, names that contain "label" and `["start_positions", "end_positions"]`
(what models declare themselves), `x or ["labels"]`; a value that cannot be read; a Trainer subclass that overrides
both `prediction_step` and `evaluation_loop` (`prediction_loop`). Who makes the key is read in the file of the names,
and in those of the Trainers, their collators and data sets. A misspelt name (`"lables"`) is reported when nothing there
makes such a key; `"label"` when the collator is one of transformers, which renames it. A key made as a tensor in every
batch is only a note, and so is one that nothing there makes. It is an error when the key is made as text, dict or list,
or only in some batches, and metrics are computed. Trainers that get no `eval_dataset` are worth a note.

**Evidence.** Issue https://github.com/deepspeedai/DeepSpeed/issues/6680. transformers 5.23 `Trainer.prediction_step`
(`nested_detach(tuple(inputs.get(name) for name in self.label_names))`), `evaluation_loop`, accelerate 1.15
`pad_across_processes`. Two gloo ranks: text or dict of text raises on both ranks; absent on one rank or ragged in
dimension 2 aborts one rank, the other loses its peer; a fixed-shape tensor works.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.queries.labels import judge
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.givenlabels import GivenLabels

META = RuleMeta(
    code="DSL203",
    name="trainer-extra-label-name",
    kind="script",
    severity=Severity.WARNING,
    summary="`label_names` holds a key besides the labels: evaluation gathers it from all ranks",
    markers=(r"label_names", r"transformers|trl|Trainer|TrainingArguments"),
    alone=(r"label_names",),
    versions=("transformers>=4.0",),
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/6680",
        "https://github.com/huggingface/transformers/issues/24589",
    ),
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Report label names that an evaluation cannot gather, at the place that gives them."""
    labels = GivenLabels(run)
    for given in labels.every():
        verdict = judge(given.names, labels.evaluation(given.module))
        if verdict is not None:
            made = tuple(run.location(p.module, p.node, p.label) for p in verdict.produced)
            yield run.finding(
                META,
                given.module,
                given.node,
                verdict.message(given.names),
                severity=verdict.severity,
                related=(*given.made, *made),
                hint='Keep `label_names=["labels"]` and pass metadata through `include_for_metrics=["inputs"]` or as '
                "an id tensor of fixed shape",
                facts=verdict.facts,
            )


_COLLATOR = (
    "def collate(features):\n"
    "    batch = {'labels': [f['labels'] for f in features]}\n"
    "    batch['metadata'] = [{'id': f['id']} for f in features]\n"
    "    return batch\n\n\n"
)

EXAMPLES = (
    bad(
        "metadata as a list of dicts, with metrics",
        {
            "train.py": (
                "from transformers import Trainer, TrainingArguments\n\n\n" + _COLLATOR + "args = TrainingArguments(\n"
                "    output_dir='out',\n"
                "    label_names=['labels', 'metadata'],\n"
                ")\n"
                "trainer = Trainer(model=None, args=args, data_collator=collate, compute_metrics=print)\n"
            )
        },
        at="train.py:12 error",
    ),
    bad(
        "nobody knows what the key holds",
        {
            "train.py": (
                "from transformers import TrainingArguments\n\n"
                "training_args = TrainingArguments('out')\n"
                "training_args.label_names = ['labels', 'metadata']\n"
                "setattr(training_args, 'label_names', ['labels', 'source'])\n"
            )
        },
        at=("train.py:4 info", "train.py:5 info"),
    ),
    bad(
        "a subclass adds a name",
        {
            "trainer.py": (
                "from transformers import Trainer\n\n\nclass EvalTrainer(Trainer):\n"
                "    def __init__(self, *args, **kwargs):\n"
                "        super().__init__(*args, **kwargs)\n"
                "        self.label_names += ['image_id']\n"
            )
        },
        at="trainer.py:7 info",
    ),
    bad(
        "the default of a field",
        {
            "arguments.py": (
                "from dataclasses import dataclass, field\n\nimport transformers\n\n\n@dataclass\n"
                "class TrainingArguments(transformers.TrainingArguments):\n"
                "    label_names: list[str] = field(default_factory=lambda: ['labels', 'metadata'])\n"
            )
        },
        at="arguments.py:8 info",
    ),
    bad(
        "a tensor of fixed shape in every batch: a note",
        {
            "train.py": (
                "import torch\nfrom transformers import TrainingArguments\n\n\n"
                "def collate(features):\n"
                "    return {'labels': torch.zeros(2), 'sample_id': torch.tensor([f['id'] for f in features])}\n\n\n"
                "args = TrainingArguments('out', label_names=['labels', 'sample_id'])\n"
            )
        },
        at="train.py:9 info",
    ),
    bad(
        "a misspelt name, and one that the collator renames",
        {
            "train.py": (
                "from transformers import DataCollatorWithPadding, Trainer, TrainingArguments\n\n"
                "args = TrainingArguments('out', label_names=['lables'])\n\n\n"
                "def run(model, tokenizer, data):\n"
                "    args = TrainingArguments('out', label_names=['label'])\n"
                "    collator = DataCollatorWithPadding(tokenizer)\n"
                "    return Trainer(model=model, args=args, data_collator=collator, eval_dataset=data)\n"
            )
        },
        at=("train.py:3 warning", "train.py:7 warning"),
    ),
    bad(
        "only samples that have the key give it to the batch",
        {
            "train.py": (
                "import torch\nfrom transformers import Trainer\nfrom trl import SFTConfig\n\n\n"
                "def collate(features):\n"
                "    batch = {'labels': torch.zeros(2)}\n"
                "    if 'ids' in features[0]:\n"
                "        batch.update({'ids': torch.tensor([f['ids'] for f in features])})\n"
                "    return batch\n\n\n"
                "args = SFTConfig('out', label_names=['labels', 'ids'])\n"
                "trainer = Trainer(model=None, args=args, data_collator=collate, compute_metrics=print)\n"
            )
        },
        at="train.py:13 error",
    ),
    bad(
        "arguments, collator and Trainer in files of their own",
        {
            "arguments.py": (
                "from transformers import TrainingArguments\n\n\n"
                "def build(out):\n    return TrainingArguments(out, label_names=['labels', 'metadata'])\n"
            ),
            "data.py": _COLLATOR,
            "train.py": (
                "from transformers import Trainer\n\nfrom arguments import build\nfrom data import collate\n\n"
                "trainer = Trainer(model=None, args=build('out'), data_collator=collate, compute_metrics=print)\n"
            ),
        },
        at="arguments.py:5 error",
    ),
    good(
        "a batch key called `label`, made by the project's own collator",
        {
            "train.py": (
                "import torch\nfrom transformers import Trainer, TrainingArguments\n\n\n"
                "def collate(features):\n    return {'label': torch.tensor([f['label'] for f in features])}\n\n\n"
                "def run(model, data):\n    args = TrainingArguments('out', label_names=['label'])\n"
                "    return Trainer(model=model, args=args, data_collator=collate, eval_dataset=data)\n"
            )
        },
    ),
    good(
        "the labels only",
        {
            "train.py": (
                "from transformers import TrainingArguments\n\n"
                "args = TrainingArguments('out', label_names=['labels'])\n"
                "args.label_names = args.label_names or ['labels']\n"
            )
        },
    ),
    good(
        "what a question answering model declares, and none on purpose",
        {
            "train.py": (
                "from transformers import Trainer, TrainingArguments\n\n"
                "args = TrainingArguments('out', label_names=['start_positions', 'end_positions'])\n\n\n"
                "class RewardTrainer(Trainer):\n"
                "    def prepare(self):\n"
                "        self.label_names = []\n"
            )
        },
    ),
    good(
        "a trainer with its own evaluation loop",
        {
            "trainer.py": (
                "from transformers import Trainer\n\n\nclass OwnTrainer(Trainer):\n"
                "    def setup(self):\n"
                "        self.label_names = ['labels', 'metadata']\n\n"
                "    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):\n"
                "        return None, None, None\n\n"
                "    def evaluation_loop(self, dataloader, description, **kwargs):\n"
                "        return None\n"
            ),
            "older.py": (
                "from transformers import Trainer\n\n\nclass OwnTrainer(Trainer):\n"
                "    def __init__(self, **kwargs):\n        super().__init__(**kwargs)\n"
                "        self.label_names.append('relations')\n\n"
                "    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):\n"
                "        return model(**inputs), None\n\n"
                "    def prediction_loop(self, dataloader, description, **kwargs):\n"
                "        return None\n"
            ),
        },
    ),
    good(
        "objects of another kind",
        {
            "viz.py": (
                "from plots import PlotConfig\n\n\ndef draw(axes, Trainer):\n"
                "    axes.label_names = ['epoch', 'loss']\n    return PlotConfig(label_names=['epoch', 'loss'])\n"
            )
        },
    ),
)
