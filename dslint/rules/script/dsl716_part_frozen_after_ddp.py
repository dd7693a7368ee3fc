"""A part of the model is frozen after `DistributedDataParallel` has wrapped the model.

**What.** `p.requires_grad = False`, `requires_grad_(False)` or `requires_grad_(epoch >= 2)` for the parameters of one
part, below the line that wraps the model: in a hook, in a helper, or in the loop over the epochs. The wrapper was
made without `find_unused_parameters=True`.

**Why it hurts.** DDP takes down what requires gradients when it is made, and waits for all of them in every step. A
part that is frozen later never gives its own: the second forward raises `RuntimeError: Expected to have finished
reduction in the prior iteration`. On one GPU, without the wrapper, the same code runs.

**Fix.** Freeze before the model is wrapped, and wrap it anew when the part becomes trainable. Or pass
`find_unused_parameters=True`, or keep the part trainable and give its group a learning rate of zero.

**When it stays quiet.** The whole model is frozen, as in the turns of a GAN: then DDP waits for nothing; the same part
was frozen before it was wrapped; `find_unused_parameters` or `static_graph` is passed; the model is wrapped again; no
training step follows; what the parameters are told cannot be read.

**Evidence.** Two gloo ranks, torch 2.13: with the first layer frozen after wrapping, the second forward raises; frozen
before, or never, it passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.python.queries.skipped import is_frozen
from dslint.python.values import Instance, Unknown
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery, happenings_of
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.ddps import plain_wrapper
from dslint.rules.wrapping.frozen import Freezing, is_by_name, told

META = RuleMeta(
    code="DSL716",
    name="part-frozen-after-ddp",
    kind="script",
    severity=Severity.WARNING,
    summary="a part of a DDP model is frozen after it was wrapped: DDP waits for its gradients, and a step raises",
    markers=(r"DistributedDataParallel|DDP", r"requires_grad", r"\.backward\("),
    references=(
        "https://github.com/JDAI-CV/fast-reid/issues/178",
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    depends_on_run=True,
)


@dataclass(slots=True)
class _Reader:
    """Follows the events of an entry: which wrappers wait for which modules, and what is frozen under them."""

    run: RunQuery
    wraps: dict[Instance, Event] = field(default_factory=dict)  # of each plain wrapper, what made it
    frozen: Freezing = field(default_factory=Freezing)
    early: set[Instance] = field(default_factory=set)  # what was frozen when a wrapper was made
    late: list[tuple[Instance, Happening]] = field(default_factory=list)

    def read(self, happenings: list[Happening]) -> Iterator[tuple[Event, Event]]:
        """Yield what freezes a part under a wrapper that runs afterwards, with what made the wrapper."""
        steps: list[tuple[int, Happening]] = []
        for at, found in enumerate(happenings):
            event = found.event
            if "wraps-model" in event.tags:
                self._wrapping(event)
            elif "freezes" in event.tags:
                self._freezing(found)
            elif "ddp-forward" in event.tags and not any(map(is_frozen, found.around)):
                steps.append((at, found))
            self.frozen.take(found)
        order = {id(found.event): at for at, found in enumerate(happenings)}
        for wrapper, found in self.late:
            runs = (s for at, s in steps if wrapper in instances(s.event.receiver) and _follows(order, found, at, s))
            if wrapper in self.wraps and next(runs, None) is not None:
                yield found.event, self.wraps[wrapper]

    def _wrapping(self, event: Event) -> None:
        self.early |= {*self.frozen.frozen, *self.frozen.chosen}
        wrapped = event.modules
        for old in [w for w, made in self.wraps.items() if made.modules & wrapped]:
            del self.wraps[old]
        made = plain_wrapper(self.run, event)
        if made is not None:
            self.wraps[made] = event

    def _freezing(self, found: Happening) -> None:
        if not _may_freeze(self.run, found.event):
            return
        chosen = is_by_name(found)
        for owner in self.frozen.modules(found.event):
            for wrapper, made in self.wraps.items():
                whole = {wrapper, *instances(made.arguments.get("module"))}
                if owner not in self.early and (chosen if owner in whole else owner in made.modules):
                    self.late.append((wrapper, found))


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each event that freezes a part of a model under its wrapper."""
    if run.context.is_one_process or not run.has("freezes") or not run.has("backward"):
        return
    seen: set[int] = set()
    for entry, tree in run.trees():
        for event, wrap in _Reader(run).read(list(happenings_of(tree, entry))):
            if id(event.node) in seen:
                continue
            seen.add(id(event.node))
            yield run.finding(
                META,
                event.module,
                event.node,
                "A part of the model is frozen after DDP has wrapped it: DDP waits for it, and the next step raises",
                hint="Freeze it before the model is wrapped, or pass `find_unused_parameters=True`",
                related=(run.location(wrap.module, wrap.node, "wrapped here, with the part still trainable"),),
            )


def _may_freeze(run: RunQuery, event: Event) -> bool:
    """Return whether an event may tell parameters to require no gradient: `False`, or what a comparison says."""
    value = told(event)
    known = run.likely(value)
    if value is None or known is not None:
        return known is not None and False in known
    return bool(value.atoms) and all(isinstance(a, Unknown) and a.type == "builtins.bool" for a in value.atoms)


def _follows(order: dict[int, int], freeze: Happening, at: int, step: Happening) -> bool:
    """Return whether a forward comes after a part is frozen: below it, or in another turn of a loop around both."""
    loops = [node for node in freeze.around if isinstance(node, Loop)]
    return at > order.get(id(freeze.event), at) or any(loop in step.around for loop in loops)


_TEXT = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)

    def forward(self, rows):
        return self.head(self.backbone(rows))


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad = flag


def train(loader, optimizer, rank):
    dist.init_process_group("nccl")
    net = Net().to(rank)
    %smodel = DistributedDataParallel(net%s)
    for epoch in range(8):
        %s
        for rows in loader:
            model(rows).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
"""
_EARLY = "set_trainable(net.backbone, False)\n    "
_NAMES = """\
for name, p in model.named_parameters():
            if "backbone" in name:
                p.requires_grad = epoch > 2"""

_HOOKS = """\
import torch
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)

    def forward(self, rows):
        return self.head(self.backbone(rows))


class Freeze:
    def __init__(self, steps):
        self.steps = steps

    def before_step(self, trainer):
        if trainer.step in (0, self.steps):
            trainer.model.module.%s.requires_grad_(trainer.step >= self.steps)


class Trainer:
    def __init__(self, hooks, rank):
        self.model, self.hooks, self.step = DistributedDataParallel(Net().to(rank)), hooks, 0

    def run(self, loader, optimizer):
        for rows in loader:
            for hook in self.hooks:
                hook.before_step(self)
            self.model(rows).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            self.step += 1


def main(loader, optimizer, rank):
    Trainer([Freeze(100)], rank).run(loader, optimizer)
"""

EXAMPLES = (
    bad("a helper in the loop over the epochs",
        {"train.py": _TEXT % ("", "", "set_trainable(model.module.backbone, epoch > 2)")}, "train.py:17"),
    bad("the inner model, once", {"train.py": _TEXT % ("", "", "net.backbone.requires_grad_(False)")}, "train.py:25"),
    bad("by the names of the parameters", {"train.py": _TEXT % ("", "", _NAMES)}, "train.py:27"),
    bad("a hook", {"train.py": _HOOKS % "backbone"}, "train.py:20"),
    good("frozen before, too", {"train.py": _TEXT % (_EARLY, "", "set_trainable(model.module.backbone, False)")}),
    good("DDP looks for unused parameters", {
        "train.py": _TEXT % ("", ", find_unused_parameters=True", "set_trainable(model.module.backbone, epoch > 2)")}),
    good("wrapped anew", {"train.py": _TEXT % (
        "", "", "set_trainable(net.backbone, epoch > 2)\n        model = DistributedDataParallel(net)")}),
    good("the whole model", {"train.py": _TEXT % ("", "", "set_trainable(model, epoch > 2)")}),
    good("trainable all along", {"train.py": _TEXT % ("", "", "set_trainable(model.module.backbone, True)")}),
    good("one process", {"train.py": _HOOKS % "backbone"}, world_size=1),
)  # fmt: skip
