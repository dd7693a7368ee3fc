"""How many micro batches an optimizer step takes: from the configs of the run, else from dicts that the file states."""

from __future__ import annotations

from functools import cached_property

import libcst as cst

from dslint.core.fact import Fact, absent, known, unknown
from dslint.model.context import Context
from dslint.model.deepspeed.batch import MICRO, STEPS, TRAIN
from dslint.model.script.constants import Constants
from dslint.model.script.tree import Tree


class Accumulation:
    """``gradient_accumulation_steps`` of DeepSpeed as one script may know it."""

    def __init__(self, tree: Tree, constants: Constants, run: Context) -> None:
        self._tree = tree
        self._constants = constants
        self._run = run

    @cached_property
    def steps(self) -> Fact[int]:
        """Micro batches a step; absent when neither a run nor the file says anything."""
        if not self._run.accumulation.is_absent:
            return self._run.accumulation
        found = [self._constants.value(value, origins=True) for value in self.expressions]
        values = {fact.value for fact in found}
        if len(values) == 1 and all(fact.is_known for fact in found):
            value = found[0].value
            is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
            return known(value, *found[0].origins) if is_count and isinstance(value, int) else unknown("no count")
        if found:
            return unknown("the accumulation steps are not stated in one place")
        return self._default()

    @cached_property
    def expressions(self) -> list[cst.BaseExpression]:
        """What the dicts of the file state under ``gradient_accumulation_steps``."""
        dicts = self._tree.every(cst.Dict)
        items = [(e, e.value) for d in dicts for e in d.elements if isinstance(e, cst.DictElement)]
        return [value for element, value in items if _key(element) == STEPS]

    def _default(self) -> Fact[int]:
        """A config in the file that has a batch size and no accumulation: DeepSpeed takes 1."""
        for node in self._tree.every(cst.Dict):
            if all(isinstance(e, cst.DictElement) for e in node.elements):
                keys = {_key(e) for e in node.elements if isinstance(e, cst.DictElement)}
                if len(keys & {MICRO, TRAIN}) == 1 and keys & {"zero_optimization", "optimizer", "fp16", "bf16"}:
                    return known(1)
        return absent()


def _key(element: cst.DictElement) -> str:
    value = element.key.evaluated_value if isinstance(element.key, cst.SimpleString) else ""
    return value if isinstance(value, str) else ""
