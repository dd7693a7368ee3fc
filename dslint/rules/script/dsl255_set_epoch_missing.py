"""A `DistributedSampler` that shuffles is used for several epochs, and nobody calls `set_epoch`.

**What.** The training loader gets its items from `DistributedSampler(dataset)` (which shuffles by default), or is the
one that `deepspeed.initialize(training_data=...)` returns (which makes such a sampler itself); a loop begins it anew
epoch after epoch, and nothing in the file calls `set_epoch`.

**Why it hurts.** The sampler seeds its shuffle with `seed + epoch`, so that all ranks agree without talking, and
`epoch` stays 0 until `set_epoch` says otherwise. Every epoch then has the same order and the same batches, on every
rank. Nothing fails; the model sees less variety than a shuffled run should, and each rank sees its own part only.

**Fix.** `sampler.set_epoch(epoch)` at the beginning of each epoch, before the loop over the loader. For the loader of
`deepspeed.initialize`: `loader.data_sampler.set_epoch(epoch)`.

**When it stays quiet.** `shuffle=False`, or a value that cannot be read; a loader that accelerate or Fabric prepared,
or that a Hugging Face Trainer runs over (they call `set_epoch`); one epoch (`range(1)`); evaluation loops, which do
not care about the order, and files in which nothing steps (a backward for the importance of heads); a sampler of the
project's own; a sampler made anew for each epoch, or handed to code of another file; DeepSpeed's data efficiency,
which brings a sampler of its own; any `set_epoch` in the file.

**Evidence.** torch 2.13 `DistributedSampler.__iter__` (`g.manual_seed(self.seed + self.epoch)`). Two gloo ranks, two
epochs: the same order twice, with `set_epoch` two orders; the same with the loader of `deepspeed.initialize` (0.19.8:
`DeepSpeedDataLoader` never calls `set_epoch`).
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.data.loaders import Pass
from dslint.model.script.data.sources import Source
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, flat
from dslint.model.script.tree import Loop
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

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
)

# What takes a loader and tells its sampler the epoch.
_PREPARE = frozenset({"prepare", "prepare_data_loader", "setup_dataloaders", "_prepare_impl", "skip_first_batches"})
# What a sampler may be passed to without being told the epoch.
_HARMLESS = frozenset({"DataLoader", "StatefulDataLoader", "BatchSampler", "len", "print", "isinstance", "type"})


def precheck(tree: ast.Module) -> bool:
    """A sampler or a loader of DeepSpeed is made, and nobody names `set_epoch`."""
    nodes = flat(tree)
    if any(n.attr == "set_epoch" for n in nodes.nodes(ast.Attribute)):
        return False
    return any(
        call_name(call) == "DistributedSampler" or any(k.arg == "training_data" for k in call.keywords)
        for call in nodes.nodes(ast.Call)
    )


_UPDATES = frozenset({"step", "zero_grad", "fit", "optimize", "update"})


class Check(ScriptCheck):
    """Looks at every loop that trains on a loader, and at what begins it anew."""

    def finish(self) -> None:
        """Report each sampler once."""
        if self._tells_epoch() or not self._updates():
            return
        reported: set[int] = set()
        for run in self.ctx.loaders.passes():
            outer = run.outer
            if outer is None or any(self._is_prepared(s) for s in run.sources) or not self._trains(run):
                continue
            for source in run.sources:
                made = self._sampler(source)
                if made is not None and id(made) not in reported and not self._is_fresh(made, run, outer):
                    reported.add(id(made))
                    self._report(made, run, outer)

    def _updates(self) -> bool:
        """Something in the file may change weights; a backward alone is for the importance of heads and the like."""
        names = {last_name(n.func) for n in self.ctx.tree.order if isinstance(n, cst.Call)}
        return not names.isdisjoint(_UPDATES) or any(name.startswith("train") for name in names)

    def _tells_epoch(self) -> bool:
        """`set_epoch` in any spelling, or an epoch written into the sampler."""
        for node in self.ctx.tree.order:
            if isinstance(node, cst.Attribute) and node.attr.value == "set_epoch":
                return True
            if isinstance(node, cst.SimpleString) and node.evaluated_value == "set_epoch":
                return True
            if isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Attribute):
                target = node.target
                if target.attr.value == "epoch" and "sampler" in last_name(target.value).lower():
                    return True
        return False

    def _is_prepared(self, source: Source) -> bool:
        made = source.node
        if isinstance(made, cst.Subscript):  # ``accelerator.prepare(model, loader)[1]``
            made = self.ctx.names.single_value(made.value) or made.value
        return isinstance(made, cst.Call) and self.ctx.called(made) in _PREPARE

    def _trains(self, run: Pass) -> bool:
        """The loop (for an iterator: what repeats it) trains."""
        return self.ctx.loaders.trains(run.node.body if isinstance(run.node, cst.For) else self._around(run.node))

    def _around(self, node: cst.CSTNode) -> cst.CSTNode:
        loops = self.ctx.loops(node)
        return loops[0].body if loops else node

    def _sampler(self, source: Source) -> cst.Call | None:
        """The call that makes the sampler behind a loader, when it shuffles and stays in this file."""
        made = source.node
        if not isinstance(made, cst.Call):
            return None
        if self.ctx.loaders.is_loader(made):
            sampler = self.ctx.loaders.shuffling_sampler(made)
            return sampler if sampler is not None and not self._escapes(sampler) else None
        makes = self.ctx.qualified_name(made.func) == "deepspeed.initialize" and source.position == 2
        given = self.ctx.argument(made, "training_data") if makes and not self._has_own_sampler() else None
        return made if given is not None and last_name(given) != "None" else None

    def _has_own_sampler(self) -> bool:
        """Data efficiency of DeepSpeed (curriculum learning) puts a sampler of its own in the loader."""
        names = (n.value for n in self.ctx.tree.order if isinstance(n, cst.Name))
        return any("curriculum" in name or "data_efficiency" in name for name in names)

    def _holders(self, sampler: cst.Call) -> set[str]:
        """The variables that hold the sampler, also by way of one another."""
        found: set[str] = set()
        pending: list[cst.CSTNode] = [sampler]
        while pending:
            parent = self.ctx.parent(pending.pop())
            if not isinstance(parent, cst.Assign | cst.AnnAssign):
                continue
            targets = [t.target for t in parent.targets] if isinstance(parent, cst.Assign) else [parent.target]
            fresh = {last_name(t) for t in targets} - found - {""}
            found |= fresh
            assigned = self.ctx.tree.some(cst.Assign, cst.AnnAssign) if fresh else []
            values = (n.value for n in assigned if isinstance(n, cst.Assign | cst.AnnAssign))
            pending += [value for value in values if value is not None and last_name(value) in fresh]
        return found

    def _escapes(self, sampler: cst.Call) -> bool:
        """The sampler is passed to something that may tell it the epoch."""
        targets = self._holders(sampler)
        for node in self.ctx.tree.order if targets else ():
            if isinstance(node, cst.Arg) and last_name(node.value) in targets:
                call = self.ctx.parent(node)
                known = isinstance(call, cst.Call) and (
                    self.ctx.called(call) in _HARMLESS or self.ctx.names.local_function(call) is not None
                )
                if not known:
                    return True
        return False

    def _is_fresh(self, made: cst.Call, run: Pass, outer: Loop) -> bool:
        """The sampler is made anew in each epoch, perhaps for other data or with another seed."""
        same = self.ctx.enclosing_function(made) is self.ctx.enclosing_function(run.node)
        return self.ctx.tree.contains(outer, made) or (
            same and self.ctx.enclosing_function(outer) is not self.ctx.enclosing_function(made)
        )

    def _report(self, made: cst.Call, run: Pass, outer: Loop) -> None:
        own = self.ctx.loaders.is_distributed_sampler(made)
        what = "`DistributedSampler` shuffles" if own else "the sampler that `deepspeed.initialize` makes shuffles"
        related = [self.ctx.location(outer, "runs over the data again and again")]
        if not self.ctx.tree.contains(outer, run.node):
            related.append(self.ctx.location(run.node, "the loop over the data"))
        sampler = "sampler" if own else "loader.data_sampler"
        self.report(
            made,
            f"{what} by the number of the epoch, and nothing calls `set_epoch`: every epoch has the same order",
            hint=f"Call `{sampler}.set_epoch(epoch)` at the beginning of each epoch",
            related=tuple(related),
            facts={"loader": "sampler" if own else "deepspeed"},
        )
