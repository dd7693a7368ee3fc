"""A sampler with an order of its own gives it to a Trainer of Lightning that shuffles what samplers give.

**What.** The training loader gets a sampler of the project that hands out the items in a fixed order, from short to
long for example. A Trainer of Lightning trains with it in several processes.

Or it gets a `RandomSampler` with `replacement=True` or `num_samples`.

**Why it hurts.** With several processes Lightning wraps every sampler that is not a `DistributedSampler`, so that each
rank gets its share, and for training it shuffles: the order is lost, silently. There is no curriculum any more,
and batches of equal length are no longer such. On one GPU the order is kept. A `RandomSampler` is replaced by a plain
`DistributedSampler`: each epoch goes once through the whole data set, whatever number of draws was asked for.

**Fix.** Make the sampler a `DistributedSampler` that deals its order out by `rank` and `num_replicas`; or give it both
and pass `use_distributed_sampler=False`.

**When it stays quiet.** Samplers that draw anything at random, or ask for the rank; `use_distributed_sampler=False`;
batch samplers, samplers of libraries, iterable data sets; a trainer that may have one process.

**Evidence.** lightning 2.6: `_process_dataloader` in lightning/pytorch/trainer/connectors/data_connector.py prepares a
loader for training with `shuffle=True`, and `_get_distributed_sampler` hands that to `DistributedSamplerWrapper`, or to
a new `DistributedSampler` where the sampler is a `RandomSampler` or a `SequentialSampler`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.reach import reached
from dslint.python.sources import Source
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.trainingloaders import in_training
from dslint.rules.data.undivided import ITERABLE, draws, iterates, knows_no_rank
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import adds_sampler, is_one_process, trainers

META = RuleMeta(
    code="DSL640",
    name="sampler-shuffled-by-lightning",
    kind="script",
    severity=Severity.WARNING,
    summary="Lightning shuffles what a sampler of the project gives in its own order: the order is lost",
    markers=(r"lightning", r"[sS]ampler"),
    references=(
        "https://github.com/Lightning-AI/pytorch-lightning/issues/21447",
        "https://lightning.ai/docs/pytorch/stable/common/trainer.html#use-distributed-sampler",
    ),
    depends_on_run=True,
    no_experiment="needs Lightning, which the experiments do not install",
)

_RANDOM = "torch.utils.data.RandomSampler"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each training loader whose own sampler has a fixed order, where Lightning shuffles."""
    if is_one_process(run) or not adds_sampler(run):
        return
    for found in run.happenings("makes-loader"):
        event = found.event
        first = event.sources[0] if event.sources and not event.open else None
        if first is None or not in_training(run, found) or any(ITERABLE in source.bases for source in event.sources):
            continue
        if first.role == "sampler" and first.is_own and iterates(first) and _is_fixed(run, first):
            yield _finding(run, found, first)
        elif (made := _replaced(run, event)) is not None:
            yield _of_replaced(run, event, made)


def _is_fixed(run: RunQuery, source: Source) -> bool:
    """Return whether a sampler draws nothing and asks for no rank."""
    if not knows_no_rank(run, source):
        return False
    pieces = reached(run.machine.program, source.code)
    return not any(draws(*piece) or re.search("shuffle|permutation", ast.unparse(piece[1])) for piece in pieces)


def _replaced(run: RunQuery, loader: Event) -> Event | None:
    """Return the call that makes a `RandomSampler` with settings which a `DistributedSampler` does not have."""
    sampler = loader.arguments.get("sampler")
    atom = sampler.single if sampler is not None else None
    made = run.makers.get(atom) if isinstance(atom, Instance) and atom.cls == _RANDOM else None
    if made is None or made.open or made.may:
        return None
    replacement, number = made.arguments.get("replacement"), made.arguments.get("num_samples")
    is_drawn = replacement is not None and replacement.constants == (True,)
    return made if is_drawn or (number is not None and number.constants != (None,)) else None


def _of_replaced(run: RunQuery, loader: Event, made: Event) -> Finding:
    given = " and ".join(f"`{name}`" for name in ("replacement", "num_samples") if name in made.arguments)
    trainer = trainers(run)[0]
    return run.finding(
        META,
        made.module,
        made.node,
        f"On several GPUs Lightning makes a `DistributedSampler` of this `RandomSampler`, which drops {given}",
        hint="Divide the draws by rank in a sampler of your own, and pass `use_distributed_sampler=False`",
        related=(
            run.location(loader.module, loader.node, "the loader"),
            run.location(trainer.module, trainer.node, "trains in several processes"),
        ),
        facts={"role": "sampler"},
    )


def _finding(run: RunQuery, found: Happening, source: Source) -> Finding:
    event = found.event
    trainer = trainers(run)[0]
    name = next((node.name for _, node in source.code if isinstance(node, ast.ClassDef)), source.path)
    return run.finding(
        META,
        event.module,
        event.node,
        f"Lightning shuffles and divides what the sampler `{name}` gives: its order is lost on several GPUs",
        hint="Make it a `DistributedSampler`, or divide its order by rank and pass `use_distributed_sampler=False`",
        related=(
            *(run.location(module, node, "the order") for module, node in source.code[:1]),
            run.location(trainer.module, trainer.node, "trains in several processes"),
        ),
        facts={"role": source.role},
    )


_DATA = """\
import lightning as L
import random
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Sampler


class Clips(Dataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return self.lengths[index]


class ByLength(%s):
    def __init__(self, data%s):
        %s
        self.order = sorted(range(len(data)), key=lambda index: data.lengths[index])

    def __len__(self):
        return len(self.order)

    def __iter__(self):
        %s


class Data(L.LightningDataModule):
    def setup(self, stage=None):
        self.data = Clips([3, 1, 2])

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=2, sampler=ByLength(self.data))

    def val_dataloader(self):
        return DataLoader(self.data, batch_size=2)
"""
_RUN = """\
import lightning as L
import torch
from data import ByLength, Clips, Data


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    trainer = L.Trainer(%s)
    trainer.fit(Net(), %s)


if __name__ == "__main__":
    main()
"""
_KEPT, _DDP = "return iter(self.order)", 'strategy="ddp", devices=4'
_DEALT = "return iter(self.order[self.rank : self.total_size : self.num_replicas])"
_LOADER = "torch.utils.data.DataLoader(clips, batch_size=2, sampler=ByLength(clips))"
_PASSED = _RUN.replace("    trainer.fit", f"    clips = Clips([3, 1, 2])\n    loader = {_LOADER}\n    trainer.fit")


def _data(base: str = "Sampler", more: str = "", init: str = "self.data = data", order: str = _KEPT) -> str:
    return _DATA % (base, more, init, order)


_DRAWN = (
    _data()
    .replace("sampler=ByLength(self.data)", "sampler=RandomSampler(self.data, %s)")
    .replace("import DataLoader,", "import RandomSampler, DataLoader,")
)

EXAMPLES = (
    bad(
        "draws with replacement",
        {"data.py": _DRAWN % "replacement=True, num_samples=500", "run.py": _RUN % (_DDP, "datamodule=Data()")},
        "data.py:34",
    ),
    good(
        "the draws stay",
        {
            "data.py": _DRAWN % "replacement=True, num_samples=500",
            "run.py": _RUN % (f"{_DDP}, use_distributed_sampler=False", "datamodule=Data()"),
        },
    ),
    good("a shuffle", {"data.py": _DRAWN % "replacement=False", "run.py": _RUN % (_DDP, "datamodule=Data()")}),
    bad("a data module", {"data.py": _data(), "run.py": _RUN % (_DDP, "datamodule=Data()")}, at="data.py:34 warning"),
    bad(
        "a generator",
        {"data.py": _data(order="yield from self.order"), "run.py": _RUN % (_DDP, "Data()")},
        "data.py:34",
    ),
    bad("by the devices", {"data.py": _data(), "run.py": _RUN % ("devices=8", "datamodule=Data()")}, "data.py:34"),
    bad("a loader that is passed", {"data.py": _data(), "run.py": _PASSED % (_DDP, "loader")}, at="run.py:21 warning"),
    good(
        "it deals its order out",
        {
            "data.py": _data("DistributedSampler", "", "super().__init__(data, shuffle=False, drop_last=True)", _DEALT),
            "run.py": _RUN % (_DDP, "datamodule=Data()"),
        },
    ),
    good(
        "it draws its order",
        {
            "data.py": _data(order="return iter(random.sample(self.order, len(self.order)))"),
            "run.py": _RUN % (_DDP, "datamodule=Data()"),
        },
    ),
    good("one device", {"data.py": _data(), "run.py": _RUN % ("devices=1", "datamodule=Data()")}),
    good(
        "a loader for validation",
        {"data.py": _data(), "run.py": _PASSED % (_DDP, "None, loader")},
    ),
)
