"""A parameter of a partitioned model is used as if this rank had all of it.

**What.** In a run at ZeRO stage 3, a weight of an engine, of a transformers model that was loaded when stage 3 was
known, or of a model that was built inside `deepspeed.zero.Init`, is written, initialised, indexed, loaded or measured
outside `deepspeed.zero.GatheredParameters`.

**Why it hurts.** Between the forward and backward passes a parameter is an empty tensor of shape (0,) on every rank.
An index and `load_state_dict` raise; in-place writes and initialisations do nothing, without an error; a norm is 0.0, a
mean is NaN, and a shape is (0,). Averaging the new rows of resized embeddings is the usual case.

**Fix.** `with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):` around it, entered by every rank; for
reading `modifier_rank` is not needed. `deepspeed.utils.safe_get_full_fp32_param` reads one parameter.

**When it stays quiet.** The stage is below 3 or not known; a branch, an early return or the caller keeps stage 3 away
(`hasattr(p, "ds_id")`, `is_deepspeed_zero3_enabled()`); inside a gather; quantized models, which are loaded whole;
models that PEFT wraps; small weights of an engine (heads, norms, biases), which DeepSpeed leaves whole below
`stage3_param_persistence_threshold`.

**Evidence.** Two gloo ranks at stage 3: an index raises `IndexError`, `load_state_dict` a size mismatch; `fill_`,
`nn.init` and averaged rows leave the weight as it was; a norm and a shape are those of an empty tensor. At stage 2 all
of them are right.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dslint.core.finding import Finding, Severity
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, flat
from dslint.model.script.zero.zeroparams import READ_ATTRIBUTES, READ_FUNCTIONS, READS
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.stages import StageHere
from dslint.rules.walk import ScriptCheck
from dslint.rules.zero3 import is_gathered, spread_of

META = RuleMeta(
    code="DSL210",
    name="z3-param-touched-outside-gather",
    kind="script",
    severity=Severity.ERROR,
    summary="a parameter that ZeRO stage 3 spreads over the ranks is used as if it were whole",
    markers=(
        r"deepspeed|accelerat|TrainingArguments|HfArgumentParser",
        r"\.weight|parameters|load_state_dict",
        r"initialize|prepare|from_pretrained|from_config",
    ),
    references=(
        "https://deepspeed.readthedocs.io/en/latest/zero3.html#manual-parameter-coordination",
        "https://github.com/haotian-liu/LLaVA/issues/1217",
    ),
    depends_on_run=True,
)

_ENGINE = """\
import deepspeed
import torch

CONFIG = {"train_batch_size": 16, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": %d}}


def train(model, batches, state):
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
%s
    for batch in batches:
        engine.backward(engine(batch))
        engine.step()
"""
_RESIZE = """\
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from transformers.integrations import is_deepspeed_zero3_enabled

ZERO = {"stage": %d, "stage3_gather_16bit_weights_on_model_save": True}
CONFIG = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": ZERO}


def resize(tokenizer, model, tokens):
    added = tokenizer.add_special_tokens(tokens)
    model.resize_token_embeddings(len(tokenizer))
    %s
    rows = model.get_input_embeddings().weight.data
    rows[-added:] = rows[:-added].mean(dim=0, keepdim=True)


def main(dataset, tokens):
    args = TrainingArguments("out", deepspeed=CONFIG)
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    resize(AutoTokenizer.from_pretrained("gpt2"), model, tokens)
    Trainer(model=model, args=args, train_dataset=dataset).train()
"""

_BOTH = _RESIZE.replace(
    "    rows = model.get_input_embeddings().weight.data\n"
    "    rows[-added:] = rows[:-added].mean(dim=0, keepdim=True)\n",
    "    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):\n"
    "        layer.weight.data[-added:] = 0\n",
).replace("    %s\n", "    print(added)\n")

_INIT = """\
import deepspeed
import torch
from torch import nn

CONFIG = {"train_batch_size": 16, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 3}}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 512)


def main(state):
    with deepspeed.zero.Init(config_dict_or_path=CONFIG%s):
        net = Net()
    %s
    return deepspeed.initialize(model=net, config=CONFIG)
"""

EXAMPLES = (
    bad(
        "weights are loaded into a model that is built in parts",
        {"train.py": _INIT % ("", "net.load_state_dict(state)")},
        at="train.py:17 error",
    ),
    bad(
        "an initialisation after the block in which the model is built",
        {"train.py": _INIT % ("", "nn.init.normal_(net.embed.weight)")},
        at="train.py:17 error",
    ),
    good(
        "the weights are loaded inside a gather",
        {
            "train.py": _INIT
            % (
                "",
                "with deepspeed.zero.GatheredParameters(list(net.parameters()), modifier_rank=0):\n"
                "        net.load_state_dict(state)",
            )
        },
    ),
    good(
        "an argument says whether the model is built in parts",
        {"train.py": _INIT % (", enabled=state is None", "net.load_state_dict(state)")},
    ),
    bad(
        "the new rows of the embeddings of a model that is partitioned when it is loaded",
        {"train.py": _RESIZE % (3, "print(added)")},
        at="train.py:13 error",
    ),
    bad(
        "every weight of an engine is scaled and measured",
        {
            "train.py": _ENGINE
            % (
                3,
                "    for name, parameter in engine.named_parameters():\n"
                "        parameter.data.mul_(0.5)\n        print(name, parameter.norm())",
            )
        },
        at="train.py:10 error",
    ),
    bad(
        "weights are loaded into the module of the engine",
        {"train.py": _ENGINE % (3, "    engine.module.load_state_dict(state)")},
        at="train.py:9 error",
    ),
    bad(
        "one number, and a new initialisation",
        {
            "train.py": _ENGINE
            % (
                3,
                "    print(model.embed_tokens.weight[0, 0])\n    torch.nn.init.normal_(engine.module.lm_head.weight)",
            )
        },
        at="train.py:10 error",
    ),
    bad(
        "the size of the embeddings, to see whether they are large enough",
        {
            "train.py": _RESIZE.replace("    rows = model.get", "    size = model.get")
            .replace("weight.data\n", "weight.shape[0]\n")
            .replace("    rows[-added:] = rows[:-added].mean(dim=0, keepdim=True)", "    print(size)")
            % (3, "print(added)")
        },
        at="train.py:12 warning",
    ),
    bad(
        "the embeddings, one after the other",
        {"train.py": _BOTH % 3},
        at="train.py:13 error",
    ),
    good("the embeddings, one after the other, at stage 2", {"train.py": _BOTH % 2}),
    good(
        "one of the layers is of another model",
        {"train.py": (_BOTH % 3).replace("model.get_output_embeddings()", "tokenizer.head")},
    ),
    good("the same at stage 2", {"train.py": _RESIZE % (2, "print(added)")}),
    good(
        "another way for stage 3",
        {"train.py": _RESIZE % (3, "if is_deepspeed_zero3_enabled():\n        return")},
    ),
    good(
        "inside a gather that rank 0 hands on",
        {
            "train.py": _ENGINE
            % (
                3,
                "    with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):\n"
                "        engine.module.load_state_dict(state)\n        print(model.lm_head.weight.norm())",
            )
        },
    ),
    good(
        "before the engine is there every rank has the whole model; a head is small enough to stay whole",
        {
            "train.py": _ENGINE.replace(
                "    engine, _",
                "    torch.nn.init.zeros_(model.lm_head.weight)\n    model.load_state_dict(state)\n    engine, _",
            )
            % (3, "    print(engine.module.score.weight.norm(), engine.module.norm.bias[0])")
        },
    ),
    good(
        "partitioned parameters are told apart, and gradients are no parameters",
        {
            "train.py": _ENGINE
            % (
                3,
                "    for parameter in engine.parameters():\n        parameter.requires_grad_(True)\n"
                '        if not hasattr(parameter, "ds_id"):\n            parameter.data.mul_(2)\n'
                "        print(parameter.dtype, parameter.device)",
            )
        },
    ),
)


_HINT = "Enter `deepspeed.zero.GatheredParameters([...], modifier_rank=0)` on every rank around it"


def precheck(tree: ast.Module) -> bool:
    """A weight or a list of parameters is there, and something that may make it a partitioned one."""
    nodes = flat(tree)
    names = {call_name(call) for call in nodes.nodes(ast.Call)}
    makes = bool(names & {"initialize", "prepare", "from_pretrained", "from_config", "HfDeepSpeedConfig"})
    makes = makes or any(n.endswith(("Trainer", "TrainingArguments")) for n in names)
    if not makes:
        return False
    touches = bool(names & {"parameters", "named_parameters", "load_state_dict"})
    return touches or any(node.attr == "weight" for node in nodes.nodes(ast.Attribute))


@dataclass(frozen=True, slots=True)
class _Touch:
    """One use of a parameter: ``op`` as the experiment calls it, and what comes of it."""

    node: cst.CSTNode
    what: str
    op: str
    effect: str
    severity: Severity = Severity.ERROR


def _rank(touch: _Touch) -> int:
    """What is lost without a word comes first, then what raises, then what is only read."""
    return ("rows", "fill", "init", "load", "index", "norm", "shape").index(touch.op)


# What the visitor cannot see: factories, other files, and the stage of each launch.
def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on rows that are written into a table whose model was spread when it was loaded."""
    seen: set[int] = set()
    for spread in spread_of(run):
        for found in spread.read():
            event = found.event
            if "writes-parameter" not in event.tags or event.may or is_gathered(found) or id(event.node) in seen:
                continue
            since = spread.of(event.receiver)
            here = run.stages.at(found)
            if since is None or "makes-engine" in since.tags or not here.is_among(3):
                continue
            seen.add(id(event.node))
            yield _rows(run, found, since, here)


def _rows(run: RunQuery, found: Happening, since: Event, here: StageHere) -> Finding:
    node, module = found.event.node, found.event.module
    text = run.text(module, node.value if isinstance(node, ast.Subscript) else node)
    return run.finding(
        META,
        module,
        node,
        f"`{text}` belongs to a model that ZeRO stage 3 spreads over the ranks: outside `GatheredParameters` each "
        "parameter is an empty tensor, so the write is lost, or raises",
        hint=_HINT,
        related=(run.location(since.module, since.node, "spreads the weights"), *here.places),
        facts={"op": "rows", "stage": 3},
    )


class Check(ScriptCheck):
    """Looks at every use of a parameter; the gravest of a function stands for all."""

    def start(self) -> None:
        """What was found, by function."""
        self.touches: dict[int, list[_Touch]] = {}

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        """`layer.weight.data[-2:] = rows`."""
        self._write(node)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        """`layer.weight.data *= 2`."""
        self._write(node)

    def visit_Call(self, node: cst.Call) -> None:
        """In-place methods, initialisers, `load_state_dict`; norms and sizes."""
        if self._write(node):
            return
        func = node.func
        if isinstance(func, cst.Attribute) and func.attr.value in READS:
            self._read(node, func.value, func.attr.value)
        elif self.ctx.qualified_name(func) in READ_FUNCTIONS and node.args:
            self._read(node, node.args[0].value, last_name(func))

    def visit_Attribute(self, node: cst.Attribute) -> None:
        """`layer.weight.shape`."""
        if node.attr.value in READ_ATTRIBUTES:
            self._read(node, node.value, node.attr.value)

    def visit_Subscript(self, node: cst.Subscript) -> None:
        """`layer.weight[0]`; what is assigned to is a write."""
        parent = self.ctx.parent(node)
        if not (isinstance(parent, cst.AssignTarget) or (isinstance(parent, cst.AugAssign) and parent.target is node)):
            self._touch(node, node.value, "index", "an index raises an `IndexError` and a slice is empty")

    def _write(self, node: cst.CSTNode) -> bool:
        write = self.ctx.zero3.gathers.write(node)
        if write is None:
            return False
        if write.is_module:
            return self._load(node, write.target)
        op = "rows" if isinstance(write.node, cst.Subscript) else "fill"
        if isinstance(node, cst.Call) and (self.ctx.qualified_name(node.func) or "").startswith("torch.nn.init"):
            op = "init"
        return self._touch(write.node, write.target, op, "the write is lost, or raises")

    def _load(self, node: cst.CSTNode, model: cst.BaseExpression) -> bool:
        if not (isinstance(node, cst.Call) and self.ctx.called(node) == "load_state_dict"):
            return False
        if not (self.ctx.zero3.models.is_engine(model) or self.ctx.zero3.models.is_loaded(model)):
            return False
        what = f"The parameters of `{self.ctx.text(model)}` belong"
        return self._add(_Touch(node, what, "load", "the sizes do not match and `load_state_dict` raises"))

    def _read(self, node: cst.CSTNode, parameter: cst.BaseExpression, name: str) -> None:
        op = "shape" if name in ("shape", "size") else "norm"
        self._touch(node, parameter, op, "its shape is (0,) and it holds no values", Severity.WARNING)

    def _touch(
        self,
        node: cst.CSTNode,
        parameter: cst.BaseExpression,
        op: str,
        effect: str,
        severity: Severity = Severity.ERROR,
    ) -> bool:
        if not self.ctx.zero3.parameters.is_one(parameter):
            return False
        return self._add(_Touch(node, f"`{self.ctx.text(parameter)}` belongs", op, effect, severity))

    def _add(self, touch: _Touch) -> bool:
        if not self.ctx.zero.at(touch.node).is_among(3) or self.ctx.zero3.gathers.is_inside(touch.node):
            return False
        self.touches.setdefault(id(self.ctx.enclosing_function(touch.node)), []).append(touch)
        return True

    def finish(self) -> None:
        """Report the gravest use in each function."""
        for touches in self.touches.values():
            first = min(touches, key=_rank)
            others = [self.ctx.location(t.node, "and here") for t in touches if t is not first]
            self.report(
                first.node,
                f"{first.what} to a model that ZeRO stage 3 spreads over the ranks: outside `GatheredParameters` each "
                f"parameter is an empty tensor, so {first.effect}",
                hint=_HINT,
                related=(*others[:3], *self.ctx.zero.origins(self.ctx.zero.at(first.node))),
                severity=first.severity,
                facts={"op": first.op, "stage": 3},
            )
