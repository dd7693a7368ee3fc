"""The Trainer is told to evaluate during training, and it is given nothing to evaluate on.

**What.** `eval_strategy` (`evaluation_strategy` in older releases) is `steps` or `epoch`, in the code or in a launch
command, and the Trainer certainly gets no `eval_dataset`: the argument is left out, or is `None`. The usual case is a
data module that returns `eval_dataset=None`. The same of `trainer.evaluate()` without a data set of its own.

**Why it hurts.** Up to transformers 4.45 every rank raises `Trainer: evaluation requires an eval_dataset` at the first
evaluation, and that comes before the checkpoint of the same step is written: what was trained until then is lost.
Later releases refuse when the Trainer is made, after all ranks have loaded the model.

**Fix.** Pass an `eval_dataset`, or leave the strategy at `no`.

**When it stays quiet.** The strategy or the data set is not certain; the project gives the Trainer its evaluation data
in another way: `get_eval_dataloader` or `evaluate` is overridden, or `trainer.eval_dataset` is set.

**Evidence.** `Trainer.__init__` and `Trainer.get_eval_dataloader` of transformers 5.23.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Alt, Event
from dslint.python.source import Module
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import written
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL700",
    name="evaluation-without-data",
    kind="script",
    severity=Severity.WARNING,
    summary="the Trainer evaluates during training and has no `eval_dataset`: every rank stops at the first evaluation",
    markers=(r"Trainer", r"TrainingArguments|Config|HfArgumentParser|Arguments"),
    versions=("transformers",),
    references=(
        "https://github.com/huggingface/transformers/pull/33743",
        "https://github.com/tatsu-lab/stanford_alpaca/issues/214",
        "Trainer.get_eval_dataloader in transformers/trainer.py",
    ),
    depends_on_run=True,
    no_experiment="the Trainer raises in one process as it does in several",
)
_STRATEGIES = ("eval_strategy", "evaluation_strategy")
_DATA = "eval_dataset"
_TRAINER = "transformers.Trainer"
_ON = re.compile(r"(?:\w*Strategy\.)?(?i:steps|epoch)")
# Other ways by which a Trainer comes to evaluation data.
_OTHERWISE = re.compile(
    r"def (?:get_eval_dataloader|evaluate|evaluation_loop|_maybe_log_save_evaluate)\b|trainer\w*\.eval_dataset\s*=[^=]"
    r"|class \w+\([^)\n]*Trainer[^)\n]*\):[\s\S]*\bself\.eval_dataset\s*=[^=]"
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each Trainer that will evaluate and has no data for it."""
    seen: set[int] = set()
    made = list(run.occurrences("trainer"))
    # A method may be interpreted by itself, before another one has loaded the data.
    given = {id(found.event.node) for found in made if not _lacks_data(run, found.event)}
    for found in made:
        module, node = _place(found)
        if id(found.event.node) in given or id(node) in seen or _has_otherwise(run):
            continue
        told = _strategy(run, found.event) or _called(run, found.event)
        if told is not None:
            seen.add(id(node))
            yield _finding(run, found.event, module, node, *told)


def _place(found: Happening) -> tuple[Module, ast.AST]:
    """Return the call that makes a Trainer: of a class of the project not its `super().__init__`."""
    module, node = found.event.module, found.event.node
    for call in reversed(found.calls):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "__init__":
            break
        module, node = call.module, call.node
    return module, node


def _lacks_data(run: RunQuery, event: Event) -> bool:
    """Return whether a Trainer of transformers certainly gets no data to evaluate on."""
    if event.open or event.may or not run.machine.libraries.is_class(event.api, _TRAINER):
        return False
    given = event.arguments.get(_DATA)
    return given is None or given.constants == (None,)


def _has_otherwise(run: RunQuery) -> bool:
    """Return whether some code gives a Trainer its evaluation data in another way."""
    return any(module.search(_OTHERWISE) for module in run.machine.program.modules())


def _strategy(run: RunQuery, trainer: Event) -> tuple[str, tuple[Location, ...]] | None:
    """Return how the arguments of a Trainer say that it evaluates, and where."""
    made = [run.makers.get(atom) for atom in instances(trainer.arguments.get("args"))]
    told = made[0] if len(made) == 1 else None
    if told is None or told.may or not told.tags & {"training-arguments", "parses-arguments"}:
        return None
    for name in _STRATEGIES:
        word, node = _word(told, name)
        if _ON.fullmatch(word):
            return f"`{name}={word}`", (run.location(told.module, node),)
        if "parses-arguments" in told.tags:
            passed = run.context.arguments.get(name)
            if passed is not None and passed.is_known and _ON.fullmatch(str(passed.value)):
                return f"`--{name} {passed.value}`", passed.origins[:2]
    return None


def _word(told: Event, name: str) -> tuple[str, ast.AST]:
    """Return the strategy that a call states, also under a name that newer releases do not have, and its place."""
    value = told.arguments.get(name)
    words = value.constants if value is not None else None
    if words is not None:
        return str(words[0]) if len(words) == 1 else "", told.nodes.get(name, told.node)
    given = told.node.keywords if isinstance(told.node, ast.Call) else []
    node = next((keyword.value for keyword in given if keyword.arg == name), told.node)
    if isinstance(node, ast.Constant):
        return str(node.value), node
    return ast.unparse(node) if isinstance(node, ast.Attribute) else "", node


def _called(run: RunQuery, trainer: Event) -> tuple[str, tuple[Location, ...]] | None:
    """Return the call `trainer.evaluate()` that every run comes to."""
    mine = {atom for atom in instances(trainer.result) if isinstance(atom, Instance)}
    for found in run.happenings("trainer-evaluate"):
        event = found.event
        given = event.arguments.get(_DATA)
        is_bare = given is None or given.constants == (None,)
        if is_bare and not event.open and not event.may and mine & {*instances(event.receiver)} and _is_sure(found):
            return "`evaluate()`", (run.location(event.module, event.node, "evaluates here"),)
    return None


def _is_sure(found: Happening) -> bool:
    """Return whether no test decides whether the call is made."""
    return not any(isinstance(node, Alt) and node.then_lanes & node.else_lanes for node in found.around)


def _finding(
    run: RunQuery, event: Event, module: Module, node: ast.AST, asked: str, places: tuple[Location, ...]
) -> Finding:
    data = event.nodes.get(_DATA)
    nothing = [n for n in written(event, data) if isinstance(n, ast.Constant) and n.value is None] if data else []
    return run.finding(
        META,
        module,
        node,
        f"{asked} asks this Trainer to evaluate, but it has no `eval_dataset`: every rank raises `ValueError`",
        hint="Pass an `eval_dataset`, or do not evaluate during training",
        related=(*places, *(run.location(event.module, n, "no data to evaluate on") for n in nothing[:1])),
    )


_TRAIN = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def main(train, test):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    args = TrainingArguments("out", %s)
    trainer = Trainer(model=model, args=args, train_dataset=train%s)
    trainer.train()
"""
_MODULE = """\
from dataclasses import dataclass, field

import transformers
from transformers import Trainer


@dataclass
class DataArguments:
    data_path: str = field(default=None)


def make_module(data_args):
    train = [{"labels": data_args.data_path}]
    return dict(train_dataset=train, eval_dataset=%s)


def main():
    parser = transformers.HfArgumentParser((DataArguments, transformers.TrainingArguments))
    data_args, training_args = parser.parse_args_into_dataclasses()
    model = transformers.AutoModelForCausalLM.from_pretrained("gpt2")
    trainer = Trainer(model=model, args=training_args, **make_module(data_args))
    trainer.train()


main()
"""
_RUN = "torchrun --nproc_per_node 4 train.py --output_dir out --data_path a.json --%s\n"
_CLASS = """\
from trl import SFTConfig, SFTTrainer


class Mine(SFTTrainer):
    def __init__(self, *args, scale=1.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.scale = scale

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return self.scale * model(**inputs).loss


def main(data):
    config = SFTConfig("out", eval_strategy="epoch", deepspeed="ds.json")
    parts = data.train_test_split(0.1)
    trainer = Mine(model="gpt2", args=config, train_dataset=parts["train"]%s)
    trainer.train()
"""
_METHODS = """\
from datasets import load_dataset
from transformers import Trainer, TrainingArguments


class Aligner:
    def __init__(self, path):
        self.path = path
        self.test = None

    def make(self, model):
        args = TrainingArguments("out", eval_strategy="steps", eval_steps=100)
        return Trainer(model, args=args, train_dataset=load_dataset("json")["train"], eval_dataset=self.test or None)

    def load(self):
        if self.path:
            self.test = load_dataset("json", data_files=self.path)["train"]

    def align(self, model):
        self.load()
        self.make(model).train()
"""
_END = """\
import torch.distributed as dist
from transformers import Trainer, TrainingArguments


def main(model, train, test):
    trainer = Trainer(model=model, args=TrainingArguments("out"), train_dataset=train)
    trainer.train()
    metrics = trainer.evaluate(%s)
    if dist.get_rank() == 0:
        print(metrics)
"""

EXAMPLES = (
    bad("each epoch", {"train.py": _TRAIN % ('eval_strategy="epoch"', "")}, "train.py:7 warning"),
    bad("the older name", {"train.py": _TRAIN % ('evaluation_strategy="steps", eval_steps=100', ", eval_dataset=None")},
        "train.py:7"),
    bad("a data module without it, and a command that asks",
        {"train.py": _MODULE % "None", "run.sh": _RUN % "eval_strategy steps"}, "train.py:21"),
    bad("a trainer of the project", {"train.py": _CLASS % ""}, "train.py:16"),
    bad("at the end of the script", {"train.py": _END % ""}, "train.py:6"),
    good("at the end of the script, with data", {"train.py": _END % "test"}),
    good("data are there", {"train.py": _TRAIN % ('eval_strategy="epoch"', ", eval_dataset=test")}),
    good("no evaluation", {"train.py": _TRAIN % ('eval_strategy="no"', "")}),
    good("the command does not ask", {"train.py": _MODULE % "None", "run.sh": _RUN % "eval_strategy no"}),
    good("a data module with data", {"train.py": _MODULE % "train", "run.sh": _RUN % "eval_strategy steps"}),
    good("a trainer of the project with data", {"train.py": _CLASS % ', eval_dataset=parts["test"]'}),
    good("another method loads the data", {"train.py": _METHODS}),
    good("data that are set afterwards", {"train.py": (_TRAIN % ('eval_strategy="epoch"', "")).replace(
        "    trainer.train()", "    trainer.eval_dataset = test\n    trainer.train()")}),
)  # fmt: skip
