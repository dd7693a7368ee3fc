"""`ReduceLROnPlateau.step` gets a metric that each rank computes from its own share of the data.

**What.** `scheduler.step(val_loss)` where `val_loss` comes from a loader with a `DistributedSampler` (or one that
accelerate or DeepSpeed divides) and was not reduced over the ranks.

**Why it hurts.** Each rank decides by itself when its metric stops improving. One rank lowers its learning rate and
another does not. From then on the same gradients move the replicas by different amounts, and nothing makes them equal
again. Nothing fails: rank 0 saves a checkpoint that no rank but itself has trained.

**Fix.** Reduce the metric before the step: `dist.all_reduce(loss)` and divide by the number of ranks, or
`accelerator.reduce(loss, "mean")`.

**When it stays quiet.** A metric that was reduced, gathered or broadcast; a loader that gives every rank all items; a
metric whose origin is not certain; a step on some ranks only; runs of one process.

**Evidence.** Two gloo ranks, torch 2.13: on one share the loss rises while it falls on the other, and the weights part.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.varies import DATA, LOST, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances, plateau_steps

META = RuleMeta(
    code="DSL273",
    name="plateau-follows-own-metric",
    kind="script",
    severity=Severity.WARNING,
    summary="ReduceLROnPlateau follows a metric of each rank's own data: the learning rates of the ranks drift apart",
    markers=(r"torch|accelerat|deepspeed|lightning",),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html",
        "https://github.com/rmchurch/disruptcnn/issues/3",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each step whose metric comes from a loader that divides its items among the ranks."""
    if run.context.is_one_process or not run.has("wraps-model", "prepares", "makes-engine"):
        return
    loaders = {id(found.event.node): found.event for found in run.happenings("makes-loader")}
    for step in plateau_steps(run):
        event = step.event
        varies, _, _ = event.snapshot.get(step.metric, (0, 0, None))
        place = event.origins.get(step.metric)
        loader = loaders.get(id(place[1])) if place is not None else None
        if not varies & DATA or varies & LOST or event.lanes != run.machine.worlds.full or loader is None:
            continue
        if not _divides(run, loader):
            continue
        metric = run.text(event.module, event.nodes[step.metric], 30) if step.metric in event.nodes else "the metric"
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{metric}` comes from each rank's own share of the data: learning rates and weights drift apart",
            hint="Reduce the metric over all ranks before the step",
            related=(run.location(loader.module, loader.node, "this loader gives each rank a share of the data"),),
            varies=varies,
            origin=place,
        )


def _divides(run: RunQuery, loader: Event) -> bool:
    """A sampler or a library gives each rank a share of the items, or its data set was cut by the rank."""
    if "makes-distributed-sampler" in loader.tags or any(source.varies & RANKED for source in loader.sources):
        return True
    for name in ("sampler", "batch_sampler"):
        for atom in instances(loader.arguments.get(name)):
            if isinstance(atom.cls, str) and run.machine.libraries.is_class(atom.cls, "distributed-sampler"):
                return True
    made = instances(loader.result)
    prepared = [v for found in run.happenings("prepares") for v in found.event.arguments.values()]
    return any(atom in instances(value) for value in prepared for atom in made)


_MAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler

%s
def main(train_set, val_set, local_rank):
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 1).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = ReduceLROnPlateau(optimizer, patience=2)
    train_loader = DataLoader(train_set, batch_size=8, sampler=DistributedSampler(train_set))
    val_loader = DataLoader(val_set, batch_size=8%s)
    for epoch in range(10):
        train_loader.sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        val_loss = evaluate(model, val_loader)
        scheduler.step(val_loss)
    dist.destroy_process_group()
"""
_EVALUATE = """
def evaluate(model, loader):
    total, count = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            total += torch.nn.functional.mse_loss(model(x), y).item()
            count += 1
    return total / count

"""
_REDUCED = """
def evaluate(model, loader):
    total = torch.zeros(2, device="cuda")
    with torch.no_grad():
        for x, y in loader:
            total[0] += torch.nn.functional.mse_loss(model(x), y)
            total[1] += 1
    dist.all_reduce(total)
    return (total[0] / total[1]).item()

"""
_OWN = ", sampler=DistributedSampler(val_set, shuffle=False)"
_ACCELERATE = """\
import torch
from accelerate import Accelerator
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader


def main(train_set):
    accelerator = Accelerator(step_scheduler_with_optimizer=False)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = ReduceLROnPlateau(optimizer, patience=2)
    loader = DataLoader(train_set, batch_size=8, shuffle=True)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for _ in range(10):
        losses = []
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        scheduler.step(%s)
"""

EXAMPLES = (
    bad(
        "the validation set was cut by the rank",
        {
            "train.py": (_MAIN % (_EVALUATE, "")).replace(
                "DataLoader(val_set,",
                "DataLoader(torch.utils.data.Subset(val_set, range(dist.get_rank(), 800, dist.get_world_size())),",
            )
        },
        at="train.py:32",
    ),
    bad("the validation loss of the own share", {"train.py": _MAIN % (_EVALUATE, _OWN)}, "train.py:32"),
    bad(
        "the metric is computed in another file",
        {
            "evaluation.py": "import torch\n\n" + _EVALUATE,
            "train.py": _MAIN % ("from evaluation import evaluate\n\n", _OWN),
        },
        "train.py:25",
    ),
    bad("the training loss under accelerate", {"train.py": _ACCELERATE % "sum(losses) / len(losses)"}, "train.py:22"),
    good("the metric is reduced", {"train.py": _MAIN % (_REDUCED, _OWN)}),
    good("every rank validates on all items", {"train.py": _MAIN % (_EVALUATE, "")}),
    good("accelerate gathers the losses", {"train.py": _ACCELERATE % "accelerator.gather(loss).mean().item()"}),
    good("one process", {"train.py": _MAIN % (_EVALUATE, _OWN)}, world_size=1),
)
