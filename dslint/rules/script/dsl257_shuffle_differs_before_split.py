"""A list is shuffled in another order on each rank, and then cut into one part a rank.

**What.** `random.shuffle(x)`, `np.random.permutation(n)`, `torch.randperm(n)` or the like gives the order, and
`x[rank::world_size]` (or another cut by the rank) takes the part of this rank; but the seed of that shuffle holds the
rank (`random.seed(seed + rank)`), or `random` has no seed at all in the program.

The same of a `DistributedSampler`, which makes the cut: its own `seed` holds the rank, or the data set, whose class
stands in the file, shuffles its items when it is made.

The same for `dataset.train_test_split(...)` of `datasets` without a seed, in a program that seeds nothing: each process
holds out other rows, and the evaluation counts rows that other ranks have trained on.

**Why it hurts.** The parts come from different permutations: some items are in the parts of several ranks, and about as
many in none. Nothing fails; part of the data is never trained on, and an evaluation counts some samples twice.

**Fix.** Shuffle with a seed that is the same on every rank, or with a generator of its own
(`random.Random(seed).shuffle(x)`), and set seeds that hold the rank after the cut.

**When it stays quiet.** Unless the whole way is visible in one function, from the seed over the shuffle to the cut: a
seed that may be set elsewhere, any other function with "seed" in its name, `torch.randperm` without a seed (torch
begins with the same one everywhere), a shuffle in a branch.

**Evidence.** Two gloo ranks, 24 items: with the rank in the seed of `random`, `numpy` or `torch`, or without a seed for
`random`, several items are in no part; with one seed for all, or seeds that hold the rank after the cut, none.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.data.randomness import Order, Randomness
from dslint.model.script.data.sampled import SampledOrders
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL257",
    name="shuffle-differs-before-split",
    kind="script",
    severity=Severity.WARNING,
    summary="each rank cuts its part out of another permutation: parts overlap and items are lost",
    markers=(
        r"rand|\.train_test_split\(|DistributedSampler\(",
        r"shuffle\(|permutation\(|randperm\(|random\.sample\(|\.train_test_split\(|seed\s*=",
        r"rank|process_index|Accelerator|deepspeed|distributed",
        r"world_size|WORLD_SIZE|num_processes|num_replicas|\.train_test_split\(|DistributedSampler\(",
        r"::|array_split|tensor_split|chunk\(|\.train_test_split\(|DistributedSampler\(",
    ),
    references=("DistributedSampler.__iter__ in torch/utils/data/distributed.py",),
)

_HEAD = "import random\n\nimport numpy as np\nimport torch\nimport torch.distributed as dist\n\n\n"
_SEED = "    rank, world_size = dist.get_rank(), dist.get_world_size()\n    random.seed(args.seed + rank)\n"
_CUT = "    return paths[rank::world_size]\n"

_SPLIT = """\
from accelerate import Accelerator
from datasets import load_dataset


def main(model, optimizer, make):
    accelerator = Accelerator()
    data = load_dataset("json", data_files="rows.jsonl", split="train").train_test_split(test_size=0.1%s)
    model, optimizer, loader = accelerator.prepare(model, optimizer, make(data["train"]))
    for batch in loader:
        accelerator.backward(model(batch).loss)
        optimizer.step()


if __name__ == "__main__":
    main()
"""

_SAMPLED = """\
import random

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Scans(Dataset):
    def __init__(self, files, part):
        self.items = []
        files = sorted(files)
        print(len(files))
        %s
        for path in files:
            self.items.append(path)

    def __getitem__(self, index):
        return self.items[index]


def main(args, files):
    data = Scans(files, args.part)
    sampler = DistributedSampler(data%s)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in DataLoader(data, sampler=sampler):
            print(batch)


if __name__ == "__main__":
    main(parse(), ["a", "b"])
"""

EXAMPLES = (
    bad("each process holds out other rows", {"train.py": _SPLIT % ""}, at="train.py:7"),
    good("the rows are the same", {"train.py": _SPLIT % ", seed=1"}),
    good(
        "everything is seeded before",
        {
            "train.py": (_SPLIT % "").replace(
                "    accelerator = Accelerator()\n", "    accelerator = Accelerator()\n    set_seed(1)\n"
            )
        },
    ),
    bad(
        "the seed of the sampler holds the rank",
        {"train.py": _SAMPLED % ("pass", ", seed=args.seed + dist.get_rank()")},
        at="train.py:22",
    ),
    bad(
        "the data set shuffles its files, and the program has no seed",
        {"train.py": _SAMPLED % ("random.shuffle(files)", "")},
        at="train.py:12",
    ),
    bad(
        "the data set keeps some of its files",
        {"train.py": _SAMPLED % ("if part < 1:\n            random.shuffle(files)\n            files = files[:3]", "")},
        at="train.py:13",
    ),
    good(
        "one seed for all samplers; an order that is the same; a sampler that does not shuffle",
        {"train.py": _SAMPLED % ("random.Random(3).shuffle(files)", ", seed=args.seed")},
    ),
    good(
        "the sampler keeps the order, and its seed does nothing",
        {"train.py": _SAMPLED % ("pass", ", shuffle=False, seed=dist.get_rank()")},
    ),
    good(
        "what is shuffled is no item",
        {"train.py": _SAMPLED % ("random.shuffle(files[:])\n        random.shuffle(part.colors)", "")},
    ),
    bad(
        "only torch has a seed",
        {
            "train.py": (_SAMPLED % ("random.shuffle(files)", "")).replace(
                "    data = Scans", "    torch.manual_seed(1)\n    data = Scans"
            )
        },
        at="train.py:12",
    ),
    good(
        "something in the program sets seeds",
        {
            "train.py": (_SAMPLED % ("random.shuffle(files)", "")).replace(
                "    data = Scans", "    seed_everything(1)\n    data = Scans"
            )
        },
    ),
    bad(
        "the seed holds the rank",
        {"data.py": _HEAD + "def part(args, paths):\n" + _SEED + "    random.shuffle(paths)\n" + _CUT},
        at="data.py:12",
    ),
    bad(
        "a generator for each rank",
        {
            "data.py": _HEAD + "def part(args, count):\n    rank = dist.get_rank()\n"
            "    rng = np.random.default_rng(args.seed + rank)\n    order = rng.permutation(count)\n"
            "    return np.array_split(order, dist.get_world_size())[rank]\n"
        },
        at="data.py:12",
    ),
    bad(
        "no seed in the whole program",
        {
            "run.py": _HEAD + "def main(paths):\n    rank, world_size = dist.get_rank(), dist.get_world_size()\n"
            "    random.shuffle(paths)\n" + _CUT + "\n\nif __name__ == '__main__':\n    main(['a', 'b'])\n"
        },
        at="run.py:11",
    ),
    good(
        "the same seed everywhere, and one with the rank after the cut",
        {
            "data.py": _HEAD + "def part(args, paths):\n    rank, world_size = dist.get_rank(), dist.get_world_size()\n"
            "    random.seed(args.seed)\n    random.shuffle(paths)\n    mine = paths[rank::world_size]\n"
            "    random.seed(args.seed + rank)\n    random.shuffle(mine)\n    return mine\n"
        },
    ),
    good(
        "the rank is added to another variable of that name",
        {
            "train.py": _HEAD.replace(
                "import torch\n", "import torch\nfrom torch.utils.data import DistributedSampler\n"
            )
            + "def part(args, data):\n    seed = args.seed + dist.get_rank()\n    torch.manual_seed(seed)\n"
            "    return DistributedSampler(data, shuffle=True, seed=args.seed)\n"
        },
    ),
    good(
        "a generator with one seed; the seed of another library",
        {
            "data.py": _HEAD
            + "def part(args, paths):\n"
            + _SEED
            + "    random.Random(args.seed).shuffle(paths)\n    torch.manual_seed(args.seed)\n"
            "    order = torch.randperm(len(paths)).tolist()\n"
            "    return order[rank::world_size], paths[rank::world_size]\n"
        },
    ),
    good(
        "seeded elsewhere, or by a helper",
        {
            "data.py": _HEAD + "def part(rank, world_size, paths):\n    random.shuffle(paths)\n" + _CUT,
            "run.py": _HEAD.replace("import torch\n", "import torch\nfrom project import fix_seeds\n")
            + "def main(paths):\n    rank, world_size = dist.get_rank(), dist.get_world_size()\n"
            "    fix_seeds(3)\n    random.shuffle(paths)\n"
            + _CUT
            + "\n\nif __name__ == '__main__':\n    main(['a', 'b'])\n",
        },
    ),
    good(
        "every rank shuffles its own part",
        {
            "data.py": _HEAD
            + "def part(args, paths):\n"
            + _SEED
            + "    mine = paths[rank::world_size]\n    random.shuffle(mine)\n    return mine\n"
        },
    ),
)


def precheck(tree: ast.Module) -> bool:
    """Something is shuffled, and something is cut with a step or into parts, or by a sampler."""
    nodes = flat(tree)
    calls = nodes.nodes(ast.Call)
    if any(call_name(c) == "train_test_split" and not _is_seeded(c) for c in calls):
        return True
    samplers = [c for c in calls if call_name(c) == "DistributedSampler"]
    if any(k.arg == "seed" for c in samplers for k in c.keywords):
        return True
    if samplers and any(call_name(c) == "shuffle" for c in calls):
        return True
    if not any(call_name(c) in ("shuffle", "permutation", "randperm", "sample") for c in calls):
        return False
    split = any(call_name(c) in ("array_split", "tensor_split", "chunk") for c in calls)
    return split or any(s.lower is not None and s.step is not None for s in nodes.nodes(ast.Slice))


def _is_seeded(call: ast.Call) -> bool:
    return any(k.arg in _FIXING or k.arg is None for k in call.keywords)


# Arguments of ``Dataset.train_test_split`` that make it the same everywhere, or say something about it.
_FIXING = frozenset({"seed", "generator", "shuffle"})
_TRAINS = frozenset({"backward", "train", "fit"})


class Check(ScriptCheck):
    """Looks at every cut of a variable by the rank, and at every cut of a data set into training and test."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on `dataset.train_test_split(...)` without a seed, in a program that trains on several ranks."""
        if self.ctx.loaders.is_distributed_sampler(node):
            self._sampler(node)
            return
        func = node.func
        if not isinstance(func, cst.Attribute) or func.attr.value != "train_test_split":
            return
        given = {a.keyword.value for a in node.args if a.keyword is not None}
        if given & _FIXING or self.ctx.has_unpacked_arguments(node) or not self.ctx.imports("datasets"):
            return
        randomness = Randomness(self.ctx.tree, self.ctx.names, self.ctx.guards)
        if self.ctx.guard(node) is not None or randomness.is_seeded() or not self._trains_on_ranks():
            return
        self.report(
            node,
            "`train_test_split` has no seed, and each process draws its own: what one rank holds out for the"
            " evaluation, the others train on",
            hint="Pass `seed=42`",
            facts={"library": "numpy", "seeded": False, "variable": last_name(func.value)},
        )

    def _sampler(self, node: cst.Call) -> None:
        """Fire when the order that the sampler cuts is another one on each rank."""
        randomness = Randomness(self.ctx.tree, self.ctx.names, self.ctx.guards)
        orders = SampledOrders(self.ctx.tree, self.ctx.names, self.ctx.loaders, randomness)
        seed = orders.seed(node)
        if seed is not None:
            self.report(
                seed,
                f"the seed of `{self.ctx.text(node.func)}` holds the rank (`{self.ctx.text(seed)}`), so that each rank"
                " takes its part of another order: the parts of the ranks overlap, and other items are in none",
                hint="Pass the same seed on every rank: the sampler asks for the rank by itself",
                facts={"library": "torch", "seeded": True, "variable": "seed"},
            )
            return
        order = orders.dataset(node)
        if order is not None:
            name = self.ctx.text(order.call.func)
            related = (self.ctx.location(node, "deals out the places of the items to the ranks"),)
            self.report(
                order.call,
                f"`{name}` gives each rank an order of its own, and `{self.ctx.text(node.func)}` deals out places in"
                " it: the parts of the ranks overlap, other items are in none, and ranks that keep other items may"
                " make another number of steps",
                hint="Shuffle with the same seed on every rank: `random.Random(seed).shuffle(x)`",
                related=related,
                facts={
                    "library": order.library,
                    "seeded": order.seed is not None,
                    "variable": last_name(order.call.args[0].value),
                },
            )

    def _trains_on_ranks(self) -> bool:
        """The file is the program, and trains with accelerate, DDP, DeepSpeed or a Trainer."""
        calls = list(self.ctx.tree.every(cst.Call))
        if not any(last_name(c.func) in _TRAINS for c in calls):
            return False
        made = {self.ctx.qualified_name(c.func) or "" for c in calls}
        makes = any(
            n.endswith((".Accelerator", ".DistributedDataParallel")) or n == "deepspeed.initialize" for n in made
        )
        return makes and any(
            isinstance(n, cst.Comparison) and last_name(n.left) == "__name__" for n in self.ctx.tree.order
        )

    def visit_Subscript(self, node: cst.Subscript) -> None:
        """Fire when the variable was shuffled in an order of the rank's own."""
        whole = self._whole(node)
        if whole is None:
            return
        randomness = Randomness(self.ctx.tree, self.ctx.names, self.ctx.guards)
        shuffle = randomness.shuffled(whole)
        order = randomness.own_order(shuffle) if shuffle is not None else None
        if order is not None:
            self._report(node, order)

    def _whole(self, node: cst.Subscript) -> cst.Name | None:
        """The variable that `x[rank::world_size]` or `np.array_split(x, world_size)[rank]` cuts."""
        if isinstance(node.value, cst.Name):
            value: cst.BaseExpression = node.value
            inner = node.slice[0].slice if len(node.slice) == 1 else None
            if not isinstance(inner, cst.Slice) or inner.step is None:
                return None
        elif isinstance(node.value, cst.Call) and node.value.args:
            value = node.value.args[0].value
        else:
            return None
        if not isinstance(value, cst.Name):
            return None
        partition = self.ctx.uneven_loops.partition(node)
        return value if partition is not None and partition.node is node else None

    def _report(self, node: cst.Subscript, order: Order) -> None:
        name = self.ctx.text(order.call.func)
        why = "has no seed, so that each process draws its own"
        related = [self.ctx.location(order.call, "the order")]
        if order.seed is not None:
            why = f"has a seed that holds the rank (`{self.ctx.text(order.seed)}`)"
            related.append(self.ctx.location(order.seed, "another number on each rank"))
        self.report(
            node,
            f"`{self.ctx.text(node)}` cuts a part out of an order that `{name}` made, which {why}: the parts of the "
            "ranks overlap, and other items are in none",
            hint="Shuffle with the same seed on every rank, and use the rank in seeds after the cut",
            related=tuple(related),
            facts={"library": order.library, "seeded": order.seed is not None, "variable": last_name(node.value)},
        )
