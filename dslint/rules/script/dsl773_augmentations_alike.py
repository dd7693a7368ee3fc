"""All ranks seed torch alike, so that worker k of each rank's loader draws the same augmentations.

**What.** `torch.manual_seed(seed)` with one seed for all ranks and no seed with the rank after it, and a loader with a
`DistributedSampler` whose data set draws: crops, flips, masks, noise. The loader has no `worker_init_fn`, so that its
workers take their seeds from the generator of the process. Or the loader has a `generator` that all ranks seed alike,
and a `worker_init_fn` (if any) that takes what torch has drawn from it.

**Why it hurts.** At the beginning of each epoch a loader draws one number from torch, and worker k gets that number
plus k. The ranks are in the same state, so worker 0 of all eight ranks draws the same crops, flips and masks in the
same order, for other images. The batch of the job has an eighth of the variety that it seems to have, in every step.
Nothing fails.

**Fix.** Put the rank into the seed, as DeiT does: `torch.manual_seed(args.seed + rank)`. Where the first weights are to
be equal, do it once the model is made; `DistributedDataParallel` sends those of rank 0 anyway.

It is a note: many projects train well like this, with less variety than they think.

**When it stays quiet.** A seed that differs between ranks anywhere in the run; no seed of the CPU's generator; a
`worker_init_fn` that knows the rank, or that seeds by the number of the worker (DSL653); a data set that draws
nothing, whose code is not there, or that draws under a test of an option; samplers that do not shuffle; no workers,
where it is not torch that draws; tensor, pipeline and sequence parallel scripts; one process.

**Evidence.** torch 2.13, two processes that seed torch alike: workers 0 and 1 of both draw the same numbers for
other items; with the rank in the seed other ones.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.reach import reached
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.alikedraws import common_start, has_workers, seeds_by_worker, worker_codes
from dslint.rules.data.trainingloaders import in_training
from dslint.rules.data.undivided import draws
from dslint.rules.ranks.ownseeds import common_seeds, must_draw_alike
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import adds_sampler
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL773",
    name="augmentations-alike",
    kind="script",
    severity=Severity.INFO,
    summary="all ranks seed torch alike: worker k of every rank draws the same augmentations",
    markers=(r"DistributedSampler|lightning", r"seed", r"num_workers"),
    references=(
        "https://pytorch.org/docs/stable/data.html#randomness-in-multi-process-data-loading",
        "https://github.com/facebookresearch/deit/blob/main/main.py",
    ),
    depends_on_run=True,
    no_experiment="that one seed gives one row of numbers needs no ranks",
)
# Transforms of torchvision, timm and their relatives that draw.
_RANDOM = re.compile(
    r"(?:[\w.]+\.)?(?:Random(?!Sampler|State)\w+|ColorJitter|AutoAugment|RandAugment|TrivialAugment\w*|AugMix)\("
    r"|torch\.rand"
)
_USUAL = re.compile(
    r"(?i)train|aug|split|mode|transform|flip|rand|jitter|crop|is None|is not None|blur|scale|prob|rate"
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the seed of all ranks where a divided loader has workers that draw."""
    if run.context.is_one_process or must_draw_alike(run):
        return
    # The workers ask the generator of the CPU.
    seeds = [event for event in common_seeds(run) if not event.api.startswith("torch.cuda.")]
    loader = next((h.event for h in run.happenings("makes-loader") if _draws_alike(run, h.event)), None)
    if seeds and loader is not None:
        found = next(h for h in run.happenings("seeds") if h.event is seeds[0])
        yield _finding(run, found, loader)
    else:
        yield from _of_generators(run)


def _of_generators(run: RunQuery) -> Iterator[Finding]:
    """Yield the first generator of a loader that all ranks seed alike, where its workers draw."""
    for found in run.happenings("makes-loader"):
        event = found.event
        given = event.arguments.get("generator")
        if given is None or given.constants == (None,) or event.open or not has_workers(run, event):
            continue
        is_divided = _is_shuffled(run, event) or (bool(adds_sampler(run)) and in_training(run, found))
        start = common_start(run, event) if is_divided and _draws(run, event, _draws_by_any) else None
        seed = next((h for h in run.happenings("seeds") if start is not None and h.event.node is start.node), None)
        codes = worker_codes(event.arguments.get("worker_init_fn"))
        if seed is not None and not any(seeds_by_worker(node) for _, node in codes or ()):
            yield _finding(run, seed, event)
            return


def _draws_alike(run: RunQuery, event: Event) -> bool:
    """Return whether the workers of a divided loader that shuffles take their seeds from torch, and draw."""
    given = [event.arguments.get(name) for name in ("worker_init_fn", "generator")]
    if event.open or any(value is not None and value.constants != (None,) for value in given):
        return False
    stated = event.arguments.get("num_workers")
    workers = run.likely(stated) if stated is not None else (0,)
    has_workers = bool(workers) and all(isinstance(number, int) and number > 0 for number in workers or ())
    # Without workers the process itself draws, and only its generator of torch is known to be seeded.
    what = _draws_by_any if has_workers else _draws_by_torch
    return _is_shuffled(run, event) and _draws(run, event, what)


def _is_shuffled(run: RunQuery, event: Event) -> bool:
    libraries = run.machine.libraries
    for atom in instances(event.arguments.get("sampler")):
        made = run.makers.get(atom)
        if made is not None and isinstance(atom.cls, str) and libraries.is_class(atom.cls, "distributed-sampler"):
            shuffle = made.arguments.get("shuffle")
            return not made.open and (shuffle is None or run.likely(shuffle) == (True,))
    return False


def _draws(run: RunQuery, event: Event, what: Callable[[Module, ast.AST], bool]) -> bool:
    """Return whether the code of the data set, or what it is made of, draws random numbers."""
    for source in event.sources:
        if source.role != "dataset":
            continue
        pieces: list[tuple[Module, ast.AST]] = list(reached(run.machine.program, source.code))
        made, home = source.made, run.machine.program.home_of(source.made)
        if isinstance(made, ast.Call) and home is not None:
            pieces += run.derived.of(home, [*made.args, *(k.value for k in made.keywords)]) or []
        calls = ((module, node) for module, piece in pieces for node in ast.walk(piece) if isinstance(node, ast.Call))
        if any(what(module, node) and _is_usual(module, node) for module, node in calls):
            return True
    return False


def _draws_by_torch(_module: Module, node: ast.AST) -> bool:
    return _RANDOM.match(ast.unparse(node)) is not None


def _draws_by_any(module: Module, node: ast.AST) -> bool:
    return _draws_by_torch(module, node) or draws(module, node)


def _is_usual(module: Module, node: ast.AST) -> bool:
    """Return whether no test stands before a draw, or one of training, augmentation or chance."""
    while node in module.parents:
        inner, node = node, module.parents[node]
        if (
            isinstance(node, ast.If | ast.IfExp)
            and inner is not node.test
            and not _USUAL.search(ast.unparse(node.test))
        ):
            return False
    return True


def _finding(run: RunQuery, seed: Happening, loader: Event) -> Finding:
    event = seed.event
    calls = seed.calls[-1:]
    return run.finding(
        META,
        event.module,
        event.node,
        "All ranks seed torch alike: worker k of every rank draws the same augmentations for other items",
        hint="Put the rank into the seed once the model is made (`seed + rank`)",
        related=(
            *(run.location(call.module, call.node, "seeded from here") for call in calls),
            run.location(loader.module, loader.node, "its workers take their seeds from that generator"),
        ),
        varies=event.varies,
    )


_SCRIPT = """\
import random

import numpy as np
import torch
import torch.distributed as dist
import torchvision.transforms as T
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Clips(Dataset):
    def __init__(self, rows, transform, order):
        self.rows, self.transform, self.order = rows, transform, order

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        %s
        return self.transform(row)


def fix_random_seeds(seed):
    torch.manual_seed(seed)
    np.random.seed(seed)


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for x in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()


def main(rows, net, workers):
    dist.init_process_group("gloo")
    fix_random_seeds(%s)
    transform = T.Compose([%s])
    data = Clips(rows, transform, 0)
    sampler = DistributedSampler(data%s)
    train(DDP(net), DataLoader(data, 8, sampler=sampler, num_workers=%s))


if __name__ == "__main__":
    main(torch.load("rows.pt", weights_only=False), torch.nn.Linear(4, 1), 4)
"""
_CROP = "T.RandomResizedCrop(224), T.ToTensor()"
_PLAIN = "T.ToTensor()"
_FLIP = "row = row[::-1] if random.random() < 0.5 else row"
_NOISE = "row = row + torch.randn_like(row)"
_OPTION = "if self.order == 2:\n            row = np.random.permutation(row)"


def _script(draw: str, crops: str, seed: str = "13", shuffle: str = "", workers: str = "4") -> dict[str, str]:
    return {"train.py": _SCRIPT % (draw, seed, crops, shuffle, workers)}


_GENERATOR = "4, generator=torch.Generator().manual_seed(0)"


def _usual(seed: str) -> dict[str, str]:
    text = _SCRIPT.replace("def train(", f"def seed_worker(worker):\n    random.seed({seed})\n\n\ndef train(")
    return {"train.py": text % (_FLIP, "dist.get_rank()", _PLAIN, "", _GENERATOR + ", worker_init_fn=seed_worker")}


EXAMPLES = (
    bad("crops of torchvision", _script("", _CROP), at="train.py:25 info"),
    bad("a flip of Python's", _script(_FLIP, _PLAIN), at="train.py:25"),
    bad("noise of torch", _script(_NOISE, _PLAIN), at="train.py:25"),
    bad("nobody knows how many workers", _script("", _CROP, workers="torch.get_num_threads()"), at="train.py:25"),
    good("the rank in the seed", _script("", _CROP, seed="13 + dist.get_rank()")),
    good("nothing is drawn", _script("", _PLAIN)),
    good("an option decides over a draw", _script(_OPTION, _PLAIN)),
    good("Python draws in the process itself", _script(_FLIP, _PLAIN, workers="0")),
    bad("a generator of the loader", _script(_FLIP, _PLAIN, "dist.get_rank()", workers=_GENERATOR), at="train.py:45"),
    bad("with the usual function", _usual("torch.initial_seed() %% 2**32"), at="train.py:49"),
    good("the function knows the rank", _usual("torch.initial_seed() %% 2**32 + dist.get_rank()")),
    good("the rank in the generator", _script(_FLIP, _PLAIN, workers=_GENERATOR.replace("(0)", "(dist.get_rank())"))),
    good("a function for the workers", _script("", _CROP, workers="4, worker_init_fn=__import__('workers').begin")),
    good("an evaluation", _script("", _CROP, shuffle=", shuffle=False")),
)
