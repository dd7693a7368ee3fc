"""Names of the parameters of a bare model are looked for with those of its wrapper, which begin with `module.`.

**What.** A dictionary or list is filled by the names of `model.named_parameters()` or of its `state_dict()` before
`model = DistributedDataParallel(model)`, and asked later by the names that the wrapper gives: an average of weights, a
copy of the first weights, names without weight decay. Or the other way round.

**Why it hurts.** The wrapper gives `module.layer.weight` where the model gives `layer.weight`. `shadow[name]` raises
`KeyError` in the first step, on each rank; `name in names` is never true, and nobody hears of it. On one GPU, without
the wrapper, the script works.

**Fix.** Ask the same model both times: `ema.update(model.module)`, or make the average after the model was wrapped.

**When it stays quiet.** A project that speaks of the prefix (`"module."`), or takes it off; names that are changed on
the way; containers that both models fill; models that may not be wrapped in the run that is meant.

**Evidence.** torch 2.13: the names of `DistributedDataParallel(m).named_parameters()` and of its `state_dict()` begin
with `module.`, those of `m` do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.queries.namedby import Container, Lookup, Named
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.ddps import is_wrapper, knows_prefix

META = RuleMeta(
    code="DSL668",
    name="names-of-bare-model",
    kind="script",
    severity=Severity.WARNING,
    summary="names of a bare model are looked for with those of its wrapper, which begin with `module.`",
    markers=(r"DistributedDataParallel|DDP|prepare\(",),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "https://github.com/m2lines/Samudra/pull/326",
    ),
    depends_on_run=True,
    no_experiment="the names can be compared without ranks",
)
_GIVE = ("named_parameters", "state_dict", "named_buffers")
_KINDS = ("ddp", "prepared-model")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each look for names that the other side of a wrapper has given."""
    if run.context.is_one_process or not run.has("wraps-model", "prepares") or knows_prefix(run):
        return
    readers: dict[Module, Named] = {}
    given = [
        found for found in run.occurrences("parameters", "state-dict") if found.event.api.rpartition(".")[2] in _GIVE
    ]
    filled: dict[Container, list[tuple[Happening, bool | None]]] = {}
    asked: list[tuple[Happening, bool, Lookup]] = []
    for found in given:
        reader = readers.setdefault(found.event.module, Named(found.event.module.tree))
        side = _side(run, found)
        for box in reader.filled(found.event.node):
            filled.setdefault(box, []).append((found, side))
        asked += [(found, side, look) for look in reader.lookups(found.event.node) if side is not None]
    told: set[Container] = set()
    for found, side, look in asked:
        makers = filled.get(look.container, [])
        if look.container in told or not makers or any(made is None or made is side for _, made in makers):
            continue
        if side or len(instances(found.event.receiver)) == 1:
            told.add(look.container)
            yield _finding(run, found, look, makers[0][0], side)


def _side(run: RunQuery, found: Happening) -> bool | None:
    """Return whether names certainly are those of a wrapper, where there is one; `None` where nobody knows."""
    owners = instances(found.event.receiver)
    value = found.event.receiver
    if value is None or not owners or len(owners) != len(value.atoms) or found.event.may:
        return None
    libraries = run.machine.libraries
    wrapped = [isinstance(a.cls, str) and any(libraries.is_class(a.cls, kind) for kind in _KINDS) for a in owners]
    if any(is_wrapper(run, a) and not is_known for a, is_known in zip(owners, wrapped, strict=True)):
        return None
    return any(wrapped) if any(wrapped) or all(a.cls for a in owners) else None


def _finding(run: RunQuery, found: Happening, look: Lookup, made: Happening, is_wrapped: bool) -> Finding:
    event = found.event
    text = run.text(event.module, look.node, 40)
    is_negative = isinstance(look.node, ast.Compare) and isinstance(look.node.ops[0], ast.NotIn)
    what = "raises `KeyError`" if look.raises else "is always true" if is_negative else "is never true"
    names = ("its wrapper", "the bare model") if is_wrapped else ("the bare model", "its wrapper")
    related = [run.location(made.event.module, made.event.node, f"filled with the names of {names[1]}")]
    related += [run.location(event.module, event.node, f"gives the names of {names[0]}")]
    related += [run.location(call.module, call.node, "called here") for call in (*found.calls[-1:], *made.calls[-1:])]
    return run.finding(
        META,
        event.module,
        look.node,
        f"`{text}` {what}: it holds names of {names[1]}, and only the wrapper's begin with `module.`",
        hint="Use the same model both times: the one inside the wrapper (`model.module`), or the wrapper",
        related=tuple(related),
    )


_EMA = """\
class Ema:
    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    def update(self, model):
        for name, p in model.named_parameters():
            if p.requires_grad:
                self.shadow[name].lerp_(p.detach(), 1 - self.decay)
"""
_COPY = """\
import copy


class Ema:
    def __init__(self, model):
        self.copy = copy.deepcopy(model)

    def update(self, model):
        averaged = self.copy.state_dict()
        for name, value in model.state_dict().items():
            if name not in averaged:
                continue
            averaged[name].lerp_(value, 0.01)
"""
_GROWN = """\
class Ema:
    def __init__(self, model):
        self.model = model
        self.shadow = {}
        for name, p in model.state_dict().items():
            self.shadow[name] = p.clone()

    def update(self, model):
        for name, p in model.state_dict().items():
            self.shadow[name] = 0.9 * self.shadow[name] + 0.1 * p
"""
_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from ema import Ema


def main(loader, rank, distributed):
    dist.init_process_group("nccl")
    model = torch.nn.Linear(8, 8).to(rank)
    ema = Ema(%s)
    %s
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
        ema.update(%s)
"""
_DDP = "model = DDP(model, device_ids=[rank])"
_LATE = (
    (_TRAIN % ("model", _DDP, "model"))
    .replace("    ema = Ema(model)\n", "")
    .replace("    optimizer =", "    ema = Ema(model)\n    optimizer =")
)
_GROUPS = """\
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def main(loader, rank):
    net = torch.nn.Linear(8, 8).to(rank)
    first = dict(net.named_parameters())
    plain = [name for name, p in net.named_parameters() if p.ndim < 2]
    model = DDP(net, device_ids=[rank])
    groups = [
        {"params": [p for name, p in %s.named_parameters() if name in plain], "weight_decay": 0.0},
        {"params": [p for name, p in %s.named_parameters() if name not in plain]},
    ]
    optimizer = torch.optim.AdamW(groups)
    for batch in loader:
        loss = model(batch).sum()
        for name, p in %s.named_parameters():
            loss = loss + (p - first[name].detach()).square().sum()
        loss.backward()
        optimizer.step()
"""

EXAMPLES = (
    bad("an average", {"ema.py": _EMA, "train.py": _TRAIN % ("model", _DDP, "model")}, "ema.py:9 warning"),
    bad(
        "wrapped in some runs",
        {"ema.py": _EMA, "train.py": _TRAIN % ("model", "model = DDP(model) if distributed else model", "model")},
        "ema.py:9 warning",
    ),
    bad("of the state", {"ema.py": _GROWN, "train.py": _TRAIN % ("model", _DDP, "model")}, "ema.py:10 warning"),
    bad(
        "the other way round",
        {"ema.py": _EMA, "train.py": _LATE.replace("ema.update(model)", "ema.update(model.module)")},
        "ema.py:9 warning",
    ),
    bad(
        "lists of names, and first weights",
        {"train.py": _GROUPS % (("model",) * 3)},
        ("train.py:11 warning", "train.py:18 warning"),
    ),
    bad("states of a copy", {"ema.py": _COPY, "train.py": _TRAIN % ("model", _DDP, "model")}, "ema.py:11 warning"),
    good("a copy, and the model inside", {"ema.py": _COPY, "train.py": _TRAIN % ("model", _DDP, "model.module")}),
    good("the model inside", {"ema.py": _EMA, "train.py": _TRAIN % ("model", _DDP, "model.module")}),
    good("made afterwards", {"ema.py": _EMA, "train.py": _LATE}),
    good(
        "the prefix is taken off",
        {
            "ema.py": _EMA.replace("self.shadow[name]", 'self.shadow[name.removeprefix("module.")]'),
            "train.py": _TRAIN % ("model", _DDP, "model"),
        },
    ),
    good("names of the model inside", {"train.py": _GROUPS % (("model.module",) * 3)}),
)
