"""Parameters become trainable after the optimizer, or the DDP wrapper, was made without them.

**What.** A part of the model is frozen, the optimizer (or the DeepSpeed engine) gets only the parameters that require
gradients at that moment, and later the part is made trainable: `p.requires_grad = True`, `requires_grad_(True)`, or a
helper that does it. The same where `DistributedDataParallel` wraps the model while the part is frozen.

**Why it hurts.** The optimizer never hears of them. Gradients are computed, cost memory and time, and no step ever
uses them: the part stays as it was until the end of the run. ZeRO keeps only parameters that require gradients when
`deepspeed.initialize` is called, even where it got all of them. DDP reduces gradients only of what required them when
the model was wrapped: each rank then trains the part by its own data, and the copies drift apart. Nothing fails.

**Fix.** Give all parameters to the optimizer and freeze after that, call `optimizer.add_param_group` when the part
becomes trainable, or make the optimizer (and the engine, and the wrapper) anew.

**When it stays quiet.** The model is wrapped again; an optimizer is made, or `add_param_group` is called, after that;
some optimizer may hold all parameters; the part was not frozen before the optimizer was made; which part it is cannot
be read; a DeepSpeed engine with all parameters whose ZeRO stage is not known.

**Evidence.** Two gloo ranks, torch 2.13 and DeepSpeed 0.19: after it was made trainable, the part of the model has the
numbers from before, with a filtered optimizer and with ZeRO 1, 2 and 3; with an optimizer of all parameters it moves.
With DDP around it, the part has other weights on each rank after one step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Seq, events
from dslint.python.values import Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL279",
    name="unfrozen-after-initialize",
    kind="script",
    severity=Severity.WARNING,
    summary="parameters become trainable after the optimizer was made without them: no step ever changes them",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine", r"requires_grad"),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.add_param_group.html",
        "DeepSpeedZeroOptimizer.__init__ in deepspeed/runtime/zero/stage_1_and_2.py",
    ),
    depends_on_run=True,
)
_NAMES = ("params", "model_parameters")


@dataclass(slots=True)
class _Reader:
    """Follows the events of a run: which modules are frozen now, and without which the optimizer was made."""

    run: RunQuery
    owners: dict[int, tuple[str, frozenset[Instance]]] = field(default_factory=dict)  # of a call of `parameters()`
    frozen: dict[Instance, Event] = field(default_factory=dict)
    optimizer: Event | None = None
    without: dict[Instance, Event] = field(default_factory=dict)
    late: dict[int, tuple[Event, Event, Event]] = field(default_factory=dict)
    unhooked: dict[Instance, tuple[Event, Event]] = field(default_factory=dict)  # frozen when DDP wrapped the model
    apart: dict[int, tuple[Event, Event, Event]] = field(default_factory=dict)

    def read(self, tree: Seq) -> Iterator[tuple[Event, Event, Event]]:
        """Yield what became trainable too late: that event, the optimizer, and where it was frozen."""
        for event in events(tree):
            if "parameters" in event.tags:
                text = self.run.text(event.module, event.node, 200).rpartition(".")[0]
                self.owners[id(event.node)] = (text, frozenset(_objects(event.receiver)))
            elif "freezes" in event.tags:
                self._freezing(event)
            elif event.tags & {"makes-optimizer", "makes-engine"}:
                self._making(event)
            elif "wraps-model" in event.tags:
                self._wrapping(event)
        yield from (self.late | self.apart).values()

    def _wrapping(self, event: Event) -> None:
        """DDP hooks the parameters that require gradients now."""
        made = event.result.single if event.result is not None else None
        cls = made.cls if isinstance(made, Instance) else None
        if isinstance(cls, str) and self.run.machine.libraries.is_class(cls, "ddp") and self.run.stage is None:
            self.apart, self.unhooked = {}, {}
            for owner, frozen in self.frozen.items():
                if owner in event.modules or not owner.cls:
                    self.unhooked[owner] = (event, frozen)

    def _freezing(self, event: Event) -> None:
        value = next((event.arguments[n] for n in ("requires_grad", "mode") if n in event.arguments), None)
        is_trainable = value is None or value.constants == (True,)
        for owner in self._owners(event):
            if not is_trainable and value is not None and value.constants == (False,):
                self.frozen[owner] = event
            elif is_trainable:
                frozen = self.frozen.pop(owner, None)
                if owner in self.unhooked and frozen is not None:
                    self.apart[id(event.node)] = (event, *self.unhooked[owner])
                if owner in self.without and frozen is not None and self.optimizer is not None:
                    self.late[id(event.node)] = (event, self.optimizer, self.without[owner])

    def _owners(self, event: Event) -> frozenset[Instance]:
        """Return the modules whose parameters an event freezes; a parameter stands for its module."""
        found: set[Instance] = set()
        for atom in _objects(event.receiver):
            found |= self.owners.get(id(atom.node), ("", frozenset((atom,))))[1]
        return frozenset(found)

    def _making(self, event: Event) -> None:
        """A new optimizer may hold all that became trainable before."""
        given = next((event.arguments[name] for name in _NAMES if name in event.arguments), None)
        if "makes-engine" in event.tags and given is None and "optimizer" in event.arguments:
            return  # the engine takes the optimizer that was made before
        self.late.clear()
        self.without = {}
        self.optimizer = event
        for owner, frozen in self.frozen.items():
            if self._is_left_out(event, given, frozen):
                self.without[owner] = frozen

    def _is_left_out(self, event: Event, given: Value | None, frozen: Event) -> bool:
        """The optimizer takes only what requires gradients, or another part of the same model."""
        if "makes-engine" in event.tags and self.run.stage:
            return True
        made = [atom.node for atom in _objects(given)]
        texts = [event.module.text(node) for node in made]
        if not made or given is None or len(made) != len(given.atoms):
            return False
        return all("requires_grad" in text for text in texts) or all(
            self._is_other(self.owners.get(id(node), ("", frozenset()))[0], frozen) for node in made
        )

    def _is_other(self, part: str, frozen: Event) -> bool:
        """`model.head` and `model.backbone` have nothing in common."""
        atoms = _objects(frozen.receiver)
        other = next((self.owners[id(a.node)][0] for a in atoms if id(a.node) in self.owners), "")
        other = other or self.run.text(frozen.module, frozen.node, 200).rpartition(".requires_grad_")[0]
        if not _DOTTED.fullmatch(part) or not _DOTTED.fullmatch(other):
            return False
        holds = f"{part}.".startswith(f"{other}.") or f"{other}.".startswith(f"{part}.")
        return part.partition(".")[0] == other.partition(".")[0] and not holds


_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each place that makes parameters trainable of which no optimizer knows."""
    seen: set[int] = set()
    for entry, tree in run.trees():
        modules = {event.module for event in events(tree)} | {entry.module}
        if any("add_param_group" in module.code for module in modules):
            continue
        for event, optimizer, frozen in _Reader(run).read(tree):
            if id(event.node) in seen:
                continue
            seen.add(id(event.node))
            is_ddp = "wraps-model" in optimizer.tags and "makes-engine" not in optimizer.tags
            what = "DDP" if is_ddp else "the DeepSpeed engine" if "makes-engine" in optimizer.tags else "the optimizer"
            effect = "each rank trains them by its own data" if is_ddp else "no step ever changes them"
            hint = "Call `optimizer.add_param_group`, or give all parameters to the optimizer before some are frozen"
            yield run.finding(
                META,
                event.module,
                event.node,
                f"These parameters become trainable after {what} was made without them: {effect}",
                hint="Wrap the model again, or freeze the part after it was wrapped" if is_ddp else hint,
                related=(
                    run.location(optimizer.module, optimizer.node, "made without them"),
                    run.location(frozen.module, frozen.node, "frozen here"),
                ),
                facts={"engine": "makes-engine" in optimizer.tags, "stage": run.stage, "ddp": is_ddp},
            )


def _objects(value: Value | None) -> list[Instance]:
    return [atom for atom in value.atoms if isinstance(atom, Instance)] if value is not None else []


_NET = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.backbone(x))

    def train_backbone(self, wanted):
        for parameter in self.backbone.parameters():
            parameter.requires_grad = wanted


"""
_MAIN = """\
def main(loader):
    dist.init_process_group("gloo")
    net = Net()
%s    model = DDP(net, find_unused_parameters=True)
    optimizer = torch.optim.SGD(%s, lr=0.1)
%s    for epoch in range(10):
        if epoch == 2:
            net.train_backbone(True)
%s        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
"""
_FREEZE = "    net.train_backbone(False)\n"
_AGAIN = "            model = DDP(net)\n"
_FILTER = "filter(lambda p: p.requires_grad, model.parameters())"
_ENGINE = """\
import deepspeed

from net import Net

net = Net()
net.backbone.requires_grad_(False)
wanted = [p for p in net.parameters() if p.requires_grad]
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=wanted, config="ds.json")
for step, batch in enumerate(batches):
    if step == 1000:
        net.backbone.requires_grad_(%s)
    engine.backward(engine(batch).mean())
    engine.step()
"""

EXAMPLES = (
    bad(
        "an optimizer of what requires gradients",
        {"train.py": _NET + _MAIN % (_FREEZE, _FILTER, "", "")},
        "train.py:17",
    ),
    bad(
        "the model is in another file, and a DeepSpeed engine trains it",
        {"net.py": _NET.rstrip() + "\n", "train.py": _ENGINE % "True"},
        "train.py:11",
    ),
    bad(
        "an optimizer of the other part",
        {"train.py": _NET + (_MAIN % ("    net.backbone.requires_grad_(False)\n", "net.head.parameters()", "", ""))
         .replace("net.train_backbone(True)", "net.backbone.requires_grad_(True)")},
        "train.py:28",
    ),
    good("it stays frozen", {"net.py": _NET.rstrip() + "\n", "train.py": _ENGINE % "False"}),
    bad("an optimizer of all parameters, and DDP of the rest",
        {"train.py": _NET + _MAIN % (_FREEZE, "model.parameters()", "", "")}, "train.py:17"),
    good("wrapped again", {
        "train.py": _NET + (_MAIN % (_FREEZE, "model.parameters()", "", "")).replace(
            "            net.train_backbone(True)\n", f"            net.train_backbone(True)\n{_AGAIN}")}),
    good("an optimizer of all parameters, frozen when it is wrapped", {
        "train.py": _NET + _MAIN % ("", "model.parameters()", _FREEZE, "")}),
    good("frozen when the optimizer is there", {"train.py": _NET + _MAIN % ("", _FILTER, _FREEZE, "")}),
    good("they are added", {
        "train.py": _NET + _MAIN % (
            _FREEZE, _FILTER, "", '            optimizer.add_param_group({"params": net.backbone.parameters()})\n')}),
    good("a new optimizer", {
        "train.py": _NET + _MAIN % (
            _FREEZE, _FILTER, "", f"{_AGAIN}            optimizer = torch.optim.SGD({_FILTER}, lr=0.1)\n")}),
)  # fmt: skip
