"""Does the script run under ZeRO stage 3? From the run's configs, else from what the file states itself."""

from __future__ import annotations

import libcst as cst

from dslint.core.fact import Fact, absent, known, unknown
from dslint.model.context import Context
from dslint.model.script.constants import Constants
from dslint.model.script.dotted import last_name
from dslint.model.script.names import Names
from dslint.model.script.tree import Tree

_STATING = frozenset({cst.DictElement, cst.Call})


def zero3_evidence(tree: Tree, names: Names, constants: Constants, run: Context) -> Fact[bool]:
    """Known true or false when the configs or the file say the stage; absent when nothing hints at DeepSpeed."""
    stage = run.zero_stage
    if stage.is_known:
        return stage.map(lambda value: value == 3)
    if stage.is_unknown:
        return unknown(stage.reason, *stage.origins)
    stating = (node for node in tree.order if type(node) in _STATING)
    stages = [fact for node in stating for fact in _stated_stage(node, names, constants)]
    known_stages = {fact.value for fact in stages if fact.is_known}
    if len(known_stages) == 1 and all(fact.is_known for fact in stages):
        return known(known_stages == {3})
    if stages or uses_deepspeed(names):
        return unknown("the ZeRO stage is not stated in one place")
    return absent()


def uses_deepspeed(names: Names) -> bool:
    """The file imports DeepSpeed or its integrations."""
    return names.imported(
        "deepspeed",
        "transformers.deepspeed",
        "transformers.integrations.deepspeed",
        "transformers.integrations.HfDeepSpeedConfig",
        "accelerate.DeepSpeedPlugin",
        "accelerate.utils.DeepSpeedPlugin",
    )


def _stated_stage(node: cst.CSTNode, names: Names, constants: Constants) -> list[Fact[object]]:
    """The stages that a node states: ``{"zero_optimization": {"stage": 3}}`` or ``DeepSpeedPlugin(zero_stage=3)``."""
    if isinstance(node, cst.DictElement) and _text(node.key) == "zero_optimization":
        inner = names.single_value(node.value) if isinstance(node.value, cst.Name) else node.value
        if not isinstance(inner, cst.Dict):
            return [unknown("the section is computed")]
        stage = _item(inner, "stage")
        return [constants.value(stage)] if stage is not None else [known(0)]
    if isinstance(node, cst.Call) and last_name(node.func) == "DeepSpeedPlugin":
        stage = next((a.value for a in node.args if a.keyword and a.keyword.value == "zero_stage"), None)
        return [constants.value(stage)] if stage is not None else [unknown("set by accelerate's config")]
    if isinstance(node, cst.Call) and names.qualified(node.func) == "deepspeed.zero.Init":
        # Partitioned construction is stage 3; ``enabled=`` makes it a choice.
        conditional = any(a.keyword is not None and a.keyword.value == "enabled" for a in node.args)
        return [unknown("`zero.Init(enabled=...)`") if conditional else known(3)]
    return []


def _item(node: cst.Dict, key: str) -> cst.BaseExpression | None:
    for element in node.elements:
        if isinstance(element, cst.DictElement) and _text(element.key) == key:
            return element.value
    return None


def _text(node: cst.CSTNode) -> str:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else ""
    return value if isinstance(value, str) else ""
