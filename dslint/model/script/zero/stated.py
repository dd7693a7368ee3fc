"""The ZeRO stage that is stated: by the configs of the run, else by what the file makes and declares."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

import libcst as cst

from dslint.core.fact import Fact, absent, known, unknown
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.script.constants import Constants
from dslint.model.script.dotted import keyword, last_name, literal_text
from dslint.model.script.given import given, items_of
from dslint.model.script.names import Names
from dslint.model.script.zero.stagetests import ALL
from dslint.parse.python import ScriptDoc

# Whatever states a stage has one of these words in it: most files have none, and their calls are not looked at.
_SECTION = "zero_optimization"
_MAY_STATE = re.compile(r"zero_optimization|DeepSpeedPlugin|--zero[_-]stage")
_NAMES_CONFIG = re.compile(r"\bdeepspeed\s*=(?!=)")
_ARGUMENTS = re.compile(r"(?:Arguments|Config|Args)$")
_MAY_BUILD = re.compile(r"\bzero\b")
_DEEPSPEED = (
    "deepspeed",
    "transformers.deepspeed",
    "transformers.integrations.deepspeed",
    "transformers.integrations.HfDeepSpeedConfig",
    "accelerate.DeepSpeedPlugin",
    "accelerate.utils.DeepSpeedPlugin",
)


class StatedStage:
    """Answers for one module; ``is_choice``: a test of the stage stands around a node."""

    def __init__(
        self, doc: ScriptDoc, names: Names, constants: Constants, run: Context, is_choice: Callable[[cst.CSTNode], bool]
    ) -> None:
        self._doc = doc
        self._tree = names.tree
        self._names = names
        self._constants = constants
        self._run = run
        self._is_choice = is_choice

    @cached_property
    def fact(self) -> Fact[int]:
        """The stage of the run's configs, else the one that the file states; absent when nothing hints at DeepSpeed."""
        if not self._run.zero_stage.is_absent:
            return self._run.zero_stage
        text = self._doc.source.text
        may_state = _MAY_STATE.search(text) or ("deepspeed" in text and _MAY_BUILD.search(text))
        nodes = self._tree.some(cst.DictElement, cst.Call, cst.Arg, cst.Assign) if may_state else ()
        stages = [fact for node in nodes for fact in self._stated_by(node)]
        values = {fact.value for fact in stages}
        if len(values) == 1 and all(fact.is_known for fact in stages):
            return _as_stage(stages[0])
        if stages or self._names.imported(*_DEEPSPEED) or self._names_config:
            return unknown("the ZeRO stage is not stated in one place")
        return absent()

    @cached_property
    def _names_config(self) -> bool:
        """``TrainingArguments(deepspeed=path)``: DeepSpeed is used, and what its config says stands elsewhere."""
        if _NAMES_CONFIG.search(self._doc.source.text) is None:
            return False
        calls = (n for n in self._tree.every(cst.Call) if _ARGUMENTS.search(self._names.called(n)))
        named = (keyword(call, "deepspeed") for call in calls)
        return any(value is not None and last_name(value) not in ("None", "False") for value in named)

    def _stated_by(self, node: cst.CSTNode) -> list[Fact[object]]:
        """What a node states: ``{"zero_optimization": {"stage": 3}}``, ``DeepSpeedPlugin(zero_stage=3)``, a flag."""
        section = _section(node)
        if section is not None:
            return [self._of_section(*section)]
        if not isinstance(node, cst.Call):
            return []
        name = self._names.called(node)
        if name == "DeepSpeedPlugin":
            stage = given(self._names, node).argument("zero_stage")
            return [self._value(stage)] if stage is not None else [unknown("set by accelerate's config")]
        if name == "add_argument" and any(literal_text(a.value) in ("--zero_stage", "--zero-stage") for a in node.args):
            return [self._of_argument(node)]
        if self._names.qualified(node.func) == "deepspeed.zero.Init":
            # Partitioned construction is stage 3; ``enabled=`` and a test of the stage make it a choice.
            conditional = keyword(node, "enabled") is not None
            conditional = conditional or self._is_choice(node)
            return [unknown("`zero.Init(enabled=...)`") if conditional else known(3, self._doc.location(node))]
        # ``make_config(zero_stage=2)``: one run of several in the file.
        stage = keyword(node, "zero_stage")
        fact: Fact[object] = self._value(stage) if stage is not None else absent()
        return [fact] if fact.is_known else []

    def _value(self, node: cst.BaseExpression) -> Fact[object]:
        return self._constants.value(node, origins=True)

    def _of_section(self, key: cst.CSTNode, value: cst.BaseExpression) -> Fact[object]:
        """The stage of a section, as the reader of configs in dicts sees it, else as it is written."""
        place = self._doc.location(key)
        read = self._read_stages.get(place.span)
        if read is not None:
            return read
        items = items_of(value, self._names)
        if items is None:
            return unknown("the section is computed")
        stage = items.get("stage")
        return self._value(stage) if stage is not None else known(0, place)

    @cached_property
    def _read_stages(self) -> dict[Span, Fact[object]]:
        """The stages of the configs that the file makes, by the places of their sections."""
        from dslint.model.embedded.python import python_configs

        found: dict[Span, Fact[object]] = {}
        for config in python_configs(self._doc.source):
            section, stage = config.keys.get("/zero_optimization"), config.fact("/zero_optimization/stage")
            if section is None or stage.is_absent:
                continue
            # A function that makes configs of several stages: the section is there once.
            if section in found and found[section].value != stage.value:
                stage = unknown("the section has several stages")
            found[section] = stage
        return found

    def _of_argument(self, call: cst.Call) -> Fact[object]:
        """``--zero_stage``: what the command passes, else its default."""
        stated = self._run.arguments.get("zero_stage")
        if stated is not None:
            digits = stated.get_or("")
            return known(int(digits), *stated.origins) if digits.isdigit() else unknown("`--zero_stage` is not read")
        default = keyword(call, "default")
        return self._value(default) if default is not None else unknown("`--zero_stage` comes from the command line")


def _as_stage(fact: Fact[object]) -> Fact[int]:
    value = fact.value
    if isinstance(value, int) and not isinstance(value, bool) and value in ALL:
        return known(value, *fact.origins)
    return unknown("the stage is no number from 0 to 3", *fact.origins)


def _section(node: cst.CSTNode) -> tuple[cst.CSTNode, cst.BaseExpression] | None:
    """Key and value of ``{"zero_optimization": x}``, of the keyword, and of ``config["zero_optimization"] = x``."""
    if isinstance(node, cst.DictElement):
        return (node.key, node.value) if literal_text(node.key) == _SECTION else None
    if isinstance(node, cst.Arg):
        return (node.keyword, node.value) if node.keyword is not None and node.keyword.value == _SECTION else None
    target = node.targets[0].target if isinstance(node, cst.Assign) else None
    if not isinstance(node, cst.Assign) or not isinstance(target, cst.Subscript) or len(target.slice) != 1:
        return None
    index = target.slice[0].slice
    return (index.value, node.value) if isinstance(index, cst.Index) and literal_text(index.value) == _SECTION else None
