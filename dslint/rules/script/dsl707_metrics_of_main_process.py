"""Only the main process has the metric by which a Trainer chooses the best checkpoint: the others raise `KeyError`.

**What.** An overridden `evaluate`, or `compute_metrics`, adds metrics under a test of the rank, or returns nothing on
the other ranks, and `metric_for_best_model` names one of them.

**Why it hurts.** After each evaluation the Trainer looks the metric up on every rank (`metrics["eval_f1"]`), to keep
the best checkpoint or to stop early. The ranks without it raise `KeyError`, and the launcher ends the job, at the end
of the first evaluation.

**Fix.** Compute the metrics on every rank, or send those of rank 0 to all of them:
`holder = [metrics]; dist.broadcast_object_list(holder, src=0)`.

**When it stays quiet.** No argument names a metric besides the loss; the function broadcasts; both arms of the test add
the metrics; one process.

**Evidence.** `Trainer._determine_best_metric` of transformers 5.24 reads `metrics[metric_to_check]` and raises
`KeyError` where it is missing; it runs on every rank.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.events import Alt, Call, Event, walk
from dslint.python.libraries import METRIC
from dslint.python.values import ClassAtom, Function, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL707",
    name="metrics-of-main-process",
    kind="script",
    severity=Severity.WARNING,
    summary="a Trainer chooses the best checkpoint by a metric that only the main process has: the others raise",
    markers=(r"Trainer", r"metric_for_best_model", r"def (?:evaluate|\w*compute\w*|\w*metric\w*)\("),
    references=("Trainer._determine_best_metric in transformers/trainer.py",),
    depends_on_run=True,
    no_experiment="a missing key of a dictionary raises in one process as well; the library looks it up on every rank",
)
_TRAINER = "transformers.Trainer"
_NAMES = ("metric_for_best_model", "load_best_model_at_end")
_LOSSES = frozenset({"loss", "eval_loss"})
_TELLS = re.compile(r"broadcast|bcast|all_gather|gather_object|all_reduce")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each test of the rank that decides which metrics an evaluation returns."""
    if run.context.is_one_process:
        return
    named = _naming(run)
    if named is None:
        return
    given = {node for h in run.happenings("trainer") for node in _functions(h.event.arguments.get("compute_metrics"))}
    seen: set[int] = set()
    for _, tree in run.trees():
        for call in walk(tree):
            function = call.function if isinstance(call, Call) else None
            if not isinstance(call, Call) or not isinstance(function, Function) or id(function.node) in seen:
                continue
            if function.node not in given and not _is_evaluation(run, function):
                continue
            seen.add(id(function.node))
            test = _deciding(call, function)
            if test is not None:
                yield run.finding(
                    META,
                    function.module,
                    test.test,
                    "Only some ranks return these metrics, and every rank looks up the one that chooses the checkpoint:"
                    " `KeyError`",
                    hint="Compute the metrics on every rank, or broadcast those of rank 0",
                    related=(run.location(named.module, named.node, "the metric chooses the checkpoints here"),),
                )


def _naming(run: RunQuery) -> Event | None:
    """Return the call that gets arguments of training by which every rank looks up a metric besides the loss."""
    for found in run.happenings("training-arguments"):
        if _looks_up(*(found.event.arguments.get(name) for name in _NAMES)):
            return found.event
    written: dict[str, Event] = {found.event.api.rpartition(".")[2]: found.event for found in run.occurrences(METRIC)}
    if _looks_up(*(written[name].arguments["value"] if name in written else None for name in _NAMES)):
        return written[_NAMES[0]]
    return None


def _looks_up(metric: Value | None, load: Value | None) -> bool:
    names = metric.constants if metric is not None else None
    is_named = bool(names) and all(isinstance(name, str) and name not in _LOSSES for name in names or ())
    return is_named and load is not None and load.constants == (True,)


def _functions(value: Value | None) -> Iterator[ast.AST]:
    for atom in value.atoms if value is not None else ():
        function = atom if isinstance(atom, Function) else getattr(atom, "function", None)
        if isinstance(function, Function):
            yield function.node


def _is_evaluation(run: RunQuery, function: Function) -> bool:
    """Return whether a function overrides `evaluate` of a Trainer."""
    if function.name != "evaluate" or not isinstance(function.owner, ClassAtom):
        return False
    orders = [attributes.lineage(run.machine, cls) for cls in attributes.descendants(run.machine, function.owner)]
    bases = [base for order in orders for base in order if isinstance(base, str)]
    return any(row.path == _TRAINER for base in bases for row in run.machine.libraries.lineage(base))


def _deciding(call: Call, function: Function) -> ast.If | None:
    """Return the test of the rank on one side of which the result gets metrics, or is left empty."""
    body = function.node
    if isinstance(body, ast.Lambda) or _TELLS.search(function.module.text(body)):
        return None
    own = {id(node) for node in ast.walk(body)}
    returned = {name for node in ast.walk(body) if isinstance(node, ast.Return) for name in _names(node.value)}
    begun = _begun_empty(body)
    for node in walk(call.body):
        test = node.node if isinstance(node, Alt) and node.then_lanes != node.else_lanes else None
        if isinstance(test, ast.If) and id(test) in own:
            if _fills(test.body, returned, begun) != _fills(test.orelse, returned, begun):
                return test
            if _is_empty(test.body) != _is_empty(test.orelse):
                return test
    return None


def _begun_empty(body: ast.AST) -> set[str]:
    """Return the variables that begin as an empty dictionary."""
    given = (node for node in ast.walk(body) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict))
    return {name for node in given if not node.value.keys for name in _names(node.targets[0])}  # type: ignore[attr-defined]


def _names(value: ast.expr | None) -> list[str]:
    return [value.id] if isinstance(value, ast.Name) else []


def _fills(arm: Sequence[ast.stmt], names: set[str], begun: set[str]) -> bool:
    """Return whether statements put something under a key of a variable, or more than nothing into it."""
    for node in (node for statement in arm for node in ast.walk(statement)):
        target: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
            target = node.func.value
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitOr):
            target = node.target
        elif isinstance(node, ast.Assign) and begun.intersection(_names(node.targets[0])):
            target = node.targets[0]
        if names.intersection(_names(target)):
            return True
    return False


def _is_empty(arm: Sequence[ast.stmt]) -> bool:
    """Return whether an arm returns nothing, or an empty dictionary."""
    last = arm[-1] if arm else None
    if not isinstance(last, ast.Return):
        return False
    value = last.value
    is_none = value is None or (isinstance(value, ast.Constant) and value.value is None)
    return is_none or (isinstance(value, ast.Dict) and not value.keys)


_SCRIPT = """\
import torch.distributed as dist
from datasets import load_dataset
from transformers import AutoModelForQuestionAnswering, Trainer, TrainingArguments


def score(predictions):
    return {"f1": float(predictions.mean())}


class SpanTrainer(Trainer):
    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
        loader = self.get_eval_dataloader(eval_dataset)
        output = self.evaluation_loop(loader, description="Evaluation", metric_key_prefix=metric_key_prefix)
        metrics = dict(output.metrics)
%s
        self.log(metrics)
        return metrics


def main():
    args = TrainingArguments(
        "out", eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="%s"
    )
    data = load_dataset("squad")
    model = AutoModelForQuestionAnswering.from_pretrained("bert-base-cased")
    SpanTrainer(model=model, args=args, train_dataset=data["train"], eval_dataset=data["validation"]).train()


if __name__ == "__main__":
    main()
"""
_MAIN = """\
        if self.is_world_process_zero():
            metrics.update({f"{metric_key_prefix}_{k}": v for k, v in score(output.predictions).items()})"""
_KEY = """\
        if self.args.process_index != 0:
            self.log(metrics)
        else:
            metrics["eval_f1"] = score(output.predictions)["f1"]"""
_EMPTY = """\
        if not self.accelerator.is_main_process:
            return {}
        metrics["eval_f1"] = score(output.predictions)["f1"]"""
_SEARCH = """\
        if self.is_world_process_zero():
            metrics = {"eval_f1": score(output.predictions)["f1"]}"""
_WRITTEN = "    args.load_best_model_at_end = True\n    args.metric_for_best_model = 'f1'\n"
_TOLD = (
    _MAIN
    + """
        holder = [metrics]
        dist.broadcast_object_list(holder, src=0)
        metrics = holder[0]"""
)
_ALL = """\
        metrics["eval_f1"] = score(output.predictions)["f1"]
        if self.is_world_process_zero():
            print(metrics)"""
_FUNCTION = """\
import torch.distributed as dist
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments


def compute_metrics(output):
    if dist.get_rank() != 0:
        return {}
    return {"accuracy": (output.predictions.argmax(-1) == output.label_ids).mean()}


def main():
    args = TrainingArguments("out", load_best_model_at_end=True, metric_for_best_model="accuracy")
    data = load_dataset("imdb")
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-cased")
    sets = {"train_dataset": data["train"], "eval_dataset": data["test"]}
    Trainer(model, args, compute_metrics=compute_metrics, **sets).train()


if __name__ == "__main__":
    main()
"""


def _script(lines: str, metric: str = "f1") -> dict[str, str]:
    return {"train.py": _SCRIPT % (lines, metric)}


EXAMPLES = (
    bad("the main process adds them", _script(_MAIN), "train.py:15"),
    bad("one key, in the other arm", _script(_KEY), "train.py:15"),
    bad("the others return nothing", _script(_EMPTY), "train.py:15"),
    bad(
        "nothing but what the main process has",
        {
            "train.py": (_SCRIPT % (_SEARCH, "f1"))
            .replace("dict(output.metrics)", "{}")
            .replace(', load_best_model_at_end=True, metric_for_best_model="f1"', "")
            .replace("    data = load", f"{_WRITTEN}    data = load")
        },
        "train.py:15",
    ),
    bad("in compute_metrics", {"train.py": _FUNCTION}, "train.py:7"),
    good("they are told to the others", _script(_TOLD)),
    good("every rank has them", _script(_ALL)),
    good("the loss decides", _script(_MAIN, "loss")),
)
