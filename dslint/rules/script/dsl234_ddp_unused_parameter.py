"""A layer of a `DistributedDataParallel` model takes no part in the loss.

**What.** A model of the project is wrapped in `DistributedDataParallel` without `find_unused_parameters=True`, and has
a layer that no method uses, as one of a `ModuleDict` whose layers are all named, one that `forward` uses only under a
condition that the training calls never meet (`if images is not None:`, and no images are passed), one that some steps
use and others do not (`epoch < warmup`), or one that gives an output of the model which no step reads (`logits, _ =
model(x)`), or one that only another forward pass with a backward pass of its own uses (`model(x, "actor")`, then
`model(x, "critic")`). The same of a model that `accelerator.prepare` wraps, where the run has several processes and
neither DeepSpeed nor FSDP.

**Why it hurts.** DDP waits for the gradient of every parameter before a step is done. A parameter that got none makes
the *next* forward raise `RuntimeError: Expected to have finished reduction in the prior iteration`. Where only some
ranks leave the layer out, those raise and the others wait for a gradient that does not come. On one GPU, without the
wrapper, the same script runs.

**Fix.** Delete the layer, or freeze it before wrapping, or pass `find_unused_parameters=True`, which walks the graph of
each step to find such parameters.

**When it stays quiet.** `find_unused_parameters=True` and `static_graph=True`; layers that code outside of the methods
of the model touches by name; what is frozen, and projects that freeze by names or in ways that cannot be followed,
loop over parameters, or add something times zero to a loss;
classes that look at their layers in bulk (`getattr`, `named_modules()`), or with library bases other than `nn.Module`;
layers made in a branch; conditions that nobody knows; forward passes under `no_grad`.

**Evidence.** Two gloo ranks, torch 2.13: a layer that no rank uses, and one that one rank leaves out: the second
forward raises; with `find_unused_parameters=True` it passes, and so does a model whose layers are all used.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Seq, events
from dslint.python.queries.leftout import Layer, LeftOut, LeftOuts
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.accelerators import prepared_ddp
from dslint.rules.training.lightnings import waits_for_all_gradients
from dslint.rules.wrapping.ddps import plain_wrapper
from dslint.rules.wrapping.frozen import frozen_at
from dslint.rules.wrapping.unreadoutputs import Unread, unread_outputs

META = RuleMeta(
    code="DSL234",
    name="ddp-unused-parameter",
    kind="script",
    severity=Severity.WARNING,
    summary="a layer of a DDP model gets no gradient: the second step raises",
    markers=(r"DistributedDataParallel|DDP|init_process_group|\.backward\(|lightning",),
    versions=("torch>=1.8",),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "https://github.com/pytorch/pytorch/issues/43259",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each wrapper of a model that has a layer without a gradient."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        wraps = [event for event in events(tree) if event.tags & {"wraps-model", "trainer-train", "prepares"}]
        if not wraps or not any(event.tags & {"backward", "trainer-train"} for event in events(tree)):
            continue
        for event in wraps:
            made = plain_wrapper(run, event) or prepared_ddp(run, event)
            again = any(other is not event and other.modules & event.modules for other in wraps)
            trains = made is not None or waits_for_all_gradients(run, event)
            if not trains or again or id(event.node) in seen:
                continue
            layers = LeftOuts(run.machine, tree, event, made, frozen_at(run, event))
            found = next(layers.find(), None)
            unread = _unread(run, tree, layers, made) if found is None and made is not None else None
            if found is not None or unread is not None:
                seen.add(id(event.node))
                yield _finding(run, event, found) if found is not None else _of_output(run, event, unread)


def _unread(run: RunQuery, tree: Seq, layers: LeftOuts, made: Instance) -> tuple[Layer, Unread] | None:
    """Return the first layer whose output no training step reads."""
    for unread in unread_outputs(run, tree, made):
        layer = layers.layer(unread.branch.owner, unread.branch.layer)
        if layer is not None:
            return layer, unread
    return None


def _of_output(run: RunQuery, wrap: Event, found: tuple[Layer, Unread] | None) -> Finding:
    assert found is not None
    layer, unread = found
    place = f"`{unread.branch.place}`" if isinstance(unread.branch.place, str) else f"number {unread.branch.place}"
    return run.finding(
        META,
        wrap.module,
        wrap.node,
        f"no step reads output {place} of the DDP model: `{layer.name}` gets no gradient, and the next forward raises",
        hint="Delete or freeze the layer, use its output, or pass `find_unused_parameters=True`",
        related=(
            run.location(layer.owner.module, layer.made, "the layer is made here"),
            run.location(unread.forward.module, unread.forward.node, "the output is not read"),
        ),
        facts={"layer": layer.name, "conditional": False},
    )


def _finding(run: RunQuery, wrap: Event, found: LeftOut) -> Finding:
    layer, call, test = found.layer, found.call, found.test
    why = "which nothing uses: it gets no gradient"
    related = [run.location(layer.owner.module, layer.made, "the layer is made here")]
    if test is not None:
        asked = run.text(layer.owner.module, test, 40)
        how = "in some steps" if found.often else "on request"
        why = f"which `forward` uses {how} (`{asked}`): otherwise it gets no gradient"
        related += [
            run.location(layer.owner.module, test, "decides whether the layer is used"),
            run.location(call.module, call.node, "the forward pass of the wrapper"),
        ]
    return run.finding(
        META,
        wrap.module,
        wrap.node,
        f"the DDP model has the layer `{layer.name}`, {why}, and the next forward raises",
        hint="Delete or freeze the layer, or pass `find_unused_parameters=True`",
        related=tuple(related),
        facts={"layer": layer.name, "conditional": test is not None},
    )


_HEAD = """\
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.text = nn.Linear(4, 4)
        self.image = nn.Linear(4, 4)

"""
_CONDITIONAL = """\
    def forward(self, text, images=None):
        hidden = self.text(text)
        if images is not None:
            hidden = hidden + self.image(images)
        return hidden


"""
_TRAIN = """\
def train(device, loader, SGD):
    model = DistributedDataParallel(Model().to(device))
    optimizer = SGD(model.parameters())
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
"""

_STEPS = (
    _HEAD
    + "    def forward(self, text, images):\n        hidden = self.text(text)\n"
    + "        return hidden + self.image(hidden) if images else hidden\n\n\n"
    + """\
def train(device, loader, SGD, args):
    model = DistributedDataParallel(Model().to(device))
    optimizer = SGD(model.parameters())
    for epoch in range(args.epochs):
        warmup = %s
        for batch in loader:
            model(batch, warmup).mean().backward()
            optimizer.step()
"""
)

_LIGHTNING = """\
import lightning as L
import torch
from torch import nn


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.extra = nn.Linear(8, 2)

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.mse_loss(%s, y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def main(loader):
    trainer = L.Trainer(strategy="%s", devices=4)
    trainer.fit(Net(), loader)


main([])
"""

_DETECTOR = """\
import copy

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.box = nn.Linear(8, 4)
        self.score = nn.Linear(8, 1)

    def forward(self, x):
        hidden = self.stem(x)
        return {"box": self.box(hidden), "score": self.score(hidden)}


def box_loss(out, target):
    return (out["box"] - target).abs().mean()


def train(loader, device, lr):
    net = Detector().to(device)
    teacher = copy.deepcopy(net)
    teacher.requires_grad_(False)
    for parameter in net.%s.parameters():
        parameter.requires_grad = False
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr)
    for x, y in loader:
        out = model(x)
        loss = box_loss(out, y)%s
        loss.backward()
        optimizer.step()
"""
_PAIR = """\
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 2)
        self.spread = nn.Linear(8, 2)
        self.decoder = nn.Linear(2, 8)

    def forward(self, x):
        spread = self.spread(x)
        return self.decoder(self.encoder(x)), spread


def train(loader, device, lr):
    model = DistributedDataParallel(Coder().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr)
    for x in loader:
        again, spread = model(x)
        loss = (again - x).square().mean()%s
        print(spread.detach().mean())
        loss.backward()
        optimizer.step()
"""

_ACCELERATE = """\
import torch
from accelerate import Accelerator
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Linear(4, 4)
        self.critic = nn.Linear(4, 1)

    def forward(self, x, task="actor"):
        return self.actor(x) if task == "actor" else self.critic(x)


def main():
    accelerator = Accelerator()
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    net, optimizer = accelerator.prepare(net, optimizer)
    for x in torch.load("rows.pt"):
        accelerator.backward(net(x).mean()%s)
%s
"""
_CRITIC = """\
        accelerator.backward(net(x, "critic").mean())
"""

EXAMPLES = (
    bad(
        "two steps, each with its own part, under accelerate",
        {"train.py": _ACCELERATE % ("", _CRITIC)},
        at="train.py:20 warning",
        world_size=2,
    ),
    good("one step with both parts", {"train.py": _ACCELERATE % (' + net(x, "critic").mean()', "")}, world_size=2),
    bad("an output that no step reads", {"train.py": _DETECTOR % ("stem", "")}, at="train.py:30 warning"),
    bad("an output that is only printed", {"train.py": _PAIR % ""}, at="train.py:19 warning"),
    good(
        "every output is read, or its layer is frozen",
        {
            "read.py": _DETECTOR % ("stem", ' + out["score"].mean()'),
            "frozen.py": _DETECTOR % ("score", ""),
            "pair.py": _PAIR % " + spread.mean()",
        },
    ),
    bad("in Lightning", {"train.py": _LIGHTNING % ("self.body(x)", "ddp")}, at="train.py:22"),
    good(
        "Lightning, every layer is used, or it looks for them",
        {
            "used.py": _LIGHTNING % ("self.extra(self.body(x))", "ddp"),
            "told.py": _LIGHTNING % ("self.body(x)", "ddp_find_unused_parameters_true"),
            "alone.py": (_LIGHTNING % ("self.body(x)", "auto")).replace("devices=4", "devices=1"),
        },
    ),
    bad("a layer that the first epochs use", {"train.py": _STEPS % "epoch < args.warmup"}, at="train.py:17"),
    good("a layer that a setting chooses", {"train.py": _STEPS % "args.warmup"}),
    bad(
        "a layer that nothing uses, in a model that a function of another file builds and wraps",
        {
            "model.py": _HEAD.replace("from torch.nn.parallel import DistributedDataParallel\n", "")
            + "    def forward(self, text):\n        return self.text(text)\n",
            "build.py": "from torch.nn.parallel import DistributedDataParallel\n\nfrom model import Model\n\n\n"
            "def build(device, **options):\n    return DistributedDataParallel(Model().to(device), **options)\n",
            "train.py": "import torch.distributed as dist\n\nfrom build import build\n\ndist.init_process_group()\n\n\n"
            + _TRAIN.replace("DistributedDataParallel(Model().to(device))", "build(device)"),
        },
        at="build.py:7",
    ),
    bad(
        "a layer that nothing uses",
        {"train.py": _HEAD + "    def forward(self, text):\n        return self.text(text)\n\n\n" + _TRAIN},
        at="train.py:16",
    ),
    bad(
        "a layer for an argument that the training call leaves out",
        {"train.py": _HEAD + _CONDITIONAL + _TRAIN},
        at="train.py:19",
    ),
    bad(
        "a layer that nothing uses, in a part of the model",
        {
            "train.py": _HEAD
            + "    def forward(self, text):\n        return self.text(text)\n\n\n"
            + "class Whole(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            + "        self.part = Model()\n\n    def forward(self, text):\n        return self.part(text)\n\n\n"
            + _TRAIN.replace("Model()", "Whole()")
        },
        at="train.py:25",
    ),
    good(
        "every layer is used, or DDP is told",
        {
            "all.py": _HEAD + "    def forward(self, text):\n        return self.image(self.text(text))\n\n\n" + _TRAIN,
            "told.py": _HEAD + _CONDITIONAL + _TRAIN.replace("(device))", "(device), find_unused_parameters=True)"),
        },
    ),
    good(
        "the training call gives the argument",
        {"train.py": _HEAD + _CONDITIONAL + _TRAIN.replace("model(batch)", "model(batch.text, batch.images)")},
    ),
    good(
        "the layer is frozen, or reached from outside",
        {
            "frozen.py": _HEAD
            + "    def forward(self, text):\n        return self.text(text)\n\n\n"
            + "def freeze(model):\n    for weight in model.image.parameters():\n"
            + "        weight.requires_grad = False\n\n\n"
            + _TRAIN,
            "outside.py": _HEAD
            + "    def forward(self, text):\n        return self.text(text)\n\n\n"
            + _TRAIN.replace("model(batch).mean()", "model.module.image(model(batch)).mean()"),
        },
    ),
    good(
        "a model that no wrapper gets",
        {
            "train.py": _HEAD + "    def forward(self, text):\n        return self.text(text)\n\n\n"
            "def train(device, loader, net):\n    model = DistributedDataParallel(net)\n"
            "    for batch in loader:\n        model(batch).mean().backward()\n"
        },
    ),
)
