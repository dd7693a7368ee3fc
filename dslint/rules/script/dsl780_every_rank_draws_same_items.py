"""Every rank trains on the same items: its data set draws them, and all ranks seed their draws alike.

**What.** The items of a training loader are drawn: `__getitem__` does not use the index (synthetic samples, a random
file, a random crop of one large array), or `__iter__` of a stream draws them. The seed of the draws is the same on
every rank: the loader has `generator=torch.Generator().manual_seed(seed)`, all ranks call `torch.manual_seed(seed)`,
or the data set has a generator of its own with a fixed seed. The rank takes no part in it, also not in the
`worker_init_fn`.

**Why it hurts.** A loader draws one number (from `generator`, or from torch), and worker k gets that number plus k.
Where all ranks draw from the same state, worker k of every rank makes the same items in the same order. A
`DistributedSampler` gives the ranks other indices, but nobody looks at them. Eight GPUs train on the data of one, their
gradients are equal, and averaging them gains nothing. Nothing fails.

**Fix.** Put the rank into the seed: `torch.Generator().manual_seed(seed + rank)`; or into the one of the worker:
`np.random.default_rng([info.seed, rank])`. Lightning seeds workers by rank with `seed_everything(seed, workers=True)`,
but only where the loader has no `worker_init_fn` of its own.

**When it stays quiet.** The rank, the environment, entropy or the time takes part in the seed, the data set or what
begins the workers; a seed or a `worker_init_fn` that nobody can read; `__getitem__` uses its index (DSL773 and DSL653
speak of augmentations that are alike); a data set that draws nothing; no workers, where the process itself is not
seeded alike; evaluation; one process.

**Evidence.** torch 2.13: `_BaseDataLoaderIter` draws `base_seed` from `loader.generator`, and `_worker_loop` seeds
torch, `random` and NumPy with it and the number of the worker. Two processes with generators that are seeded alike get
the same items of a data set that draws them; with the rank in the seed, other ones.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.reach import Piece
from dslint.python.source import Module
from dslint.python.sources import Source
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.alikedraws import (
    Drawn,
    common_start,
    data_sets,
    has_workers,
    is_own,
    item_code,
    item_draws,
    needs_base_seed,
    process_start,
    worker_codes,
)
from dslint.rules.data.dividedloaders import divided_loaders
from dslint.rules.data.trainingloaders import in_training, looped
from dslint.rules.data.undivided import ITERABLE, knows_no_rank, undivided
from dslint.rules.examples.drawnitemscripts import ACCELERATE, LIGHTNING, PLAIN, STREAM
from dslint.rules.ranks.intent import says_several
from dslint.rules.ranks.ownseeds import must_draw_alike
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL780",
    name="every-rank-draws-same-items",
    kind="script",
    severity=Severity.WARNING,
    summary="the data set draws its items, and all ranks seed the draws alike: every rank trains on the same items",
    markers=(r"seed", r"Loader\b", r"Dataset"),
    references=(
        "https://pytorch.org/docs/stable/data.html#randomness-in-multi-process-data-loading",
        "https://lightning.ai/docs/pytorch/stable/common/trainer.html#reproducibility",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the seed of each training loader whose items are drawn alike on every rank."""
    if run.context.is_one_process or must_draw_alike(run):
        return
    told: set[int] = set()
    divided = divided_loaders(run)
    for found in _training(run):
        for source in data_sets(found.event):
            if ITERABLE in source.bases and id(found.event.node) in divided:
                continue  # accelerate reads a stream on one rank
            drawn = _drawn_items(run, source)
            seed = _seed(run, found.event, drawn) if drawn else None
            if seed is not None and id(seed[1]) not in told:
                told.add(id(seed[1]))
                yield _finding(run, found.event, source, drawn[0], seed)


def _training(run: RunQuery) -> Iterator[Happening]:
    """Yield the loaders on which several ranks train."""
    loops, divided = looped(run), divided_loaders(run)
    alike = {id(one.happening.event) for one in undivided(run)}  # DSL281, DSL254
    several = says_several(run, list({id(e.module): e.module for e in run.entries}.values()))
    for found in run.happenings("makes-loader"):
        event = found.event
        if event.open or event.may or event.lanes != run.machine.worlds.full or id(event) in alike:
            continue
        nodes = [event.node, *([divided[id(event.node)].node] if id(event.node) in divided else [])]
        if any(id(node) in loops for node in nodes) or (several and in_training(run, found)):
            yield found


def _drawn_items(run: RunQuery, source: Source) -> list[Drawn]:
    """Return the draws of which the items of a data set are made, and nothing that the index decides."""
    if any(is_own(node) for _, node in source.code):
        return []
    gives = [method for method in _methods(source) if method.name in ("__getitem__", "__iter__")]
    is_stream = ITERABLE in source.bases
    if len(gives) != 1 or is_stream == (gives[0].name == "__getitem__") or not knows_no_rank(run, source):
        return []
    if not is_stream and _uses_index(gives[0]):
        return []
    return item_draws(run, item_code(run, source)) or []


def _methods(source: Source) -> Iterator[ast.FunctionDef]:
    for _, node in source.code[:1]:
        yield from (n for n in getattr(node, "body", ()) if isinstance(n, ast.FunctionDef))


def _uses_index(method: ast.FunctionDef) -> bool:
    """Return whether a method reads its index but to refuse one that is too large."""
    name = method.args.args[1].arg if len(method.args.args) > 1 else ""
    refused: set[ast.AST] = set()
    for node in ast.walk(method):
        if isinstance(node, ast.If) and all(isinstance(inner, ast.Raise) for inner in node.body):
            refused |= set(ast.walk(node))
    reads = (n for n in ast.walk(method) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id == name)
    return not name or any(node not in refused for node in reads)


def _seed(run: RunQuery, loader: Event, drawn: list[Drawn]) -> Piece | None:
    """Return what seeds all draws alike on every rank."""
    if worker_codes(loader.arguments.get("worker_init_fn")) is None:
        return None
    own = [one for one in drawn if not needs_base_seed(one)]
    if len(own) == len(drawn):
        return own[0].seeds[-1] if own[0].seeds else None
    workers = has_workers(run, loader)
    if workers is None:
        return None
    libraries = {one.library for one in drawn if one.library}
    start = common_start(run, loader) if workers else process_start(run, libraries)
    return (start.module, start.node) if start is not None else None


def _finding(run: RunQuery, loader: Event, source: Source, drawn: Drawn, seed: tuple[Module, ast.AST]) -> Finding:
    name = getattr(source.code[0][1], "name", "the data set")
    return run.finding(
        META,
        *seed,
        f"Every rank trains on the same items: `{name}` draws them, and this seed is the same on all ranks",
        hint="Put the rank into the seed (`seed + rank`), or into that of each worker",
        related=(
            run.location(drawn.module, drawn.node, "the items are drawn here"),
            run.location(loader.module, loader.node, "the loader of the training"),
        ),
        facts={"draws": "items"},
    )


_FROM_TORCH, _OF_WORKER = "torch.initial_seed()", "get_worker_info().seed"
_OF_RANK = STREAM.replace("texts):\n        self.texts = texts", "texts, rank=0):\n        self.texts = texts[rank::8]")
_TAKES = "torch.load(random.choice(self.files))"


def _lightning(begin: str = _OF_WORKER, item: str = "", seed: str = "self.seed") -> dict[str, str]:
    return {"train.py": LIGHTNING % (begin, item, seed)}


def _plain(item: str = _TAKES, seed: str = "3", loader: str = "num_workers=4") -> dict[str, str]:
    return {"train.py": PLAIN % (item, seed, loader)}


EXAMPLES = (
    bad("own generators of the workers, under Lightning", _lightning(), "train.py:28 warning"),
    bad("the seed that torch has in a worker", _lightning(_FROM_TORCH), "train.py:28"),
    bad("a file by chance, torch seeded alike", _plain(), "train.py:24"),
    bad("a generator in the data set", _plain("torch.load(self.rng.choice(self.files))"), "train.py:13"),
    bad("no workers, torch draws", _plain("torch.randn(4)", loader="num_workers=0"), "train.py:24"),
    bad("a stream", {"train.py": STREAM % "0"}, "train.py:23"),
    bad("accelerate", {"train.py": ACCELERATE % ("", "42")}, "train.py:17"),
    good("the rank in the seed of the generator", _lightning(seed="self.seed + self.trainer.global_rank")),
    good("the rank in the seed of the worker", _lightning(_OF_WORKER + " + torch.distributed.get_rank()")),
    good("entropy", _lightning("")),
    good("the rank in the seed of torch", _plain(seed="3 + dist.get_rank()")),
    good("no workers, and nobody seeds Python", _plain(loader="num_workers=0")),
    good("files by rank", {"train.py": _OF_RANK % "0"}),
    good("a stream by rank", {"train.py": STREAM % "dist.get_rank()"}),
    good("accelerate seeds each rank", {"train.py": ACCELERATE % ("", "42, device_specific=True")}),
)
