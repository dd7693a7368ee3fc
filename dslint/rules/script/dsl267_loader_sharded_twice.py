"""A loader with a `DistributedSampler` is prepared by accelerate, which distributes its batches once more.

**What.** `DataLoader(dataset, sampler=DistributedSampler(dataset))` handed to `accelerator.prepare(...)`, to
`prepare_data_loader`, or to `self.accelerator.prepare` of a Trainer.

**Why it hurts.** The sampler gives each of N ranks 1/N of the items; accelerate takes the batches of that loader for
those of the whole job and gives each rank every N-th. Nothing raises: a rank sees 1/N² of the items, all ranks together
1/N of them, and an epoch has 1/N of its steps. On eight GPUs an epoch leaves out seven eighths of the data.

**Fix.** Leave dealing out to one of them: drop the sampler (with `shuffle=True` in its place where it shuffled, which
is its default), or do not prepare the loader. The fix writes `shuffle=` for a sampler whose order is known.

**When it stays quiet.** A loader that is not prepared; `num_replicas` that is not the number of processes, as
`num_replicas=1`; a sampler that only some arms make; classes derived from `DistributedSampler`; a loader or a sampler
from elsewhere; one process; `prepare_data_loader(..., num_processes=1)`. No setting of `DataLoaderConfiguration` helps.

**Evidence.** Two gloo ranks, accelerate 1.15, 64 items in batches of 4: 4 steps a rank instead of 8, and 32 of the 64
items seen, also with `dispatch_batches`, `even_batches=False` and `use_seedable_sampler`; with `split_batches` 8 steps
of 2. With `num_replicas=1` all items are seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.python.events import Event
from dslint.python.values import Instance, PerRank, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL267",
    name="loader-sharded-twice",
    kind="script",
    severity=Severity.ERROR,
    summary="a loader with a DistributedSampler is prepared by accelerate: most of the data is never seen",
    fix="safe",
    markers=(r"DistributedSampler", r"prepare(?:_data_loader)?\("),
    versions=("accelerate",),
    references=("https://huggingface.co/docs/accelerate/package_reference/torch_wrappers",),
    depends_on_run=True,
)

_DEALER = "torch.utils.data.DistributedSampler"
_BATCHES = "torch.utils.data.BatchSampler"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each loader with a sampler of all ranks that accelerate prepares."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for event in (happening.event for happening in run.happenings("prepares")):
        if not event.api.startswith("accelerate.") or event.open or not _is_all(run, event, "num_processes"):
            continue
        for value in event.arguments.values():
            loader = _made(run, value)
            if loader is None or "makes-loader" not in loader.tags or loader.open or id(loader.node) in seen:
                continue
            for name in ("sampler", "batch_sampler"):
                sampler = _dealer(run, loader.arguments.get(name))
                if sampler is not None:
                    seen.add(id(loader.node))
                    yield _finding(run, event, loader, name, sampler)


def _made(run: RunQuery, value: Value | None) -> Event | None:
    """Return the call that made the one object that a value certainly is."""
    atom = value.single if value is not None else None
    return run.makers.get(atom) if isinstance(atom, Instance) else None


def _dealer(run: RunQuery, value: Value | None) -> Event | None:
    """Return the call that made a sampler over all processes, also of one around which batches are made."""
    made = _made(run, value)
    if made is not None and made.api == _BATCHES:
        made = _made(run, made.arguments.get("sampler"))
    if made is None or made.api != _DEALER or made.open:
        return None
    return made if _is_all(run, made, "num_replicas") else None


def _is_all(run: RunQuery, event: Event, name: str) -> bool:
    """Return whether an argument is left out, or the number of all processes."""
    value = event.arguments.get(name)
    if value is None or value.constants == (None,):
        return True
    sizes = tuple(lane[3] for lane in run.machine.worlds.lanes)
    single = value.single
    if isinstance(single, PerRank):
        return single.values == sizes
    return value.constants is not None and len(set(sizes)) == 1 and value.constants == sizes[:1]


def _finding(run: RunQuery, event: Event, loader: Event, name: str, sampler: Event) -> Finding:
    return run.finding(
        META,
        loader.module,
        loader.nodes.get(name, loader.node),
        "the `DistributedSampler` divides the items, and accelerate divides this loader again: most items are never "
        "seen",
        hint=f"Drop `{name}`, or do not prepare the loader; of N ranks each sees 1/N² of the items",
        related=(
            run.location(event.module, event.node, "prepared here"),
            run.location(sampler.module, sampler.node, "the sampler"),
        ),
        fix=_fix(run, loader, name, sampler),
        facts={"argument": name},
    )


def _fix(run: RunQuery, loader: Event, name: str, sampler: Event) -> Fix | None:
    """`shuffle=True` in place of `sampler=...`, where the order of the sampler is known."""
    call, shuffle = loader.node, sampler.arguments.get("shuffle")
    if name != "sampler" or not isinstance(call, ast.Call) or loader.module.path != run.path:
        return None
    given = next((k for k in call.keywords if k.arg == name), None)
    order = (True,) if shuffle is None else shuffle.constants
    is_open = any(k.arg is None for k in call.keywords) or len(call.args) > 2
    if given is None or is_open or "shuffle" in loader.arguments or order not in ((True,), (False,)):
        return None
    edit = Edit(run.path, loader.module.span(given), f"shuffle={order[0]}")
    return Fix("Let accelerate divide the items", (edit,))


_HEAD = """\
import torch
from accelerate import Accelerator
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler


"""
_TRAIN = (
    _HEAD
    + """\
def train(model, optimizer, dataset):
    accelerator = Accelerator()
%s
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
"""
)
_LOADER = "    loader = DataLoader(dataset, batch_size=8, sampler=%s)"
_FIXED = "    loader = DataLoader(dataset, batch_size=8, shuffle=%s)"
_TRAINER = """\
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import Trainer


class OwnTrainer(Trainer):
    def get_train_dataloader(self):
        sampler = DistributedSampler(self.train_dataset, seed=self.args.seed, drop_last=True)
        loader = DataLoader(self.train_dataset, batch_size=self._train_batch_size, %s)
        return %s
"""

EXAMPLES = (
    bad(
        "the sampler in the call",
        {"train.py": _TRAIN % _LOADER % "DistributedSampler(dataset)"},
        "train.py:8",
        fixed={"train.py": _TRAIN % _FIXED % "True"},
    ),
    bad(
        "a sampler that does not shuffle, under a name",
        {
            "train.py": _TRAIN
            % (
                "    sampler = DistributedSampler(\n        dataset, num_replicas=accelerator.num_processes,"
                " rank=accelerator.process_index, shuffle=False\n    )\n" + _LOADER % "sampler"
            )
        },
        "train.py:11",
        fixed={
            "train.py": _TRAIN
            % (
                "    sampler = DistributedSampler(\n        dataset, num_replicas=accelerator.num_processes,"
                " rank=accelerator.process_index, shuffle=False\n    )\n" + _FIXED % "False"
            )
        },
    ),
    bad(
        "a batch sampler around it",
        {
            "train.py": _TRAIN
            % (
                "    sampler = DistributedSampler(dataset, shuffle=False)\n"
                "    loader = DataLoader(dataset, batch_sampler=BatchSampler(sampler, 8, False))"
            )
        },
        "train.py:9",
    ),
    bad(
        "a helper makes the loader, and accelerate dispatches its batches",
        {
            "train.py": _HEAD.replace("import Accelerator", "import Accelerator, DataLoaderConfiguration")
            + "def loader_of(dataset):\n    sampler = DistributedSampler(dataset, shuffle=True)\n"
            "    return DataLoader(dataset, batch_size=8, sampler=sampler)\n\n\n"
            "def main(dataset):\n"
            "    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True))\n"
            "    loader = accelerator.prepare_data_loader(loader_of(dataset))\n    return loader\n"
        },
        "train.py:8",
    ),
    bad(
        "the loader of a Trainer",
        {"train.py": _TRAINER % ("sampler=sampler", "self.accelerator.prepare(loader)")},
        "train.py:9",
    ),
    bad(
        "a class of another file keeps the sampler, and options are a dictionary",
        {
            "data.py": _HEAD + "class Data:\n    def __init__(self, dataset):\n        self.dataset = dataset\n"
            "        self.options = {'batch_size': 8, 'sampler': DistributedSampler(dataset)}\n\n"
            "    def loader(self):\n        return DataLoader(self.dataset, **self.options)\n",
            "train.py": _HEAD + "from data import Data\n\n\ndef main(dataset):\n    accelerator = Accelerator()\n"
            "    return accelerator.prepare(Data(dataset).loader())\n\n\nmain([])\n",
        },
        "data.py:9",
    ),
    good("no sampler", {"train.py": _TRAIN % _FIXED % "True"}),
    good(
        "the loader is not prepared",
        {
            "train.py": (_TRAIN % _LOADER % "DistributedSampler(dataset, shuffle=False)")
            .replace("optimizer, loader = acc", "optimizer = acc")
            .replace("optimizer, loader)", "optimizer)"),
            "trainer.py": _TRAINER % ("sampler=sampler", "loader"),
        },
    ),
    good(
        "every rank has all items, or a number of parts that the file does not tell",
        {
            "train.py": _TRAIN % _LOADER % "DistributedSampler(dataset, num_replicas=1, rank=0, shuffle=False)",
            "parts.py": _TRAIN % _LOADER % "DistributedSampler(dataset, *model.part, shuffle=False)",
            "groups.py": _TRAIN % _LOADER % "DistributedSampler(dataset, num_replicas=model.groups, shuffle=False)",
        },
    ),
    good(
        "another sampler, and one from elsewhere",
        {
            "train.py": _TRAIN % _LOADER % "RandomSampler(dataset)",
            "model.py": _TRAIN % _LOADER % "model.sampler(dataset)",
            "own.py": _TRAIN.replace("def train", "class Whole(DistributedSampler):\n    def __iter__(self):\n"
            "        return iter(range(len(self.dataset)))\n\n\ndef train") % _LOADER % "Whole(dataset, shuffle=False)",
        },
    ),
    good(
        "only where accelerate does not prepare",
        {
            "train.py": _HEAD + "def train(model, dataset, accelerated):\n"
            "    sampler = None if accelerated else DistributedSampler(dataset, shuffle=False)\n"
            "    loader = DataLoader(dataset, batch_size=8, sampler=sampler)\n"
            "    if accelerated:\n        loader = Accelerator().prepare(loader)\n    return loader\n",
            "arms.py": _HEAD + "def train(model, dataset, accelerated):\n    if accelerated:\n"
            "        loader = Accelerator().prepare(DataLoader(dataset, batch_size=8))\n    else:\n"
            "        loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, shuffle=False))\n"
            "    return loader\n",
        },
    ),
    good(
        "accelerate is told of one process",
        {
            "train.py": _HEAD + "from accelerate.data_loader import prepare_data_loader\n\n\n"
            "def loader_of(dataset, device):\n"
            "    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, shuffle=False))\n"
            "    return prepare_data_loader(loader, device, num_processes=1, process_index=0)\n"
        },
    ),
    good("one process", {"train.py": _TRAIN % _LOADER % "DistributedSampler(dataset, shuffle=False)"}, world_size=1),
    good(
        "another library prepares",
        {
            "train.py": (_TRAIN % _LOADER % "DistributedSampler(dataset, shuffle=False)").replace(
                "from accelerate import", "from project import"
            )
        },
    ),
)  # fmt: skip
