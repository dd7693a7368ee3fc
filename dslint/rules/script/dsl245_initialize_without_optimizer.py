"""**What.** An engine that is made without an optimizer trains: `deepspeed.initialize` gets no `optimizer`, its config
(a dict in the script) has no `optimizer` section, and `backward` of the engine is called.

**Why it hurts.** At ZeRO stage 1 and 2 `deepspeed.initialize` stops with `AssertionError: zero stage 2 requires an
optimizer`; at stage 0 and 3 the first `backward` does (`must provide optimizer during init in order to use backward`;
at stage 3 of DeepSpeed 0.19.8 an `AttributeError` of `DeepSpeedZeRoOffload`), after the model is loaded and the first
batch computed.

**Fix.** Name an optimizer in the config (`"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}`), or pass one. That
`model_parameters` is missing does no harm: DeepSpeed then takes all parameters of the model.

**When it stays quiet.** The engine only evaluates or generates (a reference model); the config is a file, is changed
after it is made, has no batch size either, or comes from elsewhere; `optimizer` is passed, whatever it is. For config
files of stage 1 and 2 see DSL468.

**Evidence.** DeepSpeed 0.19.8 `engine.py: backward`, `_configure_zero_optimizer`. Two gloo ranks: stage 1 and 2 stop in
`initialize`, stage 0 and 3 in `backward`; with an optimizer in the config all train, without `model_parameters`.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.quick import call_name, flat, is_none
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL245",
    name="initialize-without-optimizer",
    kind="script",
    severity=Severity.ERROR,
    summary="An engine without an optimizer runs a backward pass",
    markers=(r"deepspeed", r"initialize\s*\(", r"\.backward\("),
    references=("DeepSpeedEngine.backward in deepspeed/runtime/engine.py",),
)

_BATCH_SIZES = frozenset({"train_batch_size", "train_micro_batch_size_per_gpu"})


def precheck(tree: ast.Module) -> bool:
    """An engine is made without an optimizer, of a config that is no text."""
    return any(
        call_name(call) == "initialize"
        and not any(k.arg in (None, "optimizer") and not is_none(k.value) for k in call.keywords)
        and any(k.arg in ("config", "config_params") and isinstance(k.value, _WRITTEN) for k in call.keywords)
        for call in flat(tree).nodes(ast.Call)
    )


_WRITTEN = (ast.Dict, ast.Name)


class Check(ScriptCheck):
    """Looks at each call of `deepspeed.initialize`."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when no optimizer can be there and the engine trains."""
        if self.ctx.qualified_name(node.func) != "deepspeed.initialize" or self.ctx.has_unpacked_arguments(node):
            return
        optimizer = self.ctx.argument(node, "optimizer", 2)
        if optimizer is not None and self.ctx.text(optimizer) != "None":
            return
        config = self.ctx.argument(node, "config", 10) or self.ctx.argument(node, "config_params", 12)
        settings = self._settings(config) if config is not None else None
        # A config without a batch size, which DeepSpeed asks for first, is no whole one.
        if settings is None or "optimizer" in settings or not settings & _BATCH_SIZES:
            return
        backward = self._backward(node)
        if backward is None:
            return
        self.report(
            node,
            "the engine gets no optimizer, neither as argument nor in its config, and trains: DeepSpeed stops here"
            " (ZeRO stage 1 and 2) or at the first `backward`",
            hint="Add an `optimizer` section to the config, or pass `optimizer=`",
            related=(self.ctx.location(backward, "the backward pass"),),
            facts={"arguments": "no-optimizer", "stage": self.ctx.stage},
        )

    def _settings(self, config: cst.BaseExpression) -> set[str] | None:
        """The keys of a config that the file writes out and does not touch afterwards."""
        value: cst.BaseExpression | None = config
        if isinstance(config, cst.Name):
            value = self.ctx.names.single_value(config)
            uses = [n for n in self.ctx.tree.order if isinstance(n, cst.Name) and n.value == config.value]
            # Its assignment, and one for each engine that is made of it.
            if any(not self._is_plain_use(n) for n in uses):
                return None
        if not isinstance(value, cst.Dict):
            return None
        keys: set[str] = set()
        for element in value.elements:
            if not isinstance(element, cst.DictElement) or not isinstance(element.key, cst.SimpleString):
                return None
            keys.add(str(element.key.evaluated_value))
        return keys

    def _is_plain_use(self, name: cst.Name) -> bool:
        parent = self.ctx.parent(name)
        if isinstance(parent, cst.Arg):
            owner = self.ctx.parent(parent)
            # ``config=config`` names the keyword like the variable.
            if parent.keyword is name:
                return True
            return isinstance(owner, cst.Call) and self.ctx.qualified_name(owner.func) == "deepspeed.initialize"
        return isinstance(parent, cst.AssignTarget | cst.AnnAssign)

    def _backward(self, made: cst.Call) -> cst.Call | None:
        """The backward pass of the engine that the call makes."""
        for node in self.ctx.tree.order:
            if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
                continue
            engine = node.func.value
            if node.func.attr.value != "backward" or self.ctx.kind(engine) != "engine":
                continue
            found = []
            if isinstance(engine, cst.Name):
                found = self.ctx.names.bindings(engine.value, engine)
            elif isinstance(engine, cst.Attribute):
                found = self.ctx.names.attribute_bindings(engine)
            values = [b.value.value if isinstance(b.value, cst.Subscript) else b.value for b in found]
            if len(values) == 1 and values[0] is made:
                return node
        return None


_HEAD = """\
import deepspeed

config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}%s}
engine, _, _, _ = deepspeed.initialize(model=make_model(), config=config%s)
"""
_TRAIN = "for batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n"

EXAMPLES = (
    bad("an engine that trains", {"train.py": _HEAD % ("", "") + _TRAIN}, at="train.py:4 error"),
    bad(
        "its optimizer is `None`, and the engine is the first result",
        {
            "train.py": (
                "import deepspeed\n\n\ndef main(model, loss):\n    engine = deepspeed.initialize(\n"
                "        model=model, optimizer=None, config={'train_batch_size': 8}\n    )[0]\n"
                "    engine.backward(loss)\n"
            )
        },
        at="train.py:5 error",
    ),
    good(
        "the config names one",
        {"train.py": _HEAD % (', "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}', "") + _TRAIN},
    ),
    good("the script passes one", {"train.py": _HEAD % ("", ", optimizer=make_optimizer()") + _TRAIN}),
    good(
        "a reference model only answers",
        {"train.py": _HEAD % ("", "") + "for batch in loader:\n    scores = engine(batch)\n"},
    ),
    good(
        "the optimizer is added later",
        {
            "train.py": (_HEAD % ("", "")).replace(
                "engine, _", "config['optimizer'] = {'type': 'AdamW', 'params': {'lr': 1e-5}}\nengine, _"
            )
            + _TRAIN
        },
    ),
)
