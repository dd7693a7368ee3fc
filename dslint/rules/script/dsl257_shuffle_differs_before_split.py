"""A list is shuffled in another order on each rank, and then cut into one part a rank.

**What.** `random.shuffle(x)`, `np.random.permutation(n)`, `torch.randperm(n)` or the like gives the order, and
`x[rank::world_size]` (or another cut by the rank) takes the part of this rank; but the seed of that shuffle holds the
rank (`random.seed(seed + rank)`), or `random` has no seed at all in the program.

The same of what makes the cut by itself, a `DistributedSampler`, a Trainer, `deepspeed.initialize(training_data=...)`,
or a loader that accelerate or Lightning takes: the items of its data set are in an order that nothing has seeded, be it
that the class shuffles them or that somebody has cut a training and an evaluation part out of a drawn order before
(`np.random.permutation`, `random.sample`, `train_test_split` of scikit-learn). Or the `seed` of the sampler holds the
rank or the time.

The same for `dataset.shuffle()` and `dataset.train_test_split(...)` of `datasets` without a seed, in a run over several
ranks that has seeded nothing before: each process orders and holds out other rows, a Trainer or accelerate distributes
places in another order on each rank, and the evaluation counts rows that other ranks have trained on.

The same for a pipeline of webdataset whose `shuffle` comes before `split_by_node`: it seeds itself by the time and the
number of the process.

The same for `random_split` after a seed that holds the rank, where the ranks share out what a loader gives.

**Why it hurts.** The parts come from different permutations: some items are in the parts of several ranks, and about as
many in none. Nothing fails; part of the data is never trained on, and an evaluation counts some samples twice.

**Fix.** Shuffle with a seed that is the same on every rank, or with a generator of its own
(`random.Random(seed).shuffle(x)`), and set seeds that hold the rank after the cut.

**When it stays quiet.** A cut by the rank: unless the whole way is visible in one function, from the seed over the
shuffle to the cut. A seed that may be set elsewhere, any other function with "seed" in its name, a shuffle in a branch;
a shuffle of rows on one rank only; numbers drawn on a GPU, whose generator begins alike everywhere; a run of one
process, or one that nothing shows to have several.

**Evidence.** Two gloo ranks, 24 items: with the rank in the seed of `random`, `numpy` or `torch`, or without a seed for
any of them, several items are in no part; with one seed for all, or seeds that hold the rank after the cut, none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Event
from dslint.python.varies import CLOCK, LOST, RANDOM, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.drawnorders import cut_orders, dealt_orders
from dslint.rules.data.ownorders import own_orders
from dslint.rules.data.ownsplits import splits_by_rank
from dslint.rules.data.pipelines import own_pipelines
from dslint.rules.examples.shufflescripts import (
    CUT,
    HEAD,
    OWN_PARTS,
    OWN_SEED,
    PARTS_TRAIN,
    PREPARED,
    PREPARED_PARTS,
    ROWS,
    RUN,
    SAMPLED,
    SEED,
    SHARDS,
    SHUFFLED,
    SPLIT,
    TRAINER,
    parted,
)
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL257",
    name="shuffle-differs-before-split",
    kind="script",
    severity=Severity.WARNING,
    summary="each rank cuts its part out of another permutation: parts overlap and items are lost",
    markers=(
        r"rand|datasets?|shuffle|DistributedSampler|Sampler",
        r"rank|process_index|accelerat|deepspeed|distributed|transformers",
    ),
    alone=(
        r"shuffle\(|permutation\(|randperm\(|\.sample\(",
        r"(?:rank|process_index)\w*(?:\(\))?\s*::|array_split\(|split_by_node",
    ),
    references=("DistributedSampler.__iter__ in torch/utils/data/distributed.py",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on samplers whose seed holds the rank, and on rows that each process puts in an order of its own."""
    if run.context.is_one_process:
        return
    yield from filter(None, (_sampler(run, h.event) for h in run.happenings("makes-distributed-sampler")))
    yield from (_rows(run, event) for event in own_orders(run))
    yield from (_split(run, event) for event in splits_by_rank(run))
    yield from (_cut(run, event, order) for event, order in cut_orders(run))
    yield from (_dealt(run, event, order) for event, order in dealt_orders(run))
    yield from (_pipeline(run, *found) for found in own_pipelines(run))


def _sampler(run: RunQuery, event: Event) -> Finding | None:
    """Return a finding when the order that a sampler cuts has a seed with the rank in it."""
    seed, shuffle = event.arguments.get("seed"), event.arguments.get("shuffle")
    held = event.snapshot.get("seed", (0, 0, frozenset()))[0]
    if seed is None or event.open or not held & (RANKED | RANDOM | CLOCK) or held & LOST:
        return None
    node = event.nodes.get("seed")
    is_one = getattr(event.arguments.get("num_replicas"), "constants", None) == (1,)
    if node is None or is_one or (shuffle is not None and shuffle.constants != (True,)):
        return None
    name = run.text(event.module, event.node.func) if isinstance(event.node, ast.Call) else event.api
    return run.finding(
        META,
        event.module,
        node,
        f"the seed of `{name}` differs between ranks (`{run.text(event.module, node, 40)}`): their parts overlap, and"
        " other items are lost",
        hint="Pass the same seed on every rank: the sampler asks for the rank by itself",
        related=run.origin(seed, "another number on each rank"),
        varies=held,
        facts={"library": "torch", "seeded": True, "variable": "seed"},
    )


def _split(run: RunQuery, event: Event) -> Finding:
    place = run.machine.origin(event.result) if event.result is not None else None
    name = run.text(event.module, event.node.func) if isinstance(event.node, ast.Call) else event.api
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{name}` draws from a seed that depends on the rank: what one rank holds out, the others train on",
        hint="Pass `generator=torch.Generator().manual_seed(seed)` with the same seed on every rank",
        related=(place[0].location(place[1], "another number on each rank"),) if place is not None else (),
        facts={"library": "torch", "seeded": True, "variable": "parts"},
    )


def _cut(run: RunQuery, event: Event, order: Event) -> Finding:
    why = "without a seed"
    if order.drawn & RANKED:
        why = "with a seed of its rank"
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{run.text(event.module, event.node, 40)}` cuts an order that `{_called(run, order)}` made {why}: parts"
        " overlap",
        hint="Shuffle with the same seed on every rank, and use the rank in seeds after the cut",
        related=(run.location(order.module, order.node, "the order"), *_seed_place(order)),
        varies=order.drawn,
        facts=_facts(order, run.text(event.module, event.nodes["whole"])),
    )


def _dealt(run: RunQuery, event: Event, order: Event) -> Finding:
    sampler = run.text(event.module, event.node.func) if isinstance(event.node, ast.Call) else event.api
    shuffled = order.nodes.get("x") or order.node
    return run.finding(
        META,
        order.module,
        order.node,
        f"`{_called(run, order)}` orders differently on each rank, and `{sampler}` divides by position: parts overlap,"
        " items are lost",
        hint="Shuffle with the same seed on every rank: `random.Random(seed).shuffle(x)`",
        related=(run.location(event.module, event.node, "divides the items by position"), *_seed_place(order)),
        varies=order.drawn,
        facts=_facts(order, run.text(order.module, shuffled)),
    )


def _pipeline(run: RunQuery, event: Event, shuffle: ast.Call, split: ast.expr) -> Finding:
    return run.finding(
        META,
        event.module,
        shuffle,
        f"`{run.text(event.module, shuffle, 40)}` shuffles differently in each process, before"
        f" `{run.text(event.module, split, 40)}`: shares overlap, shards are lost",
        hint="Shuffle the shards after the split, or with `wds.detshuffle()`, which has one seed for all",
        related=(run.location(event.module, split, "divides the shards"),),
        facts={"library": "random", "seeded": False, "variable": "shards"},
    )


def _called(run: RunQuery, order: Event) -> str:
    return run.text(order.module, order.node.func) if isinstance(order.node, ast.Call) else order.api


def _seed_place(order: Event) -> tuple[Location, ...]:
    place = order.origins.get("order") if order.drawn & RANKED else None
    return (place[0].location(place[1], "another number on each rank"),) if place is not None else ()


def _facts(order: Event, variable: str) -> dict[str, str | int | float | bool | None]:
    library = order.api.partition(".")[0]
    library = "numpy" if library == "sklearn" else library
    return {"library": library, "seeded": bool(order.drawn & RANKED), "variable": variable.rpartition(".")[2]}


def _rows(run: RunQuery, event: Event) -> Finding:
    name, harm = event.api.rpartition(".")[2], "the parts of the ranks overlap, and other rows are lost"
    harm = "what one rank holds out, the others train on" if "split" in name else harm
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{name}` has no seed, and each process draws its own: {harm}",
        hint="Pass `seed=42`",
        facts={"library": "numpy", "seeded": False, "variable": "rows"},
    )


EXAMPLES = (
    bad("a Trainer distributes rows", {"train.py": TRAINER % "", "rows.py": ROWS}, at="rows.py:8 warning"),
    good("after a seed", {"train.py": TRAINER % "    set_seed(args.seed)", "rows.py": ROWS}),
    bad(
        "parts are drawn after a helper has put the rank into the seed",
        {"train.py": OWN_SEED % ""},
        at="train.py:13 warning",
    ),
    good(
        "parts are drawn with a generator of their own",
        {"train.py": OWN_SEED % ", generator=torch.Generator().manual_seed(seed)"},
    ),
    *(
        bad(f"parts of files, {name}", {"train.py": OWN_PARTS % ("args.folder", "", *made)}, at="train.py:37 warning")
        for name, made in {
            "inside of another data set": ("Noisy(train)", "args.seed + rank"),
            "as they are": ("train", 'int(os.environ["RANK"])'),
            "inside of two": ("Noisy(Noisy(train), 0.2)", "args.seed * 1000 + dist.get_rank()"),
        }.items()
    ),
    *(
        good(f"parts of files, {name}", {"train.py": OWN_PARTS % made}, select="DSL257")
        for name, made in {
            "one seed": ("args.folder", "", "Noisy(train)", "args.seed"),
            "its own generator": ("args.folder", ", torch.Generator().manual_seed(1)", "Noisy(train)", "rank"),
            "a folder for each rank": ('f"rows/{dist.get_rank()}"', "", "Noisy(train)", "args.seed + rank"),
        }.items()
    ),
    bad(
        "a helper of another file shuffles rows without a seed",
        {
            "train.py": SHUFFLED % "from rows import prepared\n",
            "rows.py": PREPARED.lstrip("\n") % "",
            "run.sh": RUN % 4,
        },
        at="rows.py:2",
    ),
    good(
        "the seed of the arguments",
        {"train.py": SHUFFLED % PREPARED % "seed=args.seed", "run.sh": RUN % 4},
    ),
    good("one process", {"train.py": SHUFFLED % PREPARED % "", "run.sh": "python train.py --output_dir out\n"}),
    bad("each process holds out other rows", {"train.py": SPLIT % ""}, at="train.py:7"),
    good("the rows are the same", {"train.py": SPLIT % ", seed=1"}),
    good(
        "everything is seeded before",
        {
            "train.py": (SPLIT % "").replace(
                "    accelerator = Accelerator()\n", "    accelerator = Accelerator()\n    set_seed(1)\n"
            )
        },
    ),
    bad(
        "the seed of the sampler holds the rank",
        {"train.py": SAMPLED % ("pass", ", seed=args.seed + dist.get_rank()")},
        at="train.py:22",
    ),
    bad(
        "the data set shuffles its files, and the program has no seed",
        {"train.py": SAMPLED % ("random.shuffle(files)", "")},
        at="train.py:12",
    ),
    good(
        "one seed for all samplers; an order that is the same; a sampler that does not shuffle",
        {"train.py": SAMPLED % ("random.Random(3).shuffle(files)", ", seed=args.seed")},
    ),
    good(
        "the sampler keeps the order, and its seed does nothing",
        {"train.py": SAMPLED % ("pass", ", shuffle=False, seed=dist.get_rank()")},
    ),
    good(
        "what is shuffled is no item",
        {"train.py": SAMPLED % ("random.shuffle(files[:])\n        random.shuffle(part.colors)", "")},
    ),
    bad(
        "only torch has a seed",
        {
            "train.py": (SAMPLED % ("random.shuffle(files)", "")).replace(
                "    data = Scans", "    torch.manual_seed(1)\n    data = Scans"
            )
        },
        at="train.py:12",
    ),
    good(
        "something in the program sets seeds",
        {
            "train.py": (SAMPLED % ("random.shuffle(files)", "")).replace(
                "    data = Scans", "    seed_everything(1)\n    data = Scans"
            )
        },
    ),
    bad("parts for a Trainer, drawn in another file", parted("np.random.permutation(len(rows))"), "data.py:19"),
    bad("places split by scikit-learn", parted("sum(train_test_split(list(range(len(rows)))), [])"), "data.py:19"),
    bad("a prepared loader", parted("torch.randperm(len(rows)).tolist()", PREPARED_PARTS % ""), "data.py:19"),
    good("a generator with a seed of its own", parted("np.random.RandomState(0).permutation(len(rows))")),
    good("after a seed", parted("torch.randperm(len(rows)).tolist()", PREPARED_PARTS % "set_seed(42)")),
    good("parts in the order of the file", parted("list(range(len(rows)))")),
    good(
        "nothing says that there are several processes",
        parted("np.random.permutation(len(rows))", PARTS_TRAIN.replace("is_world_process_zero()", "args.do_eval")),
    ),
    bad(
        "the seed holds the rank",
        {"data.py": HEAD + "def part(args, paths):\n" + SEED + "    random.shuffle(paths)\n" + CUT},
        at="data.py:12",
    ),
    bad(
        "a generator for each rank",
        {
            "data.py": HEAD + "def part(args, count):\n    rank = dist.get_rank()\n"
            "    rng = np.random.default_rng(args.seed + rank)\n    order = rng.permutation(count)\n"
            "    return np.array_split(order, dist.get_world_size())[rank]\n"
        },
        at="data.py:12",
    ),
    bad(
        "no seed in the whole program",
        {
            "run.py": HEAD + "def main(paths):\n    rank, world_size = dist.get_rank(), dist.get_world_size()\n"
            "    random.shuffle(paths)\n" + CUT + "\n\nif __name__ == '__main__':\n    main(['a', 'b'])\n"
        },
        at="run.py:11",
    ),
    bad(
        "shards of webdataset",
        {"data.py": SHARDS % ("wds.shuffle(100),\n        wds.split_by_node", "wds.shuffle(1000)")},
        at="data.py:7",
    ),
    good(
        "shards that are shuffled after the split, or alike",
        {
            "data.py": SHARDS % ("wds.split_by_node,\n        wds.shuffle(100)", "wds.shuffle(1000)"),
            "more.py": SHARDS % ("wds.detshuffle(100),\n        wds.split_by_node", "wds.shuffle(1000)"),
            "seeded.py": SHARDS % ("wds.shuffle(100, seed=3),\n        wds.split_by_node", "wds.shuffle(1000)"),
        },
    ),
    good(
        "the same seed everywhere, and one with the rank after the cut",
        {
            "data.py": HEAD + "def part(args, paths):\n    rank, world_size = dist.get_rank(), dist.get_world_size()\n"
            "    random.seed(args.seed)\n    random.shuffle(paths)\n    mine = paths[rank::world_size]\n"
            "    random.seed(args.seed + rank)\n    random.shuffle(mine)\n    return mine\n"
        },
    ),
    good(
        "the rank is added to another variable of that name",
        {
            "train.py": HEAD.replace(
                "import torch\n", "import torch\nfrom torch.utils.data import DistributedSampler\n"
            )
            + "def part(args, data):\n    seed = args.seed + dist.get_rank()\n    torch.manual_seed(seed)\n"
            "    return DistributedSampler(data, shuffle=True, seed=args.seed)\n"
        },
    ),
    good(
        "a generator with one seed; the seed of another library",
        {
            "data.py": HEAD
            + "def part(args, paths):\n"
            + SEED
            + "    random.Random(args.seed).shuffle(paths)\n    torch.manual_seed(args.seed)\n"
            "    order = torch.randperm(len(paths)).tolist()\n"
            "    return order[rank::world_size], paths[rank::world_size]\n"
        },
    ),
    good(
        "seeded elsewhere, or by a helper",
        {
            "data.py": HEAD + "def part(rank, world_size, paths):\n    random.shuffle(paths)\n" + CUT,
            "run.py": HEAD.replace("import torch\n", "import torch\nfrom project import fix_seeds\n")
            + "def main(paths):\n    rank, world_size = dist.get_rank(), dist.get_world_size()\n"
            "    fix_seeds(3)\n    random.shuffle(paths)\n"
            + CUT
            + "\n\nif __name__ == '__main__':\n    main(['a', 'b'])\n",
        },
    ),
    good(
        "every rank shuffles its own part",
        {
            "data.py": HEAD
            + "def part(args, paths):\n"
            + SEED
            + "    mine = paths[rank::world_size]\n    random.shuffle(mine)\n    return mine\n"
        },
    ),
)
