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
(`hasattr(p, "ds_id")`, `try: p.ds_shape`, `is_deepspeed_zero3_enabled()`); inside a gather; quantized models,
which are loaded whole; models that PEFT wraps; small weights of an engine (heads, norms, biases), which DeepSpeed
leaves whole below `stage3_param_persistence_threshold`.

**Evidence.** Two gloo ranks at stage 3: an index raises `IndexError`, `load_state_dict` a size mismatch; `fill_`,
`nn.init` and averaged rows leave the weight as it was; a norm and a shape are those of an empty tensor. At stage 2 all
of them are right.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Try
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.spreadscripts import APPLY, GATHERED, PLAIN, SPREAD_MODEL, SPREAD_TRAIN
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.zero.spreadparams import Place, SpreadParameters
from dslint.rules.zero.stages import StageHere
from dslint.rules.zero.zero3 import is_gathered, spread_of

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

_QUANTIZED = _RESIZE.replace('LM.from_pretrained("gpt2")', 'LM.from_pretrained("gpt2", quantization_config=%s)')

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
        "a constructor writes into the layers that it has built",
        {"model.py": SPREAD_MODEL % ("        self.reset()", PLAIN), "train.py": SPREAD_TRAIN % (3, "", "")},
        at="model.py:22 error",
    ),
    bad(
        "a method of another file, after the block",
        {"model.py": SPREAD_MODEL % ("", PLAIN), "train.py": SPREAD_TRAIN % (3, "", "    net.reset()")},
        at="model.py:22 error",
    ),
    bad(
        "weights of one layer are loaded",
        {"model.py": SPREAD_MODEL % ("", PLAIN), "train.py": SPREAD_TRAIN % (3, "", '    net.restore("head.pt")')},
        at="model.py:25 error",
    ),
    good(
        "gathered",
        {
            "model.py": "import deepspeed\n" + SPREAD_MODEL % ("", GATHERED),
            "train.py": SPREAD_TRAIN % (3, "", "    net.reset()"),
        },
    ),
    good("`apply` gathers", {"model.py": SPREAD_MODEL % (APPLY, PLAIN), "train.py": SPREAD_TRAIN % (3, "", "")}),
    good(
        "nothing is spread",
        {
            "model.py": SPREAD_MODEL % ("        self.reset()", PLAIN),
            "train.py": SPREAD_TRAIN % (2, ", enabled=False", "    net.reset()"),
        },
    ),
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
    bad("no quantization", {"train.py": _QUANTIZED % (3, "print(added)", "None")}, at="train.py:13 error"),
    good("a quantization", {"train.py": _QUANTIZED % (3, "print(added)", "{'load_in_4bit': True}")}),
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
    good(
        "the shape that DeepSpeed keeps, where there is one",
        {
            "train.py": _ENGINE
            % (
                3,
                "    try:\n        rows = engine.module.lm_head.weight.ds_shape[0]\n    except AttributeError:\n"
                "        rows = engine.module.lm_head.weight.size()[0]\n    print(rows)",
            )
        },
    ),
    good("the same at stage 2", {"train.py": _RESIZE % (2, "print(added)")}),
    good(
        "another way for stage 3",
        {"train.py": _RESIZE % (3, "if is_deepspeed_zero3_enabled():\n        return")},
    ),
    good(
        "inside a gather that rank 0 passes on",
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
_USES = {
    "writes-item": ("rows", "the write is lost, or raises"),
    "writes-parameter": ("rows", "the write is lost, or raises"),
    "writes-tensor": ("fill", "the write is lost, or raises"),
    "initializes": ("init", "the write is lost, or raises"),
    "loads-state-dict": ("load", "`load_state_dict` raises"),
    "reads-parameter": ("norm", "its shape is (0,), and it holds no values"),
}
_SHAPES = ("shape", "size")
_INDEX = "__getitem__"
_OF_SPREAD = re.compile(r"\.ds_(?:id|shape|numel|status|tensor)\b")


@dataclass(frozen=True, slots=True)
class _Touch:
    """One use of a parameter: ``op`` as the experiment calls it, what comes of it, and what spread the parameter."""

    found: Happening
    what: str
    op: str
    effect: str
    since: Place
    here: StageHere

    @property
    def rank(self) -> int:
        """What is lost without a word comes first, then what raises, then what is only read."""
        return ("rows", "fill", "init", "load", "index", "norm", "shape").index(self.op)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the gravest use in each function of parameters that stage 3 has spread, where nothing gathers them."""
    touches: dict[int, dict[int, _Touch]] = {}
    for spread in spread_of(run):
        parameters = SpreadParameters(spread)
        for found in spread.read():
            touch = _touch(run, parameters, found)
            if touch is not None:
                scope = found.calls[-1].function if found.calls else found.entry
                touches.setdefault(id(getattr(scope, "node", scope)), {}).setdefault(id(found.event.node), touch)
    for same in touches.values():
        yield _finding(run, sorted(same.values(), key=lambda touch: touch.rank))


def _touch(run: RunQuery, parameters: SpreadParameters, found: Happening) -> _Touch | None:
    """Return the use of a parameter that holds no numbers, where something is one."""
    event = found.event
    use = next((_USES[tag] for tag in _USES if tag in event.tags), None)
    if use is None or event.may or is_gathered(found) or _is_told_apart(found):
        return None
    if use[0] == "load" and not run.machine.libraries.is_class(event.api.rpartition(".")[0], "torch.nn.Module"):
        return None
    op, effect = _read_as(event) if use[0] == "norm" else use
    node = _touched(event)
    text = run.text(event.module, node)
    if op == "load":
        since, what = parameters.of_module(event.receiver, text), f"the parameters of `{text}` are"
    else:
        tensor = event.arguments.get("tensor") if op == "init" else event.receiver
        since, what = parameters.of_parameter(found, tensor, text), f"`{text}` is"
    here = run.stages.at(found)
    return _Touch(found, what, op, effect, since, here) if since is not None and here.is_among(3) else None


def _is_told_apart(found: Happening) -> bool:
    """Return whether a `try` around tells spread parameters by what DeepSpeed gives them: `weight.ds_shape`."""
    blocks = (node.node for node in found.around if isinstance(node, Try))
    return any(_OF_SPREAD.search(ast.unparse(block)) for block in blocks)


def _read_as(event: Event) -> tuple[str, str]:
    name = event.api.rpartition(".")[2]
    if name == _INDEX:
        return "index", "indexing raises an `IndexError` and slices are empty"
    return "shape" if name in _SHAPES else "norm", _USES["reads-parameter"][1]


def _touched(event: Event) -> ast.AST:
    """Return the code of the tensor or the module, without `.data` and rows of a tensor."""
    node = event.nodes.get("tensor", event.node)
    if isinstance(node, ast.Call):
        is_method = isinstance(node.func, ast.Attribute) and event.receiver is not None
        node = node.func.value if is_method and isinstance(node.func, ast.Attribute) else node
    elif isinstance(node, ast.Attribute) and node is event.node:
        node = node.value
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
        node = node.value
    return node


def _finding(run: RunQuery, touches: list[_Touch]) -> Finding:
    """Return the finding about the first of some uses; the others are related."""
    first = touches[0]
    event = first.found.event
    others = [run.location(t.found.event.module, t.found.event.node, "and here") for t in touches[1:4]]
    is_read = first.op in ("norm", "shape")
    return run.finding(
        META,
        event.module,
        event.node,
        f"{first.what} empty outside `GatheredParameters` at ZeRO stage 3: {first.effect}",
        hint=_HINT,
        related=(
            *others,
            run.location(*first.since, "spreads the weights"),
            *first.here.places,
        ),
        severity=Severity.WARNING if is_read else None,
        facts={"op": first.op, "stage": 3},
    )
