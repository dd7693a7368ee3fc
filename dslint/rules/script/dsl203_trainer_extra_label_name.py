"""**What.** `label_names` of a Hugging Face Trainer names a batch key besides the labels, such as `"metadata"`.

**Why it hurts.** With more than one name the labels of an evaluation step become a tuple, and every tensor in it is
padded (in dimension 1 only) and gathered from all ranks. A key that holds text or dicts raises `TypeError: Unsupported
types (<class 'str'>) passed to _pad_across_processes`. A key that is missing on one rank, or whose shapes differ
between ranks, makes the ranks gather different things: NCCL waits for ever, gloo aborts with a size mismatch. The
evaluation that worked on one GPU never returns on eight. A key that no batch holds is worse than an error: `eval_loss`
and the metrics vanish from the results, and nothing says so.

**Fix.** Keep `label_names=["labels"]`. Carry metadata to `compute_metrics` through `include_for_metrics=["inputs"]`, or
as an integer id tensor of fixed shape that is looked up afterwards.

**When it stays quiet.** `["labels"]`, `[]`, names that contain "label" and `["start_positions", "end_positions"]`
(what models declare themselves), `x or ["labels"]`; a value that cannot be read; a Trainer subclass that overrides
both `prediction_step` and `evaluation_loop` (`prediction_loop`). A misspelt name (`"lables"`) is reported when no
code of the file makes such a key; `"label"` when the collator is one of transformers, which renames it. A key made as
a tensor in every batch is only a note, and so is one that no code of the file makes. It is an error when the file
makes the key as text, dict or list, or only in some batches, and metrics are computed. A file whose Trainer gets no
`eval_dataset` has a note.

**Evidence.** Issue https://github.com/deepspeedai/DeepSpeed/issues/6680. transformers 5.23 `Trainer.prediction_step`
(`nested_detach(tuple(inputs.get(name) for name in self.label_names))`), `evaluation_loop`, accelerate 1.15
`pad_across_processes`. Two gloo ranks: text or dict of text raises on both ranks; absent on one rank or ragged in
dimension 2 aborts one rank, the other loses its peer; a fixed-shape tensor works.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.data.evaluation import Evaluation
from dslint.model.script.data.labels import item_of
from dslint.model.script.data.labeluse import judge, place_label
from dslint.model.script.dotted import is_self, last_name
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL203",
    name="trainer-extra-label-name",
    kind="script",
    severity=Severity.WARNING,
    summary="`label_names` holds a key besides the labels: evaluation gathers it from all ranks",
    markers=(r"label_names", r"transformers|trl|Trainer|TrainingArguments"),
    versions=("transformers>=4.0",),
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/6680",
        "https://github.com/huggingface/transformers/issues/24589",
    ),
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


class Check(ScriptCheck):
    """Looks at every way in which `label_names` gets a value."""

    def start(self) -> None:
        """One view of the Trainers of the file."""
        self._evaluation = Evaluation(self.ctx.tree, self.ctx.names)

    def visit_Call(self, node: cst.Call) -> None:
        """`TrainingArguments(label_names=[...])` and `args.label_names.append("x")`."""
        if self._makes_arguments(node):
            for value in self._passed(node):
                self._judge(value)
        if self._sets_attribute(node):
            self._judge(node.args[2].value)
        func = node.func
        grows = isinstance(func, cst.Attribute) and func.attr.value in ("append", "extend") and node.args
        if grows and isinstance(func, cst.Attribute) and self._is_label_names(func.value):
            self._judge(node.args[0].value)

    def visit_Assign(self, node: cst.Assign) -> None:
        """`args.label_names = [...]`."""
        if any(self._is_label_names(t.target) for t in node.targets):
            self._judge(node.value)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        """A field of a subclass of `TrainingArguments`: `label_names: list[str] = field(default_factory=...)`."""
        owner = self.ctx.enclosing_class(node)
        is_field = isinstance(node.target, cst.Name) and node.target.value == "label_names" and owner is not None
        if is_field and owner is not None and node.value is not None:
            if any(b.endswith("TrainingArguments") for b in self.ctx.class_bases(owner.name.value)):
                self._judge(self._default(node.value))
        elif self._is_label_names(node.target) and node.value is not None:
            self._judge(node.value)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        """`self.label_names += [...]`."""
        if self._is_label_names(node.target):
            self._judge(node.value)

    def _passed(self, call: cst.Call) -> Iterator[cst.BaseExpression]:
        """`label_names=...` of the call itself, or of a dictionary that it unpacks."""
        for arg in call.args:
            if arg.keyword is not None and arg.keyword.value == "label_names":
                yield arg.value
            elif arg.star == "**":
                inner = self.ctx.names.single_value(arg.value) or arg.value
                yield from (p for p in [item_of(inner, "label_names")] if p is not None)

    def _makes_arguments(self, call: cst.Call) -> bool:
        """`TrainingArguments(...)`, a config of TRL, or a copy; other classes have other label names."""
        name = self.ctx.called(call)
        if name.endswith("TrainingArguments"):
            return True
        if not name.endswith(("Config", "Arguments")) and name != "replace":
            return False
        full = self.ctx.qualified_name(call.func)
        bases = self.ctx.class_bases(name) if full is None and isinstance(call.func, cst.Name) else []
        if any(base.endswith("TrainingArguments") or base.startswith("trl.") for base in bases):
            return True
        if full == "dataclasses.replace":
            return bool(call.args) and self._holds_label_names(call.args[0].value)
        return full is not None and full.startswith(("transformers.", "trl."))

    def _sets_attribute(self, call: cst.Call) -> bool:
        """`setattr(args, "label_names", [...])`."""
        if self.ctx.qualified_name(call.func) != "setattr" or len(call.args) != 3:
            return False
        name = self.ctx.constant(call.args[1].value).get_or(None)
        return name == "label_names" and self._holds_label_names(call.args[0].value)

    def _is_label_names(self, target: cst.CSTNode) -> bool:
        """`x.label_names` where x is the Trainer itself or its arguments."""
        if not isinstance(target, cst.Attribute) or target.attr.value != "label_names":
            return False
        return self._holds_label_names(target.value)

    def _holds_label_names(self, node: cst.BaseExpression) -> bool:
        """The expression is a Trainer or its arguments."""
        own = isinstance(node, cst.Attribute) and is_self(node.value) and node.attr.value == "args"
        if is_self(node) or own:
            owner = self.ctx.enclosing_class(node)
            return owner is not None and self._is_trainer(owner)
        if self.ctx.kind(node) in ("training_arguments", "trainer"):
            return True
        return last_name(node).lower() in ("training_args", "train_args", "trainer", "targs")

    def _is_trainer(self, owner: cst.ClassDef) -> bool:
        return any(b.endswith("Trainer") for b in self.ctx.class_bases(owner.name.value))

    def _default(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """What `field(default_factory=lambda: [...])` makes; other values are themselves."""
        if isinstance(value, cst.Call) and self.ctx.called(value) == "field":
            factory = self.ctx.argument(value, "default_factory")
            if isinstance(factory, cst.Lambda):
                return factory.body
        return value

    def _judge(self, value: cst.BaseExpression) -> None:
        names = self._names(value)
        verdict = judge(names, self.ctx.tree, self.ctx.names, self._evaluation)
        if verdict is not None:
            self.report(
                value,
                verdict.message(names),
                severity=verdict.severity,
                related=tuple(self.ctx.location(p.node, place_label(p)) for p in verdict.produced),
                hint='Keep `label_names=["labels"]` and pass metadata through `include_for_metrics=["inputs"]` or as '
                "an id tensor of fixed shape",
                facts=verdict.facts,
            )

    def _names(self, value: cst.BaseExpression) -> list[str]:
        """The names that are certainly in the value: of a list, of one appended text, of each part of a sum."""
        if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add):
            return [*self._names(value.left), *self._names(value.right)]
        if isinstance(value, cst.Name):
            value = self.ctx.names.single_value(value) or value
        if isinstance(value, cst.SimpleString):
            elements: list[cst.BaseExpression] = [value]
        elif isinstance(value, cst.List | cst.Tuple):
            elements = [e.value for e in value.elements]
        else:
            return []
        texts = [self.ctx.constant(e).get_or(None) for e in elements]
        return [t for t in texts if isinstance(t, str)]
