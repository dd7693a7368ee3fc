"""A moving average of the weights (EMA) reads weights that ZeRO stage 3 has spread over the ranks.

**What.** The model is trained by an engine with stage 3. A loop goes over its parameters beside those of a second
model, or over its state dict, and writes them into the second one in place (`lerp_`, `copy_`, `mul_(...).add_(...)`),
outside of `deepspeed.zero.GatheredParameters`.

**Why it hurts.** Outside of a forward or backward pass each weight is an empty tensor. Where the second model was
copied before `deepspeed.initialize` the first update raises a size mismatch; a copy that was made afterwards is empty
as well, and stays so: the average that is saved and evaluated holds nothing.

**Fix.** Enter `deepspeed.zero.GatheredParameters([...])` around the update on every rank, or
average what `deepspeed.utils.safe_get_full_fp32_param(parameter)` gives.

**When it stays quiet.** The stage is not 3 or not known; the parameters are gathered, around the loop or inside it; a
test asks for the stage or for `ds_id`.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8: at stage 3 the update raises, gathered and at stage 2 it does not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.zero.zero3 import is_gathered, is_whole, spread_of

META = RuleMeta(
    code="DSL630",
    name="average-of-spread-weights",
    kind="script",
    severity=Severity.WARNING,
    summary="a moving average reads weights that ZeRO stage 3 has spread over the ranks: they are empty",
    markers=(r"deepspeed|accelerat|Trainer", r"lerp_|copy_|mul_|add_"),
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/2056",
        "https://github.com/huggingface/transformers/issues/35994",
    ),
    depends_on_run=True,
)
_WRITES = frozenset({"lerp_", "copy_", "mul_", "add_", "sub_"})
_CARES = re.compile(r"gather|ds_id|ds_tensor|ds_status|safe_get|safe_set|full_param|zero_?3|stage", re.I)
_GIVES = frozenset({"parameters", "state-dict"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each loop that follows spread weights."""
    seen: set[int] = set()
    for spread in spread_of(run):
        for found in spread.read():
            event = found.event
            if not event.tags & _GIVES or event.may or id(event.node) in seen or is_whole(found) or is_gathered(found):
                continue
            loop = _loop(event)
            since = spread.of(event.receiver) or spread.engine_of(event.receiver) if loop is not None else None
            write = _write(loop, event.node) if loop is not None and since is not None else None
            if write is None or since is None or _CARES.search(ast.unparse(loop) if loop is not None else ""):
                continue
            if not run.stages.at(found, since).is_among(3):
                continue
            seen.add(id(event.node))
            yield run.finding(
                META,
                event.module,
                event.node,
                "a moving average reads weights that stage 3 has spread: outside of the forward pass they are empty",
                hint="Enter `deepspeed.zero.GatheredParameters` around the update on all ranks",
                related=(
                    run.location(event.module, write, "written here"),
                    run.location(since.module, since.node, "spreads the weights"),
                ),
                facts={"op": "average"},
            )


def _loop(event: Event) -> ast.For | None:
    """Return the loop that goes over what a call gives."""
    for node in event.module.nodes:
        if isinstance(node, ast.For) and any(inner is event.node for inner in ast.walk(node.iter)):
            return node
    return None


def _write(loop: ast.For, given: ast.AST) -> ast.Call | None:
    """Return the call that writes the weights of the loop into something else in place."""
    names = _names(loop, given)
    if not names:
        return None
    for node in (inner for statement in loop.body for inner in ast.walk(statement)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _WRITES:
            continue
        read = {part.id for a in node.args for part in ast.walk(a) if isinstance(part, ast.Name)}
        written = {part.id for part in ast.walk(node.func.value) if isinstance(part, ast.Name)}
        if names & read and not names & written - _keys(loop):
            return node
    return None


def _names(loop: ast.For, given: ast.AST) -> set[str]:
    """Return the names that stand for the weights of a call: of `zip` the target at its place."""
    target: ast.expr = loop.target
    pair = loop.iter
    if isinstance(pair, ast.Call) and isinstance(pair.func, ast.Name) and pair.func.id == "zip":
        at = next((n for n, arg in enumerate(pair.args) if any(p is given for p in ast.walk(arg))), None)
        if at is None or not isinstance(target, ast.Tuple | ast.List) or at >= len(target.elts):
            return set()
        target = target.elts[at]
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)} - _keys(loop)


def _keys(loop: ast.For) -> set[str]:
    """Return the names of the loop that are names of parameters: the first of each pair."""
    pairs = [node for node in ast.walk(loop.target) if isinstance(node, ast.Tuple)]
    is_pair = [pair for pair in pairs if all(isinstance(part, ast.Name) for part in pair.elts)]
    text = ast.unparse(loop.iter)
    if not re.search(r"named_parameters|items\(", text):
        return set()
    return {str(getattr(pair.elts[0], "id", "")) for pair in is_pair}


_TRAIN = """\
import copy

import deepspeed
import torch
from ema import Ema

CONFIG = {"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": %d}}


def main(batches):
    model = torch.nn.Linear(64, 64)
    ema = Ema(copy.deepcopy(model))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for batch in batches:
        engine.backward(engine(batch).mean())
        engine.step()
        ema.update(engine.module)


main([torch.ones(8, 64)])
"""
_EMA = """\
import deepspeed
import torch


class Ema:
    def __init__(self, shadow):
        self.shadow = shadow.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
%s
"""
_PAIRS = """\
        for slow, fast in zip(self.shadow.parameters(), model.parameters()):
            slow.data.lerp_(fast.data, 0.001)"""
_STATE = """\
        kept = self.shadow.state_dict()
        for name, value in model.state_dict().items():
            kept[name].mul_(0.999).add_(value, alpha=0.001)"""
_GATHERED = """\
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            for slow, fast in zip(self.shadow.parameters(), model.parameters()):
                slow.data.lerp_(fast.data, 0.001)"""
_ONE_BY_ONE = """\
        for slow, fast in zip(self.shadow.parameters(), model.parameters()):
            with deepspeed.zero.GatheredParameters([fast]):
                slow.data.lerp_(fast.data, 0.001)"""
_NORMS = """\
        self.sizes = []
        for parameter in model.parameters():
            self.sizes.append(parameter.numel())"""

EXAMPLES = (
    bad("Parameter by parameter", {"ema.py": _EMA % _PAIRS, "train.py": _TRAIN % 3}, "ema.py:11"),
    bad("By the state dict", {"ema.py": _EMA % _STATE, "train.py": _TRAIN % 3}, "ema.py:12"),
    good("At stage 2", {"ema.py": _EMA % _PAIRS, "train.py": _TRAIN % 2}),
    good("Gathered", {"ema.py": _EMA % _GATHERED, "train.py": _TRAIN % 3}),
    good("Gathered one by one", {"ema.py": _EMA % _ONE_BY_ONE, "train.py": _TRAIN % 3}),
    good(
        "Stage 3 is sent away before",
        {
            "ema.py": "from transformers.integrations import is_deepspeed_zero3_enabled\n"
            + _EMA % ("        if is_deepspeed_zero3_enabled():\n            return\n" + _PAIRS),
            "train.py": _TRAIN % 3,
        },
    ),
    good("Nothing is averaged", {"ema.py": _EMA % _NORMS, "train.py": _TRAIN % 3}),
)
