"""Every rank trains on the whole data set: nothing deals the items out.

**What.** A loop that trains a DeepSpeed engine or a `DistributedDataParallel` model runs over `DataLoader(dataset)`
without a sampler, the data set is the same on every rank, and neither accelerate, a Trainer nor
`deepspeed.initialize(training_data=...)` gets hold of either.

**Why it hurts.** Nothing fails. Each rank goes through all items: an epoch takes as long on eight GPUs as on one. Where
the order is the same on every rank (no shuffle, or the same seed), all ranks compute the same gradients, and averaging
them gains nothing at all.

**Fix.** `sampler=DistributedSampler(dataset)` in place of `shuffle=True` (and `set_epoch` in each epoch), or
`accelerator.prepare(loader)`, or `training_data=dataset` for DeepSpeed.

**When it stays quiet.** Evaluation; iterable data sets; a data set that this file does not make, or that the rank, the
world size or a random generator takes part in; a sampler, a batch sampler or unpacked arguments; model, tensor or
sequence parallel scripts, whose ranks must see the same batch; scripts that never train over several ranks.

**Evidence.** Two gloo ranks, 8 items: each rank sees all 8, with a `DistributedSampler` or a prepared loader 4 each.
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.data.loaders import Pass
from dslint.model.script.data.sources import Source
from dslint.model.script.dotted import is_none, last_name
from dslint.model.script.quick import call_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL254",
    name="training-loader-not-divided",
    kind="script",
    severity=Severity.WARNING,
    summary="every rank trains on all items: no sampler deals them out",
    markers=(
        r"DataLoader\b",
        r"DistributedDataParallel|deepspeed[\s\\]*\.initialize|deepspeed as|from deepspeed"
        r"|FullyShardedDataParallel|fully_shard",
    ),
    references=("https://pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",),
)

_HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Items(Dataset):
    def __init__(self, path):
        self.rows = torch.load(path)

    def __getitem__(self, index):
        return self.rows[index]


"""
_LOOP = """\
    for batch in loader:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
"""

EXAMPLES = (
    bad(
        "a DDP model, and a loader as on one GPU",
        {
            "train.py": _HEAD + "def train(net, optimizer):\n    model = DistributedDataParallel(net)\n"
            "    loader = DataLoader(Items('a.pt'), batch_size=4, shuffle=True)\n" + _LOOP
        },
        at="train.py:17",
    ),
    bad(
        "a DeepSpeed engine",
        {
            "train.py": "import deepspeed\nfrom torch.utils.data import DataLoader\n"
            "from torchvision import datasets\n\n\n"
            "def main(args, net):\n    engine, _, _, _ = deepspeed.initialize(args=args, model=net)\n"
            "    data = datasets.CIFAR10('data', train=True)\n    loader = DataLoader(data, batch_size=8)\n"
            "    for images, labels in loader:\n        engine.backward(engine(images, labels))\n"
            "        engine.step()\n"
        },
        at="train.py:9",
    ),
    bad(
        "rows from the hub, as every rank has them",
        {
            "train.py": _HEAD.replace("import torch\n", "import torch\nfrom datasets import load_dataset\n", 1)
            + "def train(net, optimizer, tokenize):\n    model = DistributedDataParallel(net)\n"
            "    data = load_dataset('wikitext', split='train')\n    rows = data.map(tokenize, batched=True)\n"
            "    loader = DataLoader(rows.with_format('torch'), batch_size=4)\n" + _LOOP
        },
        at="train.py:20",
    ),
    good(
        "rows that are streamed: they may be divided on the way",
        {
            "train.py": _HEAD.replace("import torch\n", "import torch\nfrom datasets import load_dataset\n", 1)
            + "def train(net, optimizer):\n    model = DistributedDataParallel(net)\n"
            "    loader = DataLoader(load_dataset('wikitext', split='train', streaming=True))\n" + _LOOP
        },
    ),
    good(
        "a sampler, or a part of the rank's own",
        {
            "train.py": _HEAD + "def train(net, optimizer):\n    model = DistributedDataParallel(net)\n"
            "    data = Items('a.pt')\n"
            "    sampler = torch.utils.data.DistributedSampler(data, shuffle=False)\n"
            "    loader = DataLoader(data, batch_size=4, sampler=sampler)\n" + _LOOP,
            "own.py": _HEAD + "def train(net, optimizer):\n    model = DistributedDataParallel(net)\n"
            "    loader = DataLoader(Items(f'part-{dist.get_rank()}.pt'), batch_size=4)\n" + _LOOP,
        },
    ),
    good(
        "accelerate deals the items out",
        {
            "train.py": _HEAD.replace("import torch\n", "import torch\nfrom accelerate import Accelerator\n", 1)
            + "def train(net, optimizer):\n    accelerator = Accelerator()\n"
            "    loader = DataLoader(Items('a.pt'), batch_size=4)\n"
            "    model, optimizer, loader = accelerator.prepare(DistributedDataParallel(net), optimizer, loader)\n"
            + _LOOP.replace("loss.backward()", "accelerator.backward(loss)")
        },
    ),
    good(
        "a data set from another file, and an iterable one",
        {
            "train.py": _HEAD.replace("(Dataset)", "(IterableDataset)")
            + "def train(net, optimizer, data):\n    model = DistributedDataParallel(net)\n"
            "    loader = DataLoader(Items('a.pt'))\n" + _LOOP + "    loader = DataLoader(data)\n" + _LOOP
        },
    ),
    good(
        "evaluation on every rank, and training on one GPU",
        {
            "train.py": _HEAD + "def evaluate(net):\n    model = DistributedDataParallel(net)\n"
            "    for batch in DataLoader(Items('a.pt')):\n        print(model(batch))\n\n\n"
            "def train(model, optimizer):\n    loader = DataLoader(Items('a.pt'))\n" + _LOOP
        },
    ),
)

_WRAPPED = frozenset({"ddp", "engine", "fsdp"})
_OTHER_PARALLEL = re.compile(
    r"sequence_parallel|tensor_parallel|autotp|tp_size|sp_size|ulysses|pipeline_parallel|mpu\b"
)
_RANDOM = re.compile(r"^(?:rand|randn|randint|randperm|random|choice|normal|uniform|sample|shuffle|rand_like)$")
_MAP_STYLE = ("torchvision.datasets.", "torch.utils.data.TensorDataset", "torch.utils.data.dataset.TensorDataset")
# What may divide a loader or a data set among the ranks.
_TAKERS = ("prepare", "setup", "fit", "train", "initialize", "shard", "split")
# Of the `datasets` library; the methods leave every rank with the same rows.
_HUB = frozenset({"datasets.load_dataset", "datasets.load_from_disk"})
_KEEPS_ITEMS = frozenset({"map", "filter", "with_format", "remove_columns", "rename_column", "select_columns", "cast"})
_MAX_STEPS = 6
_WRAPPERS = frozenset({"torch.utils.data.Subset", "torch.utils.data.ConcatDataset", "torch.utils.data.random_split"})


def precheck(tree: ast.Module) -> bool:
    """A loader without a sampler, and something that trains."""
    calls = flat(tree).nodes(ast.Call)
    if not any(call_name(c) in ("backward", "train_batch") for c in calls):
        return False
    return any(call_name(c) == "DataLoader" and not _is_dealt(c) for c in calls)


def _is_dealt(call: ast.Call) -> bool:
    return any(k.arg in ("sampler", "batch_sampler", None) for k in call.keywords) or len(call.args) > 3


class Check(ScriptCheck):
    """Looks at every loop that trains."""

    def finish(self) -> None:
        """Report each loader once."""
        if _OTHER_PARALLEL.search(self.ctx.doc.source.text):
            return
        seen: set[int] = set()
        for run in self.ctx.loaders.passes():
            made = self._loader(run)
            trained = self._trained(run) if made is not None and id(made) not in seen else None
            if made is not None and trained is not None and self._is_whole(made) and not self._is_handed_on(made):
                seen.add(id(made))
                self._report(made, run, trained)

    def _loader(self, run: Pass) -> cst.Call | None:
        """The one loader that a loop runs over, also inside a wrapper that this file defines."""
        if len(run.sources) != 1:
            return None
        made = run.sources[0].node
        local = isinstance(made, cst.Call) and isinstance(made.func, cst.Name) and len(made.args) == 1
        if isinstance(made, cst.Call) and local and self.ctx.names.local_class(self.ctx.called(made)) is not None:
            inner = self.ctx.loaders.sources.of(made.args[0].value)
            made = inner[0].node if len(inner) == 1 else None
        return made if isinstance(made, cst.Call) and self.ctx.loaders.is_loader(made) else None

    def _trained(self, run: Pass) -> cst.Call | None:
        """The forward of a model that lives on all ranks, in a loop that also goes backward."""
        if not isinstance(run.node, cst.For) or not self.ctx.loaders.trains(run.node.body):
            return None
        calls = [n for n in self.ctx.tree.own_nodes(run.node.body) if isinstance(n, cst.Call)]
        steps = [f for f in map(self.ctx.names.local_function, calls) if f is not None]
        calls += [n for f in steps for n in self.ctx.tree.own_nodes(f.body) if isinstance(n, cst.Call)]
        if not any(self.ctx.called(c) == "backward" for c in calls):
            return None
        return next((c for c in calls if self.ctx.kind(c.func) in _WRAPPED), None)

    def _is_whole(self, made: cst.Call) -> bool:
        """No sampler, and a map-style data set of this file that is the same on every rank."""
        loaders = self.ctx.loaders
        if self.ctx.has_unpacked_arguments(made):
            return False
        samplers = (loaders.argument(made, name) for name in ("sampler", "batch_sampler"))
        if any(given is not None and not is_none(given) for given in samplers):
            return False
        sources = loaders.sources.of(loaders.argument(made, "dataset"))
        return bool(sources) and all(self._is_map_style(s, 0) for s in sources)

    def _is_map_style(self, source: Source, depth: int) -> bool:
        made = source.node
        if made is None or depth > _MAX_STEPS or self._is_own(made):
            return False
        if isinstance(made, cst.Subscript):  # ``load_dataset(...)["train"]``
            return self._all_map_style(made.value, depth)
        if isinstance(made, cst.ListComp):  # rows of a data set, read into a list
            return self._all_map_style(made.for_in.iter, depth)
        return isinstance(made, cst.Call) and self._makes_map_style(made, depth)

    def _makes_map_style(self, made: cst.Call, depth: int) -> bool:
        given = [s.node for a in made.args for s in self.ctx.loaders.sources.of(a.value)]
        if any(node is not None and self._is_own(node) for node in given):
            return False
        name = self.ctx.qualified_name(made.func)
        if name is None and isinstance(made.func, cst.Attribute) and made.func.attr.value in _KEEPS_ITEMS:
            return self._all_map_style(made.func.value, depth)
        if name in _WRAPPERS:
            return bool(made.args) and self._all_map_style(made.args[0].value, depth)
        if name in _HUB:
            return not self._may_stream(made)
        if name is not None:
            return name.startswith(_MAP_STYLE)
        owner = self.ctx.names.local_class(self.ctx.called(made)) if isinstance(made.func, cst.Name) else None
        if owner is None or self._is_own(owner):
            return False
        bases = self.ctx.class_bases(owner.name.value)
        # A stream that its workers share and its ranks do not: others may well draw their items at random.
        calls = (n for n in self.ctx.descendants(owner) if isinstance(n, cst.Call))
        shares = any(last_name(n.func) == "get_worker_info" for n in calls)
        stream = shares and any(b.endswith(".IterableDataset") for b in bases)
        return stream or any(b in ("torch.utils.data.Dataset", "torch.utils.data.dataset.Dataset") for b in bases)

    def _may_stream(self, made: cst.Call) -> bool:
        streams = self.ctx.argument(made, "streaming")
        if streams is None:
            return self.ctx.has_unpacked_arguments(made)
        return self.ctx.constant(streams).get_or(True) is not False

    def _all_map_style(self, value: cst.BaseExpression, depth: int) -> bool:
        """Every value that may stand here is one; `data = data.map(f)` leads back to the first."""
        inner = self.ctx.loaders.sources.of(value)
        return bool(inner) and all(self._is_map_style(s, depth + 1) for s in inner)

    def _is_own(self, node: cst.CSTNode) -> bool:
        """The rank, the number of ranks or chance takes part."""
        values = self.ctx.guards.rank_values
        for inner in self.ctx.descendants(node):
            if isinstance(inner, cst.Name | cst.Attribute) and _RANDOM.match(last_name(inner)):
                return True
            if not isinstance(inner, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
                continue
            if values.is_rank(inner) or values.is_world_size(inner):
                return True
        return False

    def _is_handed_on(self, made: cst.Call) -> bool:
        """The loader, or its data set, is passed to something that may divide it."""
        data = self.ctx.loaders.argument(made, "dataset")
        parent = self.ctx.parent(made)
        names = {last_name(t.target) for t in parent.targets} if isinstance(parent, cst.Assign) else set()
        names |= {last_name(data)} if data is not None else set()
        for call in self.ctx.tree.order:
            if not isinstance(call, cst.Call) or call is made or self.ctx.names.local_function(call) is not None:
                continue
            called = self.ctx.called(call)
            if (called.startswith(_TAKERS) or called.endswith(("Trainer", "Sampler"))) and any(
                last_name(a.value) in names for a in call.args
            ):
                return True
        return False

    def _report(self, made: cst.Call, run: Pass, trained: cst.Call) -> None:
        data = self.ctx.loaders.argument(made, "dataset")
        text = " ".join(self.ctx.text(data).split()) if data is not None else "the data set"
        self.report(
            made,
            f"no sampler divides `{text}` among the ranks, so that each rank trains on all of it: an epoch takes as "
            "long as on one GPU",
            hint="Pass `sampler=DistributedSampler(dataset)` in place of `shuffle`, or let accelerate prepare the "
            "loader",
            related=(
                self.ctx.location(run.node, "the loop that trains"),
                self.ctx.location(trained, "trained by all ranks together"),
            ),
        )
