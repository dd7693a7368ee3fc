"""What the Hugging Face Trainers of a file evaluate, and how."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from dslint.model.script.dotted import is_none
from dslint.model.script.given import given
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree
from dslint.model.trlclasses import PLAIN_TRAINERS

_RENAMING = ("DataCollatorWithPadding", "default_data_collator", "DefaultDataCollator")


class Evaluation:
    """The evaluation of one module, as far as the calls in it tell."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names

    def computes_metrics(self) -> bool:
        """A Trainer of this file has `compute_metrics`, or `predict` is called, or the Trainer is made elsewhere."""
        passed = self._trainer_arguments
        if passed is None or any(self._names.called(n) == "predict" for n in self._calls()):
            return True
        return any(
            "compute_metrics" in arguments and not _is_none(arguments["compute_metrics"]) for arguments in passed
        )

    def never_runs(self) -> bool:
        """Every Trainer of this file certainly gets no `eval_dataset`, and nothing evaluates by hand."""
        passed = self._trainer_arguments
        if not passed or self.is_called():
            return False
        return all(
            _is_none(arguments.get("eval_dataset"))
            and _is_none(arguments.get("compute_metrics"))
            # ``Trainer(model)`` alone may be used for anything.
            and {"eval_dataset", "train_dataset"} & arguments.keys()
            for arguments in passed
        )

    def renames_labels(self) -> bool:
        """Every Trainer of this file certainly has a collator of transformers that renames `label` to `labels`."""
        made = [c for c in self._calls() if self._names.called(c).endswith("Trainer")]
        passed = self._trainer_arguments
        if not passed or any(self._names.qualified(c.func) not in PLAIN_TRAINERS for c in made):
            return False
        if any(sum(a.keyword is None for a in c.args) > 2 for c in made):
            return False
        return all(self._is_renaming(arguments.get("data_collator")) for arguments in passed)

    def _is_renaming(self, collator: cst.BaseExpression | None) -> bool:
        if _is_none(collator):
            return True
        called = collator.func if isinstance(collator, cst.Call) else collator
        name = self._names.qualified(called) or ""
        return name.startswith("transformers.") and name.endswith(_RENAMING)

    def is_called(self) -> bool:
        """The file calls `evaluate` or `predict` itself."""
        return any(self._names.called(n) in ("evaluate", "predict") for n in self._calls())

    def is_replaced(self) -> bool:
        """A class of this file has its own `prediction_step` and `evaluation_loop`."""
        for node in self._tree.every(cst.ClassDef):
            methods = {n.name.value for n in self._tree.descendants(node) if isinstance(n, cst.FunctionDef)}
            # ``prediction_loop`` is the name of older releases.
            if "prediction_step" in methods and {"evaluation_loop", "prediction_loop"} & methods:
                return True
        return False

    def _calls(self) -> Iterator[cst.Call]:
        return iter(self._tree.every(cst.Call))

    @cached_property
    def _trainer_arguments(self) -> list[dict[str, cst.BaseExpression]] | None:
        """What each Trainer of the file is made with; `None` when that is not certain."""
        trainers = [c for c in self._calls() if self._names.called(c).endswith("Trainer")]
        passed = [self._keywords(c) for c in trainers]
        known = [arguments for arguments in passed if arguments is not None]
        return known if known and len(known) == len(passed) else None

    def _keywords(self, call: cst.Call) -> dict[str, cst.BaseExpression] | None:
        """The arguments by name, those of an unpacked dictionary that this file makes included."""
        passed = given(self._names, call)
        if passed.is_open:
            return None
        return {name: self._names.single_value(value) or value for name, value in passed.named.items()}


def _is_none(value: cst.BaseExpression | None) -> bool:
    return value is None or is_none(value)
