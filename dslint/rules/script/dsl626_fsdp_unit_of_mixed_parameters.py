"""FSDP gets a model whose units mix parameters that it cannot lay into one tensor.

**What.** `FullyShardedDataParallel` makes one flat tensor of all parameters of a unit: of the whole model without
`auto_wrap_policy`, of a layer with `transformer_auto_wrap_policy` or `ModuleWrapPolicy`. Here a unit holds weights of
two formats (a base model in bfloat16 with adapters of peft, which are float32), or frozen and trainable ones without
`use_orig_params=True`.

**Why it hurts.** Every rank stops when the model is wrapped, after it is loaded: `ValueError: Must flatten tensors with
uniform dtype but got torch.bfloat16 and torch.float32`, or `Must flatten tensors with uniform requires_grad when
use_orig_params=False`.

**Fix.** For formats: `get_peft_model(..., autocast_adapter_dtype=False)`, or cast the model before it is wrapped. For
frozen parts: pass `use_orig_params=True`, or wrap them as units of their own.

**When it stays quiet.** A policy that the file does not tell, as that of peft, which gives adapters units of their own;
a cast somewhere in the code; ignored modules; parts that a policy may separate; `fully_shard`; accelerate.

**Evidence.** Two gloo ranks, torch 2.13: both models are refused; with one format, and with `use_orig_params=True`,
they are wrapped. `FlatParamHandle._validate_tensors_to_flatten` in torch/distributed/fsdp/_flat_param.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.values import Api, Instance, Partial, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.frozen import freezing_before

META = RuleMeta(
    code="DSL626",
    name="fsdp-unit-of-mixed-parameters",
    kind="script",
    severity=Severity.ERROR,
    summary="a unit of FSDP mixes formats, or frozen and trainable parameters: every rank stops",
    markers=(r"FullyShardedDataParallel",),
    references=(
        "https://github.com/eric-mitchell/direct-preference-optimization/issues/90",
        "https://github.com/pytorch/pytorch/issues/104690",
    ),
    depends_on_run=True,
)
_IGNORED = ("ignored_modules", "ignored_parameters", "ignored_states")
_BY_LAYER = ("transformer_auto_wrap_policy", "ModuleWrapPolicy")
_HALVES = ("torch.bfloat16", "torch.float16", "torch.half")
# Code that gives weights another format.
_WEIGHTS = r"(?:(?:model|module|param|policy|net|lora|adapter|layer|weight)\w*|\bp)(?:\.data)?"
_CASTS = re.compile(
    rf"{_WEIGHTS}\.(?:bfloat16|half|float)\(\)|{_WEIGHTS}\.to\([^()\n]*(?:dtype|float|bf16|fp16|half|precision)|"
    r"(?:\bp|param\w*|module|layer)\.data\s*=|dtype\s*!="
)
_WORDS = {
    "format": (
        "peft adapters are float32 beside 16-bit weights in one FSDP unit: every rank stops here",
        "Pass `autocast_adapter_dtype=False` to `get_peft_model`, or cast the model first",
    ),
    "frozen": (
        "an FSDP unit mixes frozen and trainable parameters without `use_orig_params`: every rank stops here",
        "Pass `use_orig_params=True`, or wrap the frozen part as a separate unit",
    ),
}


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each model that FSDP cannot lay into flat tensors."""
    for found in run.happenings("wraps-model"):
        event = found.event
        if event.open or event.may or not run.machine.libraries.is_class(event.api, "fsdp"):
            continue
        units = _units(event.arguments.get("auto_wrap_policy"))
        model = instances(event.arguments.get("module"))
        if not units or len(model) != 1 or any(name in event.arguments for name in _IGNORED):
            continue
        kind, why = _mixture(run, found, model[0], units)
        if why is None:
            continue
        message, hint = _WORDS[kind]
        yield run.finding(
            META,
            event.module,
            event.node,
            message,
            hint=hint,
            related=(run.location(why.module, why.node, "mixed here"),),
            facts={"kind": kind},
        )


def _units(policy: Value | None) -> str:
    """Return what a unit is: the `whole` model, a `layer`, or nothing that is known."""
    if policy is None or policy.constants == (None,):
        return "whole"
    atom = policy.single
    if isinstance(atom, Partial):
        inner = atom.function.single
        return "layer" if isinstance(inner, Api) and inner.path.endswith(_BY_LAYER) else ""
    return "layer" if isinstance(atom, Instance) and str(atom.cls).endswith(_BY_LAYER) else ""


def _mixture(run: RunQuery, found: Happening, model: Instance, units: str) -> tuple[str, Event | None]:
    """Return what a unit mixes, with the call that made it so."""
    event, maker = found.event, run.makers.get(model)
    keeps = event.arguments.get("use_orig_params")
    is_flat = keeps is None or keeps.constants == (False,)
    if maker is not None and "adapts" in maker.tags and not maker.open:
        if _is_of_two_formats(run, maker):
            return "format", maker
        return "frozen", maker if is_flat else None
    if units != "whole" or not is_flat:
        return "frozen", None
    return "frozen", freezing_before(found).mixed(model, event.modules)


def _is_of_two_formats(run: RunQuery, adapter: Event) -> bool:
    """Return whether the base model is certainly loaded in 16 bits, and the adapters are not."""
    cast = adapter.arguments.get("autocast_adapter_dtype")
    if cast is not None and cast.constants != (True,):
        return False
    bases = [run.makers.get(atom) for atom in instances(adapter.arguments.get("model"))]
    if len(bases) != 1 or bases[0] is None or "loads" not in bases[0].tags or bases[0].open:
        return False
    if any(module.search(_CASTS) for module in run.machine.program.modules()):
        return False
    names = ("torch_dtype", "dtype")
    given = next((bases[0].arguments[name] for name in names if name in bases[0].arguments), None)
    atom = given.single if given is not None else None
    return isinstance(atom, Api) and atom.path in _HALVES and "quantization_config" not in bases[0].arguments


_ADAPTED = """\
import functools

import torch
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


def build(name):
    model = AutoModelForCausalLM.from_pretrained(name%s)
    return get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj"])%s)


def shard(name):
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    return FSDP(build(name), auto_wrap_policy=policy%s)


shard("llama")
"""
_HALF, _KEPT, _UNCAST = ", torch_dtype=torch.bfloat16", ", use_orig_params=True", ", autocast_adapter_dtype=False"
_NET = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.backbone(x))

    def freeze(self):
        for parameter in self.backbone.parameters():
            parameter.requires_grad = False
"""
_TRAIN = """\
from net import Net
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = Net()
%s
model = FSDP(model%s)
"""

EXAMPLES = (
    bad("Adapters beside bfloat16", {"train.py": _ADAPTED % (_HALF, "", _KEPT)}, "train.py:18 error"),
    bad("Adapters are trained, the rest is frozen", {"train.py": _ADAPTED % ("", "", "")}, "train.py:18"),
    bad(
        "A frozen backbone, in another file",
        {"train.py": _TRAIN % ("model.freeze()", ""), "net.py": _NET},
        "train.py:6",
    ),
    bad(
        "Frozen by name",
        {
            "net.py": _NET,
            "train.py": _TRAIN
            % ('for n, p in model.named_parameters():\n    if "head" not in n:\n        p.requires_grad = False', ""),
        },
        "train.py:8",
    ),
    good("Adapters in the format of the base", {"train.py": _ADAPTED % (_HALF, _UNCAST, _KEPT)}),
    good("All in float32", {"train.py": _ADAPTED % ("", "", _KEPT)}),
    good("The parameters stay apart", {"train.py": _TRAIN % ("model.freeze()", _KEPT), "net.py": _NET}),
    good("All of it is frozen", {"train.py": _TRAIN % ("model.requires_grad_(False)", ""), "net.py": _NET}),
    good(
        "The frozen part has a unit of its own",
        {
            "net.py": _NET,
            "train.py": _TRAIN % ("model.freeze()\nmodel.backbone = FSDP(model.backbone)", ""),
        },
    ),
    good(
        "A policy from elsewhere",
        {
            "train.py": (_ADAPTED % (_HALF, "", "")).replace(
                "functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})",
                "functools.partial(fsdp_auto_wrap_policy, build)",
            )
        },
    ),
)
