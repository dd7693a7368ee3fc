"""Every rank trains on the whole data set: nothing deals the items out.

**What.** A loop that trains a DeepSpeed engine or a `DistributedDataParallel` model runs over `DataLoader(dataset)`
without a sampler, the data set is the same on every rank, and neither accelerate, a Trainer nor
`deepspeed.initialize(training_data=...)` gets hold of either.

**Why it hurts.** Nothing fails. Each rank goes through all items: an epoch takes as long on eight GPUs as on one. Where
the order is the same on every rank (no shuffle, or the same seed), all ranks compute the same gradients, and averaging
them gains nothing at all.

**Fix.** `sampler=DistributedSampler(dataset)` in place of `shuffle=True` (and `set_epoch` in each epoch), or
`accelerator.prepare(loader)`, or `training_data=dataset` for DeepSpeed.

**When it stays quiet.** Evaluation; iterable data sets and loaders that some code gives a sampler (DSL281); a data set
that nobody knows, or that the rank, the world size or a random generator takes part in; a loader that code which nobody
can read gets hold of; model, tensor or sequence parallel scripts, whose ranks must see the same batch; scripts that
never train over several ranks; a loop that trains on what the model samples for each prompt: the ranks share one group
of samples among them; one process.

**Evidence.** Two gloo ranks, 8 items: each rank sees all 8, with a `DistributedSampler` or a prepared loader 4 each.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Event, Loop, events
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.undivided import Undivided, undivided
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL254",
    name="training-loader-not-divided",
    kind="script",
    severity=Severity.WARNING,
    summary="every rank trains on all items: no sampler deals them out",
    markers=(
        r"DataLoader\b",
        r"DistributedDataParallel|deepspeed[\s\\]*\.initialize|deepspeed as|from deepspeed"
        r"|FullyShardedDataParallel|fully_shard|hvd\.DistributedOptimizer",
    ),
    references=("https://pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",),
    depends_on_run=True,
)

_FORWARDS = frozenset({"ddp-forward", "engine-forward", "fsdp-forward"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each training loader without a sampler, where nobody has thought of one."""
    for found in undivided(run):
        event = found.happening.event
        if found.is_forgotten and not any(atom in run.machine.escaped for atom in instances(event.result)):
            yield _finding(run, found)


def _finding(run: RunQuery, found: Undivided) -> Finding:
    event = found.happening.event
    data = event.nodes.get("dataset")
    text = run.text(event.module, data, 40) if data is not None else "the data set"
    return run.finding(
        META,
        event.module,
        event.node,
        f"no sampler divides `{text}` among the ranks: each trains on all of it, and an epoch takes as long as on one"
        " GPU",
        hint="Pass `sampler=DistributedSampler(dataset)` in place of `shuffle`, or let accelerate prepare the loader",
        related=tuple(_training(run, event)),
        varies=found.source.varies,
    )


def _training(run: RunQuery, made: Event) -> Iterator[Location]:
    """Yield the loop that trains on a loader, and the forward of the wrapped model in it."""
    for step in run.occurrences("backward", "engine-backward"):
        loop = next((n for n in step.around if isinstance(n, Loop) and made.node in n.items), None)
        if loop is not None:
            yield run.location(loop.module, loop.node, "the loop that trains")
            forward = next((e for e in events(loop) if e.tags & _FORWARDS), None)
            if forward is not None:
                yield run.location(forward.module, forward.node, "trained by all ranks together")
            return


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
_HOROVOD = """\
import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import FakeData


def main(net, args):
    hvd.init()
    data = FakeData(size=args.size)
    loader = DataLoader(data, batch_size=args.batch_size, %s)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    for epoch in range(args.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
"""
_ROLLOUT = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer


def sample(model, tokenizer, prompts, count):
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    return model.generate(**inputs, do_sample=True, num_return_sequences=count)


def main(path, score):
    accelerator = Accelerator()
    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    prompts = [line.strip() for line in open(path)]
    for batch in DataLoader(prompts, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1)):
        tokens = sample(accelerator.unwrap_model(model), tokenizer, batch, 2)
        loss = -(score(tokens) * model(tokens).logits.log_softmax(-1).amax(-1).mean(1)).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""

EXAMPLES = (
    bad("an optimizer of Horovod", {"train.py": _HOROVOD % "shuffle=True"}, "train.py:10"),
    good(
        "a sampler that Horovod's ranks share",
        {
            "train.py": (
                _HOROVOD % "sampler=DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)"
            )
        },
    ),
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
    bad(
        "another file makes the loader, and a class keeps it",
        {
            "train.py": "from torch.nn.parallel import DistributedDataParallel\n\nimport data\n\n\n"
            "class Runner:\n"
            "    def __init__(self, net):\n"
            "        self.model = DistributedDataParallel(net)\n"
            "        self.batches = data.make('a.pt', {'batch_size': 4, 'shuffle': True})\n\n"
            "    def run(self, optimizer):\n"
            "        for batch in self.batches:\n"
            "            self.model(batch).mean().backward()\n"
            "            optimizer.step()\n\n\n"
            "def main(net, optimizer):\n"
            "    Runner(net).run(optimizer)\n",
            "data.py": _HEAD + "def make(path, options):\n    return DataLoader(Items(path), **options)\n",
        },
        at="data.py:16",
    ),
    good(
        "a part of the rank's own that is mapped",
        {
            "train.py": _HEAD.replace("import torch\n", "import torch\nfrom datasets import load_dataset\n", 1)
            + "def train(net, optimizer):\n    model = DistributedDataParallel(net)\n"
            "    rows = load_dataset('wikitext', split='train').shard(dist.get_world_size(), dist.get_rank())\n"
            "    loader = DataLoader(rows.map(str.lower))\n" + _LOOP.replace("in loader", "in list(loader)[:100]")
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
    bad(
        "greedy answers, which are the same on every rank",
        {"train.py": _ROLLOUT.replace("do_sample=True, num_return_sequences=count", "do_sample=False")},
        at="train.py:19",
    ),
    good("every rank samples answers to the same prompts", {"train.py": _ROLLOUT}),
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
