"""A `DistributedSampler` that shuffles is used for several epochs, and nobody calls `set_epoch`.

**What.** The training loader gets its items from `DistributedSampler(dataset)` (which shuffles by default), or is the
one that `deepspeed.initialize(training_data=...)` returns (which makes such a sampler itself); a loop begins it anew
epoch after epoch, and nothing calls `set_epoch` of the sampler.

**Why it hurts.** The sampler seeds its shuffle with `seed + epoch`, so that all ranks agree without talking, and
`epoch` stays 0 until `set_epoch` says otherwise. Every epoch then has the same order and the same batches, on every
rank. Nothing fails; the model sees less variety than a shuffled run should, and each rank sees its own part only.

**Fix.** `sampler.set_epoch(epoch)` at the beginning of each epoch, before the loop over the loader. For the loader of
`deepspeed.initialize`: `loader.data_sampler.set_epoch(epoch)`.

**When it stays quiet.** `shuffle=False`, or a value that cannot be read; a loader that accelerate or Fabric prepared,
or that a Hugging Face Trainer runs over (they call `set_epoch`); one epoch (`range(1)`); evaluation loops, which do
not care about the order, and code in which nothing steps (a backward for the importance of heads); a sampler of the
project's own; a sampler made anew for each epoch, or handed to code that nobody can read; DeepSpeed's data efficiency,
which brings a sampler of its own; any `set_epoch` in the files of the loop that may be one of this sampler.

**Evidence.** torch 2.13 `DistributedSampler.__iter__` (`g.manual_seed(self.seed + self.epoch)`). Two gloo ranks, two
epochs: the same order twice, with `set_epoch` two orders; the same with the loader of `deepspeed.initialize` (0.19.8:
`DeepSpeedDataLoader` never calls `set_epoch`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.python.source import Module
from dslint.python.values import Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.passes import Pass, repeated_passes
from dslint.rules.data.trainingloaders import is_taken
from dslint.rules.examples.shufflescripts import AGAIN, ENDLESS, ENDLESS_STEPS
from dslint.rules.examples.snippets import EPOCH_RUNNER, SAMPLED_DATA
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL255",
    name="set-epoch-missing",
    kind="script",
    severity=Severity.WARNING,
    summary="a `DistributedSampler` shuffles every epoch in the same order: `set_epoch` is never called",
    markers=(r"DistributedSampler\b|training_data\s*=", r"\bfor\b", r"\.(?:backward|step|train_\w+)\("),
    references=(
        "https://pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
        "DistributedSampler.__iter__ in torch/utils/data/distributed.py",
        "DeepSpeedDataLoader in deepspeed/runtime/dataloader.py",
    ),
    depends_on_run=True,
)

_DEALER = "torch.utils.data.DistributedSampler"
_BATCHES = "torch.utils.data.BatchSampler"
# What changes weights; a backward alone is for the importance of heads and the like.
_UPDATES = re.compile(r"(?:step|zero_grad|fit|optimize|update)|train\w*")
# Data efficiency of DeepSpeed (curriculum learning) puts a sampler of its own in the loader.
_OWN_SAMPLER = re.compile(r"curriculum|data_efficiency")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each sampler that shuffles the items of a training loop that is begun anew, without a new epoch."""
    makers = _makers(run)
    told = [h.event for h in run.occurrences("sets-epoch")] if makers else []
    reported: set[int] = set()
    for found in repeated_passes(run) if makers else ():
        for made in makers.get(id(found.loader), ()):
            if id(made.node) in reported or _is_fresh(run, made, found):
                continue
            modules = {**found.modules, made.module: None}
            if not _is_told(made, told, modules) and any(_names(module, _UPDATES) for module in modules):
                reported.add(id(made.node))
                yield _finding(run, made, found)


def _makers(run: RunQuery) -> dict[int, list[Event]]:
    """Return the calls that make shuffling samplers, by the calls that make loaders with them."""
    found: dict[int, list[Event]] = {}
    for event in (happening.event for happening in run.happenings("makes-loader")):
        given = [event.arguments.get("sampler"), *_batched(run, event)]
        made = [run.makers.get(atom) for value in given for atom in instances(value) if atom.cls == _DEALER]
        kept = [m for m in made if m is not None and _shuffles(m) and not _is_passed_on(run, m)]
        if kept and not is_taken(run, event):
            found[id(event.node)] = kept
    for event in (happening.event for happening in run.happenings("makes-engine")):
        data = event.arguments.get("training_data")
        is_given = event.api == "deepspeed.initialize" and data is not None and data.constants != (None,)
        if is_given and not event.module.search(_OWN_SAMPLER):
            found[id(event.node)] = [event]
    return found


def _batched(run: RunQuery, event: Event) -> Iterator[Value | None]:
    """Yield the samplers from which batches are made."""
    for atom in instances(event.arguments.get("batch_sampler")):
        made = run.makers.get(atom) if atom.cls == _BATCHES else None
        if made is not None:
            yield made.arguments.get("sampler")


def _shuffles(made: Event) -> bool:
    """Return whether `shuffle` is not given (the default is true) or known to be true."""
    given = made.arguments.get("shuffle")
    return not made.open and (given is None or given.constants == (True,))


def _is_passed_on(run: RunQuery, made: Event) -> bool:
    """Return whether code that nobody can read got hold of the sampler, and may tell it the epoch."""
    return any(atom in run.machine.escaped for atom in instances(made.result))


def _is_fresh(run: RunQuery, made: Event, found: Pass) -> bool:
    """Return whether the sampler is made anew in each epoch, perhaps for other data or with another seed."""
    outer = found.outer[1]
    for h in run.occurrences(*made.tags):
        loops = [node for node in h.around if isinstance(node, Loop) and h.event.node is made.node]
        # A generator that begins its loader again runs inside of the loop that asks it for items.
        is_once = found.loader in run.machine.restarts and loops and loops[-1].node is outer
        if any(loop.node is outer for loop in loops) and not is_once:
            return True
    return False


def _is_told(made: Event, told: list[Event], modules: dict[Module, None]) -> bool:
    """Return whether a `set_epoch` (or a write of `epoch`) may be one of this sampler."""
    known: dict[int, bool] = {}
    for event in told:
        made_at = [atom.node for atom in instances(event.receiver)]
        is_this = not made_at or made.node in made_at
        known[id(event.node)] = known.get(id(event.node), False) or is_this
    if any(known.values()):
        return True
    return any(known.get(id(node)) is not False for module in modules for node in _telling(module))


def _telling(module: Module) -> Iterator[ast.AST]:
    """Yield the places of a module that may tell a sampler the epoch."""
    if "set_epoch" not in module.code and ".epoch" not in module.code:
        return
    called = {id(node.func): node for node in module.nodes if isinstance(node, ast.Call)}
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "set_epoch":
            yield called.get(id(node), node)
        elif isinstance(node, ast.Constant) and node.value == "set_epoch":
            yield node
        elif isinstance(node, ast.Attribute) and node.attr == "epoch" and isinstance(node.ctx, ast.Store):
            yield from [node] if "sampler" in ast.unparse(node.value).lower() else []


def _names(module: Module, names: re.Pattern[str]) -> bool:
    """Return whether a module reads a method or calls a function of such a name."""
    for node in module.nodes:
        read = node.func if isinstance(node, ast.Call) else node
        name = getattr(read, "attr", "") or (getattr(read, "id", "") if read is not node else "")
        if names.fullmatch(name):
            return True
    return False


def _finding(run: RunQuery, made: Event, found: Pass) -> Finding:
    own = made.api == _DEALER
    what = "`DistributedSampler`" if own else "the sampler of `deepspeed.initialize`"
    related = [run.location(*found.outer, "iterates over the data again and again")]
    if found.loop != found.outer:
        related.append(run.location(*found.loop, "the loop over the data"))
    sampler = "sampler" if own else "loader.data_sampler"
    return run.finding(
        META,
        made.module,
        made.node,
        f"{what} shuffles by epoch number, but nothing calls `set_epoch`: every epoch has the same order",
        hint=f"Call `{sampler}.set_epoch(epoch)` at the beginning of each epoch",
        related=tuple(related),
        facts={"loader": "sampler" if own else "deepspeed"},
    )


_HEAD = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


"""
_LOOP = """\
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            optimizer.step()
"""

EXAMPLES = (
    bad(
        "an epoch loop over a loader with a sampler",
        {
            "train.py": _HEAD
            + "def train(args, model, optimizer, dataset):\n"
            + "    sampler = DistributedSampler(dataset)\n"
            + "    loader = DataLoader(dataset, sampler=sampler)\n"
            + _LOOP
        },
        at="train.py:7",
    ),
    bad(
        "the loop is a helper, and one arm has another sampler",
        {
            "train.py": _HEAD
            + "def train_epoch(model, loader):\n"
            + "    for batch in loader:\n        model.backward(model(batch))\n        model.step()\n\n\n"
            + "def main(args, model, dataset):\n"
            + "    if args.local_rank == -1:\n        sampler = torch.utils.data.RandomSampler(dataset)\n"
            + "    else:\n        sampler = DistributedSampler(dataset, shuffle=True)\n"
            + "    loader = DataLoader(dataset, sampler=sampler)\n"
            + "    step = 0\n    while step < args.max_steps:\n"
            + "        train_epoch(model, loader)\n        step += len(loader)\n"
        },
        at="train.py:16",
    ),
    bad(
        "a generator that begins the loader again when it ends",
        {"train.py": _HEAD + ENDLESS % "" + ENDLESS_STEPS % "loader"},
        at="train.py:15",
    ),
    bad(
        "an iterator of the project that begins again",
        {"train.py": _HEAD + AGAIN + ENDLESS_STEPS % "loader"},
        at="train.py:20",
    ),
    good(
        "the generator tells the sampler",
        {"train.py": _HEAD + ENDLESS % "loader.sampler.set_epoch(epoch)\n        " + ENDLESS_STEPS % "loader"},
    ),
    bad(
        "the loader that DeepSpeed makes",
        {
            "train.py": "import deepspeed\n\n\n"
            "def main(args, model, dataset):\n"
            "    engine, _, loader, _ = deepspeed.initialize(args=args, model=model, training_data=dataset)\n"
            "    for epoch in range(4):\n        for batch in loader:\n"
            "            engine.backward(engine(batch))\n            engine.step()\n"
        },
        at="train.py:5",
    ),
    bad(
        "another file makes the loader, a bar shows it, and the sampler of the evaluation is told",
        {
            "train.py": "import torch\nfrom tqdm import tqdm\n\nfrom data import Data\n\n\n"
            + "def train(args, model, optimizer, dataset):\n"
            + "    torch.distributed.init_process_group('nccl')\n"
            + "    data = Data(dataset)\n"
            + _LOOP.replace("enumerate(loader)", "enumerate(tqdm(data.training))")
            + "        data.evaluation.sampler.set_epoch(epoch)\n",
            "data.py": _HEAD
            + "class Data:\n"
            + "    def __init__(self, items):\n"
            + "        self.training = self.loader(items)\n"
            + "        self.evaluation = DataLoader(items, sampler=DistributedSampler(items, seed=1))\n\n"
            + "    def loader(self, items):\n"
            + "        options = {'sampler': DistributedSampler(items)}\n"
            + "        return DataLoader(items, **options)\n",
        },
        at="data.py:12",
    ),
    bad(
        "one loop that begins the loader again when it ends",
        {
            "train.py": _HEAD
            + "def train(args, model, optimizer, dataset):\n"
            + "    loader = DataLoader(dataset, sampler=DistributedSampler(dataset))\n"
            + "    batches = iter(loader)\n"
            + "    for step in range(args.steps):\n"
            + "        try:\n            batch = next(batches)\n"
            + "        except StopIteration:\n            batches = iter(loader)\n            batch = next(batches)\n"
            + "        model(batch).backward()\n        optimizer.step()\n"
        },
        at="train.py:7",
    ),
    good(
        "another file tells the sampler the epoch",
        {
            "train.py": _HEAD
            + "from data import begin\n\n\n"
            + "def train(args, model, optimizer, dataset):\n"
            + "    sampler = DistributedSampler(dataset)\n"
            + "    loader = DataLoader(dataset, sampler=sampler)\n"
            + _LOOP.replace("(args.epochs):\n", "(args.epochs):\n        begin(loader, epoch)\n"),
            "data.py": "def begin(loader, epoch):\n    loader.sampler.set_epoch(epoch)\n",
        },
    ),
    good(
        "`set_epoch` is called",
        {
            "train.py": _HEAD
            + "def train(args, model, optimizer, dataset):\n"
            + "    sampler = DistributedSampler(dataset)\n"
            + "    loader = DataLoader(dataset, sampler=sampler)\n"
            + _LOOP.replace("(args.epochs):\n", "(args.epochs):\n        loader.sampler.set_epoch(epoch)\n")
        },
    ),
    good(
        "no shuffle, or nobody knows",
        {
            "train.py": _HEAD
            + "def train(args, model, optimizer, dataset, shuffle):\n"
            + "    loader = DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=False))\n"
            + _LOOP
            + "    loader = DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=shuffle))\n"
            + _LOOP
        },
    ),
    good(
        "gradients that are only read, until enough heads are masked",
        {
            "prune.py": _HEAD
            + "def importance(model, loader):\n    total = 0\n    for batch in loader:\n"
            + "        model(batch).backward()\n        total += model.mask.grad.abs()\n    return total\n\n\n"
            + "def main(args, model, dataset):\n"
            + "    loader = DataLoader(dataset, sampler=DistributedSampler(dataset))\n"
            + "    while model.score() > args.least:\n        model.drop(importance(model, loader))\n"
        },
    ),
    good(
        "evaluation in each epoch, in any order; one epoch of training",
        {
            "train.py": _HEAD
            + "@torch.no_grad()\ndef evaluate(model, dataset):\n"
            + "    loader = DataLoader(dataset, sampler=DistributedSampler(dataset))\n"
            + "    return [model(batch) for batch in loader]\n\n\n"
            + "def train(model, optimizer, dataset):\n"
            + "    loader = DataLoader(dataset, sampler=DistributedSampler(dataset))\n"
            + _LOOP.replace("args.epochs", "1")
            + "    for round in range(3):\n        for batch in loader:\n            print(model(batch))\n"
        },
    ),
    good(
        "accelerate prepares the loader, and sets the epoch of its sampler",
        {
            "train.py": _HEAD.replace("import torch\n", "import torch\nfrom accelerate import Accelerator\n")
            + "def train(args, model, optimizer, dataset):\n"
            + "    accelerator = Accelerator()\n"
            + "    loader = DataLoader(dataset, sampler=DistributedSampler(dataset, num_replicas=1, rank=0))\n"
            + "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
            + _LOOP.replace("loss.backward()", "accelerator.backward(loss)")
        },
    ),
    good(
        "a sampler of the project, which another file tells the epoch",
        {
            "train.py": _HEAD.replace("torch.utils.data.distributed", "project.samplers")
            + "def train(args, model, optimizer, dataset):\n"
            + "    loader = DataLoader(dataset, sampler=DistributedSampler(dataset))\n"
            + _LOOP
        },
    ),
    good(
        "the sampler goes to code of another file, which may tell it the epoch",
        {
            "train.py": _HEAD.replace("import torch\n", "import torch\nfrom project.hooks import EpochHook\n")
            + "def train(args, model, optimizer, dataset):\n"
            + "    sampler = DistributedSampler(dataset)\n"
            + "    hook = EpochHook(sampler)\n"
            + "    loader = DataLoader(dataset, sampler=sampler)\n"
            + _LOOP.replace("(args.epochs):\n", "(args.epochs):\n        hook.before_epoch(epoch)\n")
        },
    ),
    bad(
        "Sampler, loader and loops are in functions, fields and two files",
        {"data.py": SAMPLED_DATA % "", "train.py": EPOCH_RUNNER % ("", "60")},
        at="data.py:8",
    ),
    good(
        "The loop of another file calls `set_epoch`",
        {
            "data.py": SAMPLED_DATA % "",
            "train.py": EPOCH_RUNNER % ("self.loader.sampler.set_epoch(epoch)\n            ", "60"),
        },
    ),
    good(
        "Unknown code gets hold of the loader",
        {
            "data.py": SAMPLED_DATA % "",
            "train.py": ("from somewhere import hook\n" + EPOCH_RUNNER)
            % ("hook(self.loader, epoch)\n            ", "60"),
        },
    ),
    good("Nothing is shuffled", {"data.py": SAMPLED_DATA % ", shuffle=False", "train.py": EPOCH_RUNNER % ("", "60")}),
)
