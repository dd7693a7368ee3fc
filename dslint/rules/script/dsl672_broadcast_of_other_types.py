"""A broadcast sends numbers of one type, and the other ranks receive them into a tensor of another type.

**What.** One rank makes the tensor (labels of a clustering, a permutation), the others make room for it in the other
branch of a test of the rank, with another type: `torch.zeros(n)` holds float32, a permutation int64.

**Why it hurts.** `broadcast` copies bytes and compares no types. Of the same size, the bits of whole numbers are read
as floats: small ones become next to 0, and a conversion makes all of them 0. Of another size, only a part arrives, or
NCCL waits until the process-group timeout. With most backends nothing fails.

**Fix.** Give both tensors the same type: `torch.zeros(n, dtype=torch.long)`, and `labels.to(torch.long)` on the sender.

**When it stays quiet.** A type that cannot be read; a test that is not about the rank; the variable is made anew
before the broadcast.

**Evidence.** Two gloo ranks, torch 2.13: int32 numbers 1, 2, 3 arrive in a float32 tensor as denormal numbers, and are
0 as whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.dtypes import are_other, dtype_of
from dslint.python.values import Instance
from dslint.python.varies import OWN, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL672",
    name="broadcast-of-other-types",
    kind="script",
    severity=Severity.ERROR,
    summary="a broadcast sends numbers of one type into a tensor of another type, which reads other numbers",
    markers=(r"broadcast\(", r"rank|is_main|master|RANK"),
    references=(
        "https://docs.pytorch.org/docs/stable/distributed.html",
        "https://github.com/pytorch/pytorch/issues/91535",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each broadcast of a variable that two sides of a test of the rank make with other types."""
    if run.context.is_one_process:
        return
    for found in run.happenings("collective"):
        event = found.event
        sent = event.arguments.get("tensor")
        if not event.api.endswith(".broadcast") or sent is None or not sent.varies & RANKED or sent.varies & OWN:
            continue
        made = instances(sent)
        types = [dtype_of(atom.node) for atom in made]
        if len(made) == len(sent.atoms) == 2 and are_other(*types):
            yield _finding(run, event, made, types)


def _finding(run: RunQuery, event: Event, made: list[Instance], types: list[str]) -> Finding:
    sent = event.nodes.get("tensor", event.node)
    here = set(event.module.nodes)
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{run.text(event.module, sent, 40)}` is {types[0]} on some ranks and {types[1]} on others: a broadcast"
        " converts"
        " nothing",
        hint="Give both tensors the same `dtype`",
        related=tuple(
            run.location(event.module, atom.node, f"holds {kind}")
            for atom, kind in zip(made, types, strict=True)
            if atom.node in here
        ),
    )


_TRAIN = """\
import numpy as np
import torch
import torch.distributed as dist
from sklearn.cluster import KMeans


def assign(features, count, device):
    if dist.get_rank() == 0:
        labels = %s
    else:
        labels = %s
    dist.broadcast(labels, src=0)
    return labels


def main(features, device):
    dist.init_process_group("nccl")
    print(assign(features, len(features), device))
"""
_KMEANS = "torch.from_numpy(KMeans(8).fit(features).labels_).to(device)"
_ROOM, _LONG = "torch.zeros(count, device=device)", "torch.zeros(count, dtype=torch.long, device=device)"

EXAMPLES = (
    bad("labels of a clustering", {"train.py": _TRAIN % (_KMEANS, _ROOM)}, "train.py:12 error"),
    bad("another size", {"train.py": _TRAIN % ("torch.arange(9).int()", _LONG)}, "train.py:12 error"),
    bad("a permutation", {"train.py": _TRAIN % ("torch.randperm(count).to(device)", _ROOM)}, "train.py:12 error"),
    bad("a flag", {"train.py": _TRAIN % ("torch.tensor([1]).cuda()", "torch.empty(1).cuda()")}, "train.py:12 error"),
    bad(
        "numbers of numpy",
        {"train.py": _TRAIN % ("torch.from_numpy(np.random.rand(count)).to(device)", _ROOM)},
        "train.py:12 error",
    ),
    good("the same type", {"train.py": _TRAIN % (_KMEANS.replace("(device)", "(device, torch.long)"), _LONG)}),
    good("whole numbers of an estimator", {"train.py": _TRAIN % (_KMEANS, _LONG)}),
    good("converted", {"train.py": _TRAIN % ("torch.from_numpy(np.random.rand(count)).float().to(device)", _ROOM)}),
    good("a type that nobody can read", {"train.py": _TRAIN % ("torch.as_tensor(features.index).to(device)", _ROOM)}),
)
