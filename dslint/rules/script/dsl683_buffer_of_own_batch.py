"""A buffer of a DDP model is updated from each rank's own batch, and DDP keeps that of rank 0 alone.

**What.** A module registers a buffer (`register_buffer("codebook", ...)`, a queue of keys), computes with it in
`forward`, and writes into it there what its batch says. The model is in `DistributedDataParallel`, and nothing in
the module reduces or gathers over the ranks.

**Why it hurts.** At the start of each forward pass DDP copies the buffers of rank 0 over those of the others, so that
what they have seen is lost: on eight GPUs the codebook or queue learns from an eighth of the data. With
`broadcast_buffers=False` each rank continues with a buffer of its own, and rank 0 saves its own. Nothing fails.

**Fix.** Reduce what is added over the ranks (`dist.all_reduce(counts)`), or gather it (`dist.all_gather`), before it is
written into the buffer.

**When it stays quiet.** The module reduces or gathers, or the script does so for all `buffers()`; buffers that
`forward` only writes; a running mean, variance or centre, of which rank 0 has an estimate as with batch
normalisation; numbers that do not come from the batch; one process.

**Evidence.** Two gloo ranks, torch 2.13: after four steps the buffer of both ranks is the average of the batches of
rank 0; with `all_reduce` it is that of all batches.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.values import ClassAtom
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.afterwrap import wrapper_of
from dslint.rules.wrapping.ownbuffers import written_by_batch

META = RuleMeta(
    code="DSL683",
    name="buffer-of-own-batch",
    kind="script",
    severity=Severity.WARNING,
    summary="a buffer of a DDP model is updated from each rank's own batch: only what rank 0 has seen remains",
    markers=(r"DistributedDataParallel|DDP|init_process_group",),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "https://github.com/pytorch/pytorch/issues/63916",
    ),
    depends_on_run=True,
)
_JOINS = re.compile(r"reduce|gather|broadcast|\bsync|\bdist\.|distributed\.")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each buffer of a wrapped model that its forward pass writes from the batch."""
    if run.context.is_one_process or not run.has("backward"):
        return
    seen: set[str] = set()
    for found in run.happenings("wraps-model"):
        wrap = found.event
        if wrapper_of(run, wrap) is None:
            continue
        classes = {atom.cls.node: atom.cls for atom in wrap.modules if isinstance(atom.cls, ClassAtom)}
        for cls in sorted(classes.values(), key=lambda cls: (cls.module.path, cls.node.lineno)):
            key = f"{cls.module.path}:{cls.node.lineno}"
            written = next(written_by_batch(cls.node), None)
            if written is None or key in seen or _JOINS.search(cls.module.text(cls.node)):
                continue
            if _joins_all(run):
                return
            seen.add(key)
            name, place = written
            yield run.finding(
                META,
                cls.module,
                place,
                f"the buffer `{name}` stores its own rank's batch, but {_what_remains(wrap)}",
                hint="Reduce or gather over the ranks what is written into the buffer",
                related=(run.location(wrap.module, wrap.node, "wrapped here"),),
            )


def _joins_all(run: RunQuery) -> bool:
    """Return whether a loop over the buffers of a model hands each to a collective."""
    for found in run.happenings("collective"):
        around = found.event.module.parents.get(found.event.node)
        while around is not None:
            if isinstance(around, ast.For | ast.comprehension) and "buffers()" in ast.unparse(around.iter):
                return True
            around = found.event.module.parents.get(around)
    return False


def _what_remains(wrap: Event) -> str:
    sends = wrap.arguments.get("broadcast_buffers")
    is_sent = sends is None or sends.constants == (True,)
    return "DDP sends rank 0's to all: the rest is lost" if is_sent else "each rank keeps a different one"


_MODEL = """\
import torch
import torch.distributed as dist
from torch import nn


class Quantizer(nn.Module):
    def __init__(self, codes=64, width=8):
        super().__init__()
        self.register_buffer("codebook", torch.randn(codes, width))
        self.register_buffer("counts", torch.zeros(codes))

    def forward(self, x):
        nearest = torch.cdist(x, self.codebook).argmin(1)
        hits = nn.functional.one_hot(nearest, len(self.codebook)).type_as(x)
        found = self.codebook[nearest]
        if self.training:
            sums = hits.t() @ x.detach()
            %s
            self.codebook.mul_(0.99).add_(sums, alpha=0.01)
        return x + (found - x).detach()


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.quantizer, self.decoder = nn.Linear(4, 8), Quantizer(), nn.Linear(8, 4)

    def forward(self, x):
        return self.decoder(self.quantizer(self.encoder(x)))
"""
_QUEUE = """\
import torch
from torch import nn


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.register_buffer("queue", torch.randn(8, 4096))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def remember(self, keys):
        at = int(self.place)
        self.queue[:, at : at + len(keys)] = %s
        self.place[0] = (at + len(keys)) %% self.queue.shape[1]

    def forward(self, x):
        keys = self.encoder(x)
        scores = keys @ self.queue.clone()
        self.remember(keys.detach())
        return scores
"""
_TRAIN = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from coder import Coder


def main(rows, rank):
    dist.init_process_group("nccl")
    torch.cuda.set_device(rank)
    model = DistributedDataParallel(Coder().cuda(), device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters())
    for x in rows:
        optimizer.zero_grad()
        model(x.cuda()).square().mean().backward()
        optimizer.step()
"""

EXAMPLES = (
    bad("a codebook", {"train.py": _TRAIN, "coder.py": _MODEL % "pass"}, at="coder.py:19 warning"),
    bad("a queue of keys", {"train.py": _TRAIN, "coder.py": _QUEUE % "keys.t()"}, at="coder.py:15 warning"),
    good("reduced", {"train.py": _TRAIN, "coder.py": _MODEL % "dist.all_reduce(sums)"}),
    good(
        "all buffers are averaged in the loop",
        {
            "train.py": _TRAIN.replace(
                "        optimizer.step()",
                "        for buffer in model.buffers():\n"
                "            dist.all_reduce(buffer, op=dist.ReduceOp.AVG)\n        optimizer.step()",
            ),
            "coder.py": _MODEL % "pass",
        },
    ),
    good("gathered", {"train.py": _TRAIN, "coder.py": _QUEUE % "gather_all(keys).t()"}),
    good(
        "a running mean",
        {
            "train.py": _TRAIN,
            "coder.py": (_MODEL % "pass").replace("codebook", "mean_code").replace("counts", "count_codes"),
        },
    ),
    good(
        "a buffer that is only counted",
        {"train.py": _TRAIN, "coder.py": (_QUEUE % "keys.t()").replace("keys @ self.queue.clone()", "keys")},
    ),
)
