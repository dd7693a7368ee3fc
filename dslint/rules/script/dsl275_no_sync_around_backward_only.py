"""The forward pass runs before `no_sync()`, and only the backward pass inside.

**What.** `loss = criterion(model(x), y)` and then `with model.no_sync(): loss.backward()`; the same with
`accelerator.no_sync(model)`, `accelerator.accumulate(model)` or `fabric.no_backward_sync(model)`.

**Why it hurts.** `DistributedDataParallel` decides in its forward pass whether the backward pass reduces gradients.
The forward pass ran outside, so that every micro batch is reduced over all ranks. Accumulation saves nothing: the
communication that `no_sync()` was to avoid happens in full.

**Fix.** Move the forward pass into the `with` block.

**When it stays quiet.** Some forward pass of the model runs inside of a `no_sync()` beside it; wrappers that decide in
the backward pass (FSDP, DeepSpeed); an Accelerator that accumulates nothing; runs of one process.

**Evidence.** Two gloo ranks, torch 2.13 and accelerate 1.15: 8 micro batches in groups of 4 reduce gradients 8 times
instead of 2. `DistributedDataParallel._post_forward` in torch/nn/parallel/distributed.py, and its docs of `no_sync`.
Found in three records of KellerJordan/modded-nanogpt.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Context, Event, Loop, Node, events, walk
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL275",
    name="no-sync-around-backward-only",
    kind="script",
    severity=Severity.WARNING,
    summary="only the backward pass runs inside no_sync(): DDP decides in the forward pass, and reduces anyway",
    markers=(r"torch|accelerat|deepspeed|lightning",),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "DistributedDataParallel._post_forward in torch/nn/parallel/distributed.py",
    ),
    depends_on_run=True,
)
_ACCUMULATES = ("gradient_accumulation_steps", "gradient_accumulation_plugin")
_KINDS = ("ddp", "accelerate.PreparedModel", "fabric-module")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each `no_sync()` that holds the backward pass of its model and not the forward pass."""
    if run.context.is_one_process or run.stage is not None or not _is_ddp(run):
        return
    local = [found.event for found in run.happenings("no-sync") if _works(run, found.event)]
    seen: set[int] = set()
    for found in run.happenings("backward"):
        inside = next((node for node in found.around if _is_local(node)), None)
        if not isinstance(inside, Context) or id(inside.node) in seen:
            continue
        makers = [event for event in local if set(instances(event.result)) & inside.manager.atoms]
        models = {model for event in makers for model in _models(run, event)} & _behind(found.event)
        forward = _forward_outside(found, inside, models)
        if forward is None:
            continue
        seen.add(id(inside.node))
        yield run.finding(
            META,
            inside.module,
            inside.node,
            "Only the backward runs inside `no_sync`: DDP decides in the forward, and reduces every micro batch",
            hint="Move the forward pass into this block",
            related=(
                run.location(forward.module, forward.node, "the forward pass, outside"),
                run.location(found.event.module, found.event.node, "the backward pass"),
            ),
        )


def _is_ddp(run: RunQuery) -> bool:
    """Return whether no Fabric of another strategy than DDP is made: the others decide in the backward pass."""
    strategies = [h.event.arguments.get("strategy") for h in run.happenings("makes-fabric")]
    named = [str(value.constants or "?") for value in strategies if value is not None]
    return len(named) == len(strategies) and all("ddp" in name for name in named)


def _is_local(node: Node) -> bool:
    return isinstance(node, Context) and "no-sync" in node.tags


def _models(run: RunQuery, event: Event) -> set[Instance]:
    """Return the wrapped models for which a `no_sync()` is."""
    given = [event.receiver, *event.arguments.values()]
    found = {atom for value in given for atom in instances(value)}
    return {a for a in found if isinstance(a.cls, str) and run.machine.libraries.is_class(a.cls, *_KINDS)}


def _works(run: RunQuery, event: Event) -> bool:
    """`accumulate` holds back gradients only where the Accelerator accumulates."""
    if "accumulate" not in event.tags:
        return True
    owners = instances(event.receiver)
    for found in run.happenings("starts-group"):
        if found.event.api == "accelerate.Accelerator" and set(instances(found.event.result)) & set(owners):
            given = [found.event.arguments.get(name) for name in _ACCUMULATES]
            return any(value is not None and run.likely(value) not in ((1,), (None,)) for value in given)
    return False


def _behind(event: Event) -> set[Instance]:
    """Return the wrapped models that took part in the loss."""
    return {model for _, _, made_by in event.snapshot.values() for model in made_by}


def _forward_outside(found: Happening, inside: Context, models: set[Instance]) -> Event | None:
    """Return the forward pass of the models in the same turn; `None` where one runs inside of a `no_sync()`."""
    around = found.around[: found.around.index(inside)]
    scope = next((node for node in reversed(around) if isinstance(node, Loop)), found.entry.tree)
    local = {id(event) for node in walk(scope) if _is_local(node) for event in events(node)}
    passes = [e for e in events(scope) if "ddp-forward" in e.tags and models & set(instances(e.receiver))]
    return passes[0] if passes and not any(id(event) in local for event in passes) else None


_MAIN = """\
import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(loader, local_rank):
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 1).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(loader):
        last = (step + 1) %% 4 == 0
%s
        if last:
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()
"""
_BACKWARD_ONLY = """\
        loss = torch.nn.functional.mse_loss(model(x), y) / 4
        if last:
            loss.backward()
        else:
            with model.no_sync():
                loss.backward()"""
_CHOSEN = """\
        loss = torch.nn.functional.mse_loss(model(x), y) / 4
        with contextlib.nullcontext() if last else model.no_sync():
            loss.backward()"""
_EACH = """\
        with contextlib.nullcontext() if last else model.no_sync():
            loss = torch.nn.functional.mse_loss(model(x), y) / 4
        with contextlib.nullcontext() if last else model.no_sync():
            loss.backward()"""
_BOTH = """\
        with contextlib.nullcontext() if last else model.no_sync():
            loss = torch.nn.functional.mse_loss(model(x), y) / 4
            loss.backward()"""
_ACCELERATE = """\
import torch
from accelerate import Accelerator


def main(model, loader, optimizer):
    accelerator = Accelerator(gradient_accumulation_steps=%s)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        with accelerator.accumulate(model):
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
"""
_FABRIC = """\
import lightning as L
import torch


def main(loader):
    fabric = L.Fabric(devices=4, strategy="%s")
    fabric.launch()
    model = torch.nn.Linear(4, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in enumerate(fabric.setup_dataloaders(loader)):
        last = (step + 1) %% 4 == 0
        loss = torch.nn.functional.mse_loss(model(x), y)
        with fabric.no_backward_sync(model, enabled=not last):
            fabric.backward(loss / 4)
        if last:
            optimizer.step()
            optimizer.zero_grad()
"""
_STEPS = """\
def step(model, loss, last):
    if last:
        loss.backward()
        return
    with model.no_sync():
        loss.backward()
"""
_FAR = """\
        loss = torch.nn.functional.mse_loss(model(x), y) / 4
        step_of(model, loss, last)"""

EXAMPLES = (
    bad("the backward pass of all micro batches but the last", {"train.py": _MAIN % _BACKWARD_ONLY}, "train.py:19"),
    bad("the context is chosen", {"train.py": _MAIN % _CHOSEN}, "train.py:16"),
    bad(
        "the backward pass is in another file",
        {
            "steps.py": _STEPS,
            "train.py": (_MAIN % _FAR).replace("import contextlib\n", "from steps import step as step_of\n"),
        },
        "steps.py:5",
    ),
    bad("accelerate", {"train.py": _ACCELERATE % 4}, "train.py:12"),
    bad("Fabric", {"train.py": _FABRIC % "ddp"}, "train.py:13"),
    good("FSDP under Fabric", {"train.py": _FABRIC % "fsdp"}),
    good("both passes inside", {"train.py": _MAIN % _BOTH}),
    good("nothing is accumulated", {"train.py": _ACCELERATE % 1}),
    good(
        "both passes, each in its own block",
        {"train.py": _MAIN % _EACH},
    ),
    good(
        "FSDP decides in the backward pass",
        {
            "train.py": (_MAIN % _CHOSEN).replace(
                "from torch.nn.parallel import DistributedDataParallel as DDP",
                "from torch.distributed.fsdp import FullyShardedDataParallel as DDP",
            )
        },
    ),
    good("one process", {"train.py": _MAIN % _CHOSEN}, world_size=1),
)
