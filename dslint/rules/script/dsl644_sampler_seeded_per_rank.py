"""`seed_everything` gets another seed on each rank, and Lightning seeds its samplers by that.

**What.** `L.seed_everything(seed + rank)` before a `Trainer` that trains in several processes and divides a shuffled
loader itself.

**Why it hurts.** `seed_everything` leaves the seed in `PL_GLOBAL_SEED`, and the `DistributedSampler` that Lightning
puts into the loader takes its seed from there. Each rank then shuffles the items in an order of its own and takes its
share of that: in an epoch some items come on several ranks and others on none.

**Fix.** The same seed everywhere; where ranks need noise of their own, `torch.manual_seed(seed + self.global_rank)` in
`on_fit_start`, which leaves the samplers alone.

**When it stays quiet.** A seed that is the same on all ranks, or that nobody can read; a trainer of one process, or
one whose strategy is not certain; `use_distributed_sampler=False`; loaders that bring a sampler, or do not shuffle.

**Evidence.** lightning 2.6.6: `_get_distributed_sampler` in lightning/fabric/utilities/distributed.py passes
`seed=int(os.getenv("PL_GLOBAL_SEED", 0))`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.varies import LOCAL, LOST, RANK
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.lightnings import adds_sampler, is_one_process

META = RuleMeta(
    code="DSL644",
    name="sampler-seeded-per-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="each rank shuffles the items by a seed of its own, and takes its share of another order",
    markers=(r"seed_everything", r"lightning", r"(?i)rank|procid"),
    references=(
        "https://github.com/Lightning-AI/pytorch-lightning/issues/7016",
        "https://github.com/Lightning-AI/pytorch-lightning/pull/7024",
    ),
    depends_on_run=True,
    no_experiment="needs Lightning, which the experiments do not install",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each seed that differs by rank where Lightning shuffles a loader by it."""
    if is_one_process(run) or not adds_sampler(run):
        return
    loader = next((found.event for found in run.happenings("makes-loader") if _is_shuffled(found.event)), None)
    if loader is None:
        return
    for found in run.happenings("seeds"):
        event = found.event
        seed = event.arguments.get("seed")
        if seed is None or not event.api.endswith("seed_everything") or event.may:
            continue
        if seed.varies & (RANK | LOCAL) and not seed.varies & LOST:
            yield run.finding(
                META,
                event.module,
                event.node,
                "each rank has its own seed, and Lightning shuffles by it: some items come on several ranks, others on"
                " none",
                hint="Pass the same seed on all ranks",
                related=(
                    *run.origin(seed, "differs by rank"),
                    run.location(loader.module, loader.node, "Lightning divides this by its own sampler"),
                ),
                varies=seed.varies,
            )


def _is_shuffled(event: Event) -> bool:
    """Return whether Lightning replaces the sampler of a loader by one that shuffles."""
    shuffles = event.arguments.get("shuffle")
    return (
        shuffles is not None
        and shuffles.constants == (True,)
        and not event.open
        and not {"sampler", "batch_sampler"} & set(event.arguments)
    )


_SCRIPT = """\
import os

import lightning as L
from torch.utils.data import DataLoader

from net import Net


def main(dataset):
    rank = int(os.environ["RANK"])
    L.seed_everything(%s)
    loader = DataLoader(dataset, batch_size=8%s)
    trainer = L.Trainer(devices=4, %s)
    trainer.fit(Net(), loader)


if __name__ == "__main__":
    main(load())
"""
_SHUFFLED, _DDP = ", shuffle=True", 'strategy="ddp"'

EXAMPLES = (
    bad("a seed for each rank", {"train.py": _SCRIPT % ("42 + rank", _SHUFFLED, _DDP)}, at="train.py:11 warning"),
    good("one seed", {"train.py": _SCRIPT % ("42, workers=True", _SHUFFLED, _DDP)}),
    good("not shuffled", {"train.py": _SCRIPT % ("42 + rank", "", _DDP)}),
    good(
        "a sampler of its own",
        {"train.py": _SCRIPT % ("42 + rank", ", sampler=shares(dataset)", f"use_distributed_sampler=False, {_DDP}")},
    ),
)
