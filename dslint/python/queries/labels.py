"""What becomes of the batch keys that `label_names` lists: whether a Trainer evaluates, and what that does to them.

The Trainer pads every listed key and gathers it from all ranks in each evaluation step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

from dslint.core.finding import Severity
from dslint.python.libraries import libraries
from dslint.python.passed import passed
from dslint.python.queries.batchkeys import File, Produced
from dslint.python.source import Module

# Columns that `DataCollatorWithPadding` and `default_data_collator` rename to "labels".
_RENAMED = ("label", "label_ids")
_RENAMING = ("DataCollatorWithPadding", "default_data_collator", "DefaultDataCollator")
_PLAIN_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
_BROKEN = ("text", "dict", "list")
# Keys that models of transformers declare as labels themselves.
_OF_LABELS = ("start_positions", "end_positions")
Facts = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How sure the harm of a list of label names is, why, and where the code makes the keys.

    `facts` are what the experiment of the rule takes over.
    """

    severity: Severity
    why: str
    produced: tuple[Produced, ...]
    facts: Facts
    lost: str = ""

    def message(self, names: Sequence[str]) -> str:
        """Return the sentence of a finding about these names."""
        if self.lost:
            return f'`label_names` holds "{self.lost}", {self.why}: evaluation reports no `eval_loss` and no metrics'
        extra = extra_names(names)
        place = "besides" if len(extra) < len(names) else "in place of"
        listed = ", ".join(f'"{name}"' for name in extra)
        return f"`label_names` holds {listed} {place} the labels: {self.why}"


def extra_names(names: Iterable[str]) -> list[str]:
    """Return the names that are no labels."""
    return [name for name in names if "label" not in name and name not in _OF_LABELS]


class Evaluation:
    """What the Hugging Face Trainers of some modules evaluate, and how, as far as the calls there tell."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.files = [File(module) for module in modules]
        self._calls = [(file, call) for file in self.files for call in file.calls]

    def producers(self, key: str) -> list[Produced]:
        """Return all places that give a batch key its value."""
        return [produced for file in self.files for produced in file.producers(key)]

    def computes_metrics(self) -> bool:
        """Return whether a Trainer has `compute_metrics`, or `predict` is called, or the Trainer is made elsewhere."""
        made = self._made_with
        if made is None or self._is_any("predict"):
            return True
        return any(not _is_none(given.get("compute_metrics")) for given in made)

    def never_runs(self) -> bool:
        """Return whether every Trainer certainly gets no `eval_dataset`, and nothing evaluates by hand."""
        return (
            bool(self._made_with)
            and not self.is_called()
            and all(
                _is_none(given.get("eval_dataset"))
                and _is_none(given.get("compute_metrics"))
                # `Trainer(model)` alone may be used for anything.
                and {"eval_dataset", "train_dataset"} & given.keys()
                for given in self._made_with or ()
            )
        )

    def renames_labels(self) -> bool:
        """Return whether every Trainer certainly has a collator of transformers that renames `label` to `labels`."""
        made = self._trainers
        called = (libraries().canonical(file.names.qualified(call.func)) for file, call in made)
        if not all(path in _PLAIN_TRAINERS for path in called) or any(len(call.args) > 2 for _, call in made):
            return False
        found = self._made_with or ()
        return bool(found) and all(
            self._is_renaming(file, given.get("data_collator")) for (file, _), given in zip(made, found, strict=True)
        )

    def _is_renaming(self, file: File, collator: ast.expr | None) -> bool:
        if collator is None or _is_none(collator):
            return True
        name = file.names.qualified(collator.func if isinstance(collator, ast.Call) else collator)
        return name.startswith("transformers.") and name.endswith(_RENAMING)

    def is_called(self) -> bool:
        """Return whether the code calls `evaluate` or `predict` itself."""
        return self._is_any("evaluate", "predict")

    def is_replaced(self) -> bool:
        """Return whether a class has its own `prediction_step` and `evaluation_loop`."""
        for node in (node for file in self.files for node in file.nodes if isinstance(node, ast.ClassDef)):
            methods = {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef)}
            # `prediction_loop` is the name of older releases.
            if "prediction_step" in methods and {"evaluation_loop", "prediction_loop"} & methods:
                return True
        return False

    def sets_label_names(self) -> bool:
        """Return whether the code has `args.label_names = ...`: what a command says does not last."""
        assigned = (node for file in self.files for node in file.nodes if isinstance(node, ast.Assign))
        targets = (target for node in assigned for target in node.targets)
        return any(isinstance(target, ast.Attribute) and target.attr == "label_names" for target in targets)

    def _is_any(self, *called: str) -> bool:
        return any(file.names.called(call) in called for file, call in self._calls)

    @cached_property
    def _trainers(self) -> list[tuple[File, ast.Call]]:
        return [(file, call) for file, call in self._calls if file.names.called(call).endswith("Trainer")]

    @cached_property
    def _made_with(self) -> list[dict[str, ast.expr]] | None:
        """Return what each Trainer is made with; `None` when that is not certain."""
        found = [(file, passed(file.names, call)) for file, call in self._trainers]
        if not found or any(given.is_open for _, given in found):
            return None
        return [{name: file.names.behind(node) for name, node in given.named.items()} for file, given in found]


def judge(names: Sequence[str], evaluation: Evaluation) -> Verdict | None:
    """Return the verdict on label names; `None` when nothing is wrong or the code evaluates in its own way."""
    if evaluation.is_replaced():
        return None
    lost = _never_there(names, evaluation)
    extra = extra_names(names)
    if lost is not None or not extra:
        return lost
    found = [produced for name in extra for produced in evaluation.producers(name)]
    severity, why = _harm(found, evaluation)
    facts: Facts = {
        "key": extra[0],
        "kind": _kind(found),
        "conditional": any(produced.conditional for produced in found),
        "metrics": evaluation.computes_metrics(),
    }
    return Verdict(severity, why, tuple(found), facts)


def _never_there(names: Sequence[str], evaluation: Evaluation) -> Verdict | None:
    """Return the verdict on a name that no batch holds: misspelt, or the collator gives the column another name."""
    for name in names:
        near = "label" not in name and bool(get_close_matches(name.lower(), ["labels", "label"], 1, 0.75))
        if near and "labels" not in names and not evaluation.producers(name):
            where = "of this file" if len(evaluation.files) == 1 else "around it"
            why = f"which no code {where} makes (`labels`?)"
        elif name in _RENAMED and evaluation.renames_labels():
            why = "which the collators of transformers rename to `labels`"
        else:
            continue
        severity = Severity.INFO if evaluation.never_runs() else Severity.WARNING
        metrics = evaluation.computes_metrics()
        facts: Facts = {"key": name, "kind": "absent", "conditional": False, "metrics": metrics}
        return Verdict(severity, why, (), facts, name)
    return None


def _harm(found: Sequence[Produced], evaluation: Evaluation) -> tuple[Severity, str]:
    severity: Severity | None = None
    kind = _kind(found)
    if any(produced.conditional for produced in found):
        why = "only some batches have it, so the ranks hang in different gathers"
    elif kind in _BROKEN:
        why = f"evaluation gathers this {kind}, and raises or hangs"
    elif kind == "tensor":
        why, severity = "evaluation gathers it, which needs one shape on all ranks", Severity.INFO
    else:
        # Another file may make it as a tensor of fixed shape in every batch.
        why = "evaluation gathers it, which fails unless all ranks have one shape"
        severity = Severity.INFO
    if evaluation.never_runs():
        who = "this file passes" if len(evaluation.files) == 1 else "the code passes"
        return Severity.INFO, f"{why} ({who} no `eval_dataset`)"
    # Without metrics the Trainer keeps the loss only, and never gathers the labels in evaluate().
    return severity or (Severity.ERROR if evaluation.computes_metrics() else Severity.WARNING), why


def _kind(found: Sequence[Produced]) -> str | None:
    """Return what the key holds: the first kind that cannot be gathered, "tensor" when nothing else, else `None`."""
    broken = next((produced.kind for produced in found if produced.kind in _BROKEN), None)
    return broken or ("tensor" if found and all(produced.kind == "tensor" for produced in found) else None)


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
