"""A DDP model whose backward pass needs its buffers runs twice before it: batch normalisation, or buffers of its own.

**What.** `loss = criterion(model(real), model(fake))`, or a forward pass in a loop over crops or views, and one
`backward()` (or `torch.autograd.grad`) after them, with a `DistributedDataParallel` model that broadcasts its buffers
(the default), or one that `accelerator.prepare` wraps in it. It holds `BatchNorm` layers (a ResNet of torchvision,
too), or buffers that `forward` multiplies with or looks up (`register_buffer("kernel", ...)` and a convolution with
it). The usual case is the discriminator of a GAN.

**Why it hurts.** Each forward pass of DDP first copies the buffers of rank 0 (the running mean and variance) over those
of this rank. Autograd has kept them for the backward pass of the first one, and `backward()` stops with "one of the
variables needed for gradient computation has been modified by an inplace operation". In one process the same code
works. Releases of torch from 2026 on no longer count the copy as a change, and compute with what is left.

**Fix.** Join the inputs and run the model once, pass `broadcast_buffers=False`, or convert the layers with
`nn.SyncBatchNorm.convert_sync_batchnorm`.

**When it stays quiet.** A backward pass between the two; a forward pass under `no_grad`; `autograd.grad` that keeps the
graph; `broadcast_buffers=False`; synchronised layers; models whose layers cannot be read; buffers that are only added
or compared, which autograd does not keep.

**Evidence.** Reports on torch 1.1 to 2.10 (pytorch/pytorch issues 22095, 65907, 110363, 175024); pull request 175851
makes `_sync_buffers` keep the version counters. torch 2.13 on two gloo ranks trains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event, Loop, Node, Try, children, events
from dslint.python.queries.skipped import is_frozen
from dslint.python.values import ClassAtom, Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.intent import intends_several
from dslint.rules.runs import RunQuery
from dslint.rules.training.accelerators import prepared_ddps
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.ownbuffers import kept_buffers

META = RuleMeta(
    code="DSL295",
    name="buffers-sent-between-forwards",
    kind="script",
    severity=Severity.WARNING,
    summary="a DDP model that sends its buffers runs twice before one backward pass, which then raises",
    markers=(r"torch|DDP|accelerat|backward|init_process_group",),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "https://github.com/pytorch/pytorch/issues/22095",
        "https://github.com/pytorch/pytorch/issues/175024",
    ),
    depends_on_run=True,
    no_experiment="only releases of torch before pull request 175851 raise, and the one that records is newer",
)
_NORM = ("torch.nn.BatchNorm1d", "torch.nn.BatchNorm2d", "torch.nn.BatchNorm3d")
_Pair = tuple[Event, Event]
_Wrapper = tuple[Event, str]  # the call that wraps, and what it sends, in words
_STATISTICS = "the statistics of its batch normalisation"


@dataclass(slots=True)
class _Passes:
    """Reads a tree in its order: which wrappers have run since the last backward pass."""

    run: RunQuery
    wrappers: dict[Instance, _Wrapper]
    before: dict[Instance, Event] = field(default_factory=dict)
    twice: dict[Instance, _Pair] = field(default_factory=dict)
    found: list[tuple[Event, _Pair]] = field(default_factory=list)

    def read(self, node: Node) -> None:
        """Follow one node; what the sides of a test do is joined."""
        if isinstance(node, Event):
            self._event(node)
        elif isinstance(node, Loop):
            self._loop(node)
        elif isinstance(node, Alt):
            begin = (dict(self.before), dict(self.twice))
            self.read(node.then)
            before, twice = self.before, self.twice
            self.before, self.twice = begin
            self.read(node.orelse)
            self.before, self.twice = self.before | before, self.twice | twice
        elif isinstance(node, Try):
            self.read(node.body)
        elif not is_frozen(node):
            for child in children(node):
                self.read(child)

    def _event(self, event: Event) -> None:
        if "ddp-forward" in event.tags:
            for wrapper in instances(event.receiver):
                if wrapper in self.before and wrapper in self.wrappers:
                    self.twice.setdefault(wrapper, (self.before[wrapper], event))
                self.before.setdefault(wrapper, event)
        elif _is_backward(event):
            behind = {wrapper for _, _, made_by in event.snapshot.values() for wrapper in made_by}
            self.found += [(event, pair) for wrapper, pair in self.twice.items() if wrapper in behind]
            self.before, self.twice = {}, {}

    def _loop(self, node: Loop) -> None:
        """What ran before belongs to another turn; a loop without a backward pass runs the model again and again."""
        before, twice = self.before, self.twice
        self.before, self.twice = {}, {}
        self.read(node.body)
        libraries = self.run.machine.libraries
        loads = any(isinstance(a.cls, str) and libraries.is_class(a.cls, "loader") for a in instances(node.subject))
        has_backward = any(map(_is_backward, events(node.body)))
        again = {} if loads or has_backward else {w: (e, e) for w, e in self.before.items() if w in self.wrappers}
        self.before, self.twice = before | self.before, twice | self.twice | again
        if has_backward or loads:
            self.before, self.twice = {}, {}


def _is_backward(event: Event) -> bool:
    """Return whether a call runs a backward pass after which the graph is gone."""
    if "computes-gradient" not in event.tags:
        return "backward" in event.tags
    kept = [event.arguments.get(name) for name in ("retain_graph", "create_graph")]
    return not event.open and all(value is None or value.constants in ((False,), (None,)) for value in kept)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the second of two forward passes that one backward pass follows."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        wrappers = dict(_wrappers(run, list(events(tree))))
        if not wrappers:
            continue
        passes = _Passes(run, wrappers)
        passes.read(tree)
        for backward, (first, second) in passes.found:
            if id(second.node) not in seen:
                seen.add(id(second.node))
                yield _finding(run, backward, first, second, wrappers)


def _wrappers(run: RunQuery, tree: list[Event]) -> Iterator[tuple[Instance, _Wrapper]]:
    """Yield the wrappers that send buffers which a backward pass needs, with the call that made them."""
    synced = {a for e in tree if "converts-sync-batch-norm" in e.tags for a in instances(e.arguments.get("module"))}
    for event in tree:
        if "prepares" in event.tags:
            yield from _prepared(run, event, synced)
            continue
        made = event.result.single if event.result is not None else None
        if "wraps-model" not in event.tags or not isinstance(made, Instance) or event.open:
            continue
        is_ddp = isinstance(made.cls, str) and run.machine.libraries.is_class(made.cls, "ddp")
        sends = event.arguments.get("broadcast_buffers")
        if not is_ddp or (sends is not None and sends.constants != (True,)):
            continue
        what = _needed(run, event.modules, synced)
        if what:
            yield made, (event, what)


def _prepared(run: RunQuery, event: Event, synced: set[Instance]) -> Iterator[tuple[Instance, _Wrapper]]:
    """Yield the models that accelerate wraps in DDP, where the script is for several processes."""
    if run.context.world_size.get_or(0) <= 1 and not intends_several(run):
        return
    for made, modules in prepared_ddps(run, event, "broadcast_buffers").items():
        what = _needed(run, modules, synced)
        if what:
            yield made, (event, what)


def _needed(run: RunQuery, modules: frozenset[Instance], synced: set[Instance]) -> str:
    """Return the buffers of some modules that a backward pass needs, in words; nothing where there are none."""
    if not synced & modules and any(_keeps_statistics(run, atom) for atom in modules):
        return _STATISTICS
    classes = {atom.cls for atom in modules if isinstance(atom.cls, ClassAtom)}
    kept = sorted(name for cls in classes for name in kept_buffers(cls.node))
    return f"its buffer `{kept[0]}`" if kept else ""


def _keeps_statistics(run: RunQuery, atom: Instance) -> bool:
    """Return whether a module is a batch normalisation, or a model of a library that holds some."""
    if isinstance(atom.cls, str) and atom.cls in _NORM:
        return True
    made = run.makers.get(atom)
    return made is not None and "has-batch-norm" in made.tags and not made.open and "norm_layer" not in made.arguments


def _finding(
    run: RunQuery, backward: Event, first: Event, second: Event, wrappers: dict[Instance, _Wrapper]
) -> Finding:
    wrap, what = next(wrappers[atom] for atom in instances(second.receiver) if atom in wrappers)
    other = () if first is second else (run.location(first.module, first.node, "the first forward pass"),)
    return run.finding(
        META,
        second.module,
        second.node,
        f"The model runs again before the backward pass, which then raises: DDP overwrites {what}",
        hint="Join the inputs and run the model once, or wrap it with `broadcast_buffers=False`",
        related=(
            *other,
            run.location(backward.module, backward.node, "raises"),
            run.location(wrap.module, wrap.node, "wrapped here"),
        ),
    )


_MODEL = """\
from torch import nn


def block(a, b):
    return [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()]


class Critic(nn.Module):
    def __init__(self, norm=True):
        super().__init__()
        self.net = nn.Sequential(*(block(8, 8) if norm else [nn.Linear(8, 8)]), nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x)
"""
_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Critic


def main(loader, local_rank):
    dist.init_process_group("nccl")
    critic = DDP(%s, device_ids=[local_rank]%s)
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    for real, fake in loader:
        optimizer.zero_grad()
%s
        optimizer.step()
"""
_TWICE = "        loss = critic(fake).mean() - critic(real).mean()\n        loss.backward()"
_VIEWS = """\
        outputs = []
        for view in real.chunk(4):
            outputs.append(critic(view))
        torch.cat(outputs).mean().backward()"""
_BETWEEN = "        critic(fake).mean().backward()\n        (-critic(real).mean()).backward()"
_FROZEN = """\
        with torch.no_grad():
            target = critic(fake)
        (critic(real) - target).mean().backward()"""
_GRAD = """\
        clean = critic(real)
        loss = (clean - critic(fake)).mean()
        grads = torch.autograd.grad(loss, critic.parameters()%s)"""
_GRADS = """\
        for view in real.chunk(4):
            grads = torch.autograd.grad(critic(view).mean(), critic.parameters())"""
_RESNET = """\
import os

import torch
import torch.distributed as dist
import torchvision
from torch import nn

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = torchvision.models.resnet50()
net.fc = %s
net = nn.parallel.DistributedDataParallel(net.cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for images, attacked, labels in torch.load("batches.pt"):
    optimizer.zero_grad()
    clean = net(images)
    other = net(attacked)
    (nn.functional.cross_entropy(clean, labels) + nn.functional.cross_entropy(other, labels)).backward()
    optimizer.step()
"""
_OTHER = _RESNET.replace("50()", "50(norm_layer=own)") % "nn.Linear(2048, 1)"
_KERNEL = """\
import torch
from torch import nn


class Blur(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kernel", torch.ones(8, 1, 3, 3) / 9)

    def forward(self, x):
        return %s


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), Blur(), nn.Conv2d(8, 1, 3))

    def forward(self, x):
        return self.net(x)
"""
_CLASS = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from model import Critic


class Gan:
    def __init__(self):
        dist.init_process_group("gloo")
        self.critic = DistributedDataParallel(Critic())
        self.optimizer = torch.optim.Adam(self.critic.parameters())

    def score(self, x):
        return self.critic(x).mean()

    def step(self, real, fake):
        real_score = self.score(real)
        loss = self.score(fake) - real_score
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


gan = Gan()
for real, fake in torch.load("batches.pt"):
    gan.step(real, fake)
"""
_ACCELERATE = """\
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch import nn

from model import Critic


def score(net, *waves):
    return [net(wave).mean() for wave in waves]


def main(loader):
    accelerator = Accelerator(%s)
    gen, critic = %s
    optimizer = torch.optim.AdamW(critic.parameters())
    gen, critic, optimizer, loader = accelerator.prepare(gen, critic, optimizer, loader)
    for mel, wave in loader:
        real, fake = %s
        optimizer.zero_grad()
        accelerator.backward(fake - real)
        optimizer.step()


main(torch.load("batches.pt"))
"""


def _accelerate(
    told: str = "", models: str = "nn.Linear(8, 8), Critic()", run: str = "critic(wave), critic(gen(mel).detach())"
) -> dict[str, str]:
    train = _ACCELERATE % (told, models, run)
    return {"train.py": train, "model.py": _MODEL, "run.sh": "accelerate launch --multi_gpu --num_processes 2 train.py"}


_VIEW = "kwargs_handlers=[DistributedDataParallelKwargs(%s)]"
EXAMPLES = (
    bad("accelerate wraps the critic", _accelerate(), at="train.py:19 warning"),
    bad("through a helper", _accelerate(run="score(critic, wave, gen(mel).detach())"), at="train.py:10 warning"),
    bad("accelerate gives DDP another setting", _accelerate(_VIEW % "gradient_as_bucket_view=True"),
        at="train.py:19 warning"),
    good("accelerate wraps, and no buffers are sent", _accelerate(_VIEW % "broadcast_buffers=False")),
    good("accelerate wraps a critic without buffers", _accelerate(models="Critic(), Critic(norm=False)")),
    good("accelerate wraps a synchronised critic", _accelerate(
        models="nn.Linear(8, 8), nn.SyncBatchNorm.convert_sync_batchnorm(Critic())")),
    good("the critic runs once", _accelerate(run="critic(torch.cat([wave, gen(mel).detach()])).chunk(2)")),
    bad("a buffer of the project", {
        "train.py": _TRAIN % ("Critic()", "", _TWICE),
        "model.py": _KERNEL % "nn.functional.conv2d(x, self.kernel, groups=8)"}, at="train.py:14 warning"),
    good("a buffer that is added", {
        "train.py": _TRAIN % ("Critic()", "", _TWICE), "model.py": _KERNEL % "x + self.kernel.mean()"}),
    bad("real and generated", {"train.py": _TRAIN % ("Critic()", "", _TWICE), "model.py": _MODEL}, at="train.py:14"),
    bad("one view after the other", {"train.py": _TRAIN % ("Critic()", "", _VIEWS), "model.py": _MODEL}, "train.py:16"),
    bad("through a method", {"train.py": _CLASS, "model.py": _MODEL}, at="train.py:16 warning"),
    bad("a model of torchvision", {"train.py": _RESNET % "nn.Linear(2048, 1)"}, at="train.py:17 warning"),
    bad("`autograd.grad`", {"train.py": _TRAIN % ("Critic()", "", _GRAD % ""), "model.py": _MODEL}, at="train.py:15"),
    good("`autograd.grad` after each", {
        "train.py": _TRAIN % ("Critic()", "", _GRADS), "model.py": _MODEL}),
    good("a model of torchvision with other layers", {"train.py": _OTHER}),
    good("a backward pass between", {"train.py": _TRAIN % ("Critic()", "", _BETWEEN), "model.py": _MODEL}),
    good("without gradients", {"train.py": _TRAIN % ("Critic()", "", _FROZEN), "model.py": _MODEL}),
    good("no buffers are sent", {
        "train.py": _TRAIN % ("Critic()", ", broadcast_buffers=False", _TWICE), "model.py": _MODEL}),
    good("no batch normalisation", {"train.py": _TRAIN % ("Critic(norm=False)", "", _TWICE), "model.py": _MODEL}),
    good("synchronised", {
        "train.py": _TRAIN % ("torch.nn.SyncBatchNorm.convert_sync_batchnorm(Critic())", "", _TWICE),
        "model.py": _MODEL}),
)  # fmt: skip
