"""FSDP without a wrapping policy makes one unit of the whole model.

**What.** `FullyShardedDataParallel(model)` without `auto_wrap_policy` around a model of several layers, of which none
is wrapped by itself; or `FSDPStrategy()` and `strategy="fsdp"` of Lightning without one.

**Why it hurts.** FSDP gathers the parameters of a unit before it runs, and frees them after. The whole model is one
unit here: each rank holds all parameters at once in forward and backward, and no layer computes while the next one is
gathered. Memory is near that of plain data parallelism, and a model runs out of memory that would fit layer by layer.

**Fix.** `auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})`, or
`ModuleWrapPolicy({Block})`; in Lightning `FSDPStrategy(auto_wrap_policy={Block})`.

**When it stays quiet.** Layers are wrapped by hand (`wrap`, `auto_wrap`, a second FSDP, `configure_model`); a policy
that cannot be read; `NO_SHARD` and `SHARD_GRAD_OP`, which keep whole parameters anyway; a model that is unknown, or
whose code shows no layers; `fully_shard`; accelerate, whose launch configuration names the policy.

**Evidence.** Two gloo ranks, torch 2.13: without a policy all parameters of the model are gathered at once, with one
unit a layer only those of one layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.python.values import Api, ClassAtom, Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import has_several
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL641",
    name="fsdp-single-unit",
    kind="script",
    severity=Severity.WARNING,
    summary="FSDP without a wrapping policy gathers the whole model at once: sharding saves hardly any memory",
    markers=(r"FullyShardedDataParallel|FSDPStrategy|strategy\s*=\s*[\"']fsdp",),
    references=(
        "https://github.com/facebookresearch/fairscale/issues/1050",
        "https://pytorch.org/tutorials/intermediate/FSDP_advanced_tutorial.html",
    ),
    depends_on_run=True,
)
_SHARDS = ("FULL_SHARD", "HYBRID_SHARD")
# Code that makes units of its own.
_WRAPS = re.compile(
    r"import (?:\([^)]*|[^\n]*)\b(?:auto_|enable_)?wrap\b|wrap\.(?:auto_|enable_)?wrap\(|fully_shard|"
    r"def configure_(?:model|sharded_model)\b|set_auto_wrap_policy"
)
# Code of a model that has several layers.
_LAYERS = re.compile(r"ModuleList|Sequential|Transformer\w*\(|from_(?:pretrained|config)\(|create_model\(")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each wrapper and each strategy that makes one unit of a model."""
    if run.context.is_one_process:
        return
    texts = [module.code for module in run.machine.program.modules()]
    if any(map(_WRAPS.search, texts)):
        return
    for event, node in (*_wrappers(run), *(_strategies(run) if any(map(_LAYERS.search, texts)) else ())):
        yield run.finding(
            META,
            event.module,
            event.nodes.get(node, event.node),
            "FSDP has no `auto_wrap_policy`: the whole model is one unit, gathered at once, and sharding saves little",
            hint="Pass `auto_wrap_policy`, so that each layer is a separate unit",
        )


def _wrappers(run: RunQuery) -> Iterator[tuple[Event, str]]:
    """Yield the calls of FSDP for a whole model that no other call of FSDP touches."""
    found = [h for h in run.occurrences("wraps-model") if run.machine.libraries.is_class(h.event.api, "fsdp")]
    if len({id(h.event.node) for h in found}) != 1:
        return  # one may make units for the other
    # A function that nobody calls with a model is read once more without one.
    for event, around in ((h.event, h.around) for h in found):
        model = instances(event.arguments.get("module"))
        is_open = event.open or event.may or any(isinstance(node, Loop) for node in around)
        if not is_open and _is_whole(event, "") and len(model) == 1 and _has_layers(run, model[0]):
            yield event, ""
            return


def _strategies(run: RunQuery) -> Iterator[tuple[Event, str]]:
    """Yield the strategies of Lightning, by their class or by their name."""
    for found in run.happenings("group-options"):
        event = found.event
        if event.api.endswith(".FSDPStrategy") and not event.open and _is_whole(event, "FULL_SHARD"):
            yield event, ""
    for found in run.happenings("trainer"):
        event = found.event
        named = event.arguments.get("strategy")
        is_fsdp = named is not None and named.constants == ("fsdp",)
        if is_fsdp and event.api.startswith(("lightning.", "pytorch_lightning.")) and has_several(event):
            yield event, "strategy"


def _is_whole(event: Event, default: str) -> bool:
    """Return whether a call has no policy, and shards parameters, for certain."""
    policy, strategy = event.arguments.get("auto_wrap_policy"), event.arguments.get("sharding_strategy")
    if policy is not None and policy.constants != (None,):
        return False
    return strategy is None or strategy.constants in ((None,), (default,)) or _name(strategy) in _SHARDS


def _name(strategy: Value) -> str:
    atom = strategy.single
    if isinstance(atom, Api):
        return atom.path.rpartition(".")[2]
    return str(strategy.constants[0]) if strategy.constants and len(strategy.constants) == 1 else ""


def _has_layers(run: RunQuery, model: Instance) -> bool:
    """Return whether a model certainly has several layers: a library gives it, or its code lists them."""
    if isinstance(model.cls, ClassAtom):
        return model.cls.module.search(_LAYERS) is not None
    maker = run.makers.get(model)
    is_loaded = maker is not None and "loads" in maker.tags
    return is_loaded or (isinstance(model.cls, str) and model.cls.startswith(("transformers.", "torchvision.")))


_MODEL = """\
from torch import nn


class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""
_TRAIN = """\
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Net


def shard(model):
%s    return FSDP(model, device_id=int(os.environ["LOCAL_RANK"])%s)


def main(loader):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = shard(Net(24))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    dist.destroy_process_group()
"""
_LOADED = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import AutoModelForCausalLM

torch.distributed.init_process_group("nccl")
net = AutoModelForCausalLM.from_pretrained("big")
options = {"use_orig_params": True, "auto_wrap_policy": %s}
model = FullyShardedDataParallel(net, **options)
"""
_LIGHTNING = """\
import lightning as L
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
%s
    def training_step(self, batch, index):
        return self.layers(batch).mean()


trainer = L.Trainer(devices=8, accelerator="gpu", strategy=%s)
trainer.fit(Net())
"""
_CONFIGURED = "\n    def configure_model(self):\n        self.head = nn.Linear(8, 8)\n"
_EACH = "    for index, layer in enumerate(model.layers):\n        model.layers[index] = FSDP(layer)\n"

EXAMPLES = (
    bad("a model of the project", {"train.py": _TRAIN % ("", ""), "model.py": _MODEL}, at="train.py:13 warning"),
    bad(
        "hybrid sharding",
        {"train.py": _TRAIN % ("", ", sharding_strategy=ShardingStrategy.HYBRID_SHARD"), "model.py": _MODEL},
        at="train.py:13",
    ),
    bad("a model of a library", {"train.py": _LOADED % "None"}, at="train.py:8"),
    bad(
        "the strategy of Lightning", {"train.py": _LIGHTNING % ("", "FSDPStrategy(cpu_offload=True)")}, at="train.py:15"
    ),
    bad("the strategy by its name", {"train.py": _LIGHTNING % ("", '"fsdp"')}, at="train.py:15"),
    good("a policy", {"train.py": _TRAIN % ("", ", auto_wrap_policy=ModuleWrapPolicy({Net})"), "model.py": _MODEL}),
    good(
        "whole parameters are wanted",
        {"train.py": _TRAIN % ("", ", sharding_strategy=ShardingStrategy.SHARD_GRAD_OP"), "model.py": _MODEL},
    ),
    good("each layer is wrapped", {"train.py": _TRAIN % (_EACH, ""), "model.py": _MODEL}),
    good("a policy that nobody can read", {"train.py": _LOADED % "load_policy()"}),
    good("the model makes its units", {"train.py": _LIGHTNING % (_CONFIGURED, '"fsdp"')}),
    good("a policy for Lightning", {"train.py": _LIGHTNING % ("", "FSDPStrategy(auto_wrap_policy={nn.Linear})")}),
)
