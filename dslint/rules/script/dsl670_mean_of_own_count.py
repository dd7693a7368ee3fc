"""The loss is a mean over each rank's own count of tokens, where the script means those of a whole step or all ranks.

**What.** The sum of the losses of the supervised tokens is divided by their number on this rank, and the wrapper
averages the gradients over the ranks. Elsewhere the script adds the same count up over the ranks (`all_reduce`), or the
count is that of all micro batches of a step: a mean over the tokens of the step is meant, and it stops at the rank.

**Why it hurts.** The mean of the ranks' means is not the mean over all tokens: a token on a rank with few of them
counts more. With 1500 answer tokens on one rank and 40 on another it is forty times as much. What is trained is not
what is logged, and follows from how samples fall on the ranks.

**Fix.** Divide by the count of all ranks, and multiply by their number, since the wrapper takes the mean:
`dist.all_reduce(count); loss = total * dist.get_world_size() / count`.

**When it stays quiet.** Nothing adds that count up, over the ranks or over the micro batches: then the mean of each
batch may be what is meant. A collective gets the count.
Losses with `reduction="mean"`; counts that are the same on all ranks; the number of ranks in what is computed.

**Evidence.** Two gloo ranks, torch 2.13: with one sample on one rank and three on the other the gradient of a DDP model
is not that of the mean over the four; divided by the count of all ranks, and times their number, it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Event, Loop
from dslint.python.names import spelled
from dslint.python.queries.quotients import Named, Place, Quotients, Traced
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.wrapping.ddps import averaging_wrap, sums_over_ranks
from dslint.rules.zero.enginenames import loss_of

META = RuleMeta(
    code="DSL670",
    name="mean-of-own-count",
    kind="script",
    severity=Severity.WARNING,
    summary="each rank divides its loss by its own count of tokens, and the script logs the mean over all ranks",
    markers=(
        r"all_reduce\(|\bsum\(",
        r"backward",
        r"DistributedDataParallel|DDP|FullyShardedDataParallel|FSDP|fully_shard",
    ),
    references=("https://github.com/PrimeIntellect-ai/prime-rl/pull/1960",),
    depends_on_run=True,
)
_RANKS = re.compile(r"(?i)world|replica|num_?proc|n_?gpu|dp_(?:size|degree)|parallel_size|\bdp\b")
# A number of what is chosen by a test or a mask.
_COUNTS = re.compile(
    r"(?:[!=<>]=?[^()]*\)|mask\w*(?:\.\w+\([^()]*\))*)\.sum\(\)|\.ne\([^()]*\)\.sum\(\)|count_nonzero\("
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each division of a loss by a count that is added up over the ranks for something else."""
    if run.context.is_one_process or not run.has("backward"):
        return
    wrap = averaging_wrap(run)
    if wrap is None:
        return
    quotients = Quotients(run.machine.program.modules(), [tree for _, tree in run.trees()])
    sums = sums_over_ranks(run, quotients)
    added = {text: event for event in sums.values() for text in _counts(quotients.trace(event.module, _summed(event)))}
    seen: set[ast.AST] = set()
    sent = _sent(run)
    for found in run.happenings("backward"):
        loss = loss_of(found.event)
        traced = quotients.trace(found.event.module, loss) if loss is not None else Traced(is_whole=False)
        if not traced.is_whole or any(_RANKS.search(spelled(piece.module.tree, piece.node)) for piece in traced.pieces):
            continue
        for place, below in traced.divisions:
            inside = quotients.trace(below.module, below.node)
            if place.node in seen or _is_added(inside, sums):
                continue
            same = next((text for text in _counts(inside) if text in added), None)
            whole = _of_step(inside, found) if same is None and not _words(inside) & sent else None
            if same is not None:
                other = run.location(added[same].module, added[same].node, "sums the same count over the ranks")
            elif whole is not None:
                other = run.location(whole.module, whole.node, "counts in all micro batches of a step")
            else:
                continue
            seen.add(place.node)
            yield _finding(run, place, other, wrap)


def _summed(event: Event) -> ast.AST:
    return event.node.args[0] if isinstance(event.node, ast.Call) and event.node.args else event.node


def _counts(traced: Traced) -> list[str]:
    """Return the code of the counts that a number is computed of."""
    texts = [ast.unparse(piece.node) for piece in traced.pieces]
    return [text for text in texts if _COUNTS.search(text)]


def _sent(run: RunQuery) -> set[str]:
    """Return the names in what collectives get."""
    calls = [found.event.node for found in run.occurrences("collective")]
    given = [part for call in calls if isinstance(call, ast.Call) for part in (*call.args, *call.keywords)]
    return {word for part in given for node in ast.walk(part) if (word := _word(node))}


def _words(traced: Traced) -> set[str]:
    return {word for _, word in traced.names}


def _word(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _of_step(traced: Traced, found: Happening) -> Place | None:
    """Return the sum of counts over the micro batches that the loop around a backward pass goes through."""
    loops = [node.node for node in found.around if isinstance(node, Loop) and isinstance(node.node, ast.For)]
    batches = {word for loop in loops for node in ast.walk(loop.iter) if (word := _word(node))}
    for place in traced.pieces:
        if _COUNTS.search(ast.unparse(place.node)) and any(over in batches for over in _gone_through(place, loops)):
            return place
    return None


def _gone_through(place: Place, loops: list[ast.For]) -> Iterator[str]:
    """Yield the names of what a sum goes through: `sum(count(b) for b in batches)`, or a loop that adds."""
    node = place.node
    if isinstance(node, ast.Call) and _word(node.func) in ("sum", "fsum", "stack", "tensor") and node.args:
        inner = node.args[0]
        if isinstance(inner, ast.GeneratorExp | ast.ListComp):
            yield _word(inner.generators[0].iter)
    for loop in ast.walk(place.scope):
        if not isinstance(loop, ast.For) or loop in loops:
            continue
        if any(isinstance(add, ast.AugAssign) and add.value is node for add in ast.walk(loop)):
            yield _word(loop.iter)


def _is_added(traced: Traced, sums: dict[Named, Event]) -> bool:
    return not traced.is_whole or bool(traced.names & sums.keys())


def _finding(run: RunQuery, place: Place, other: Location, wrap: Event) -> Finding:
    return run.finding(
        META,
        place.module,
        place.node,
        f"`{run.text(place.module, place.node, 40)}` is a mean over this rank's count: tokens of ranks with few"
        " weigh more",
        hint="Divide by the count of all ranks, and multiply by the number of ranks",
        related=(
            other,
            run.location(wrap.module, wrap.node, "takes the mean of the ranks' gradients"),
        ),
    )


_TRAIN = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP


def tokens(labels):
    return (labels != -100).sum()


def loss_of(logits, labels):
    total = F.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")
    %s
    return %s


def main(loader, rank):
    dist.init_process_group("nccl")
    model = torch.nn.Linear(8, 8).to(rank)
    %s
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader:
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        %s
"""
_DDP, _SHARD = "model = DDP(model, device_ids=[rank])", "fully_shard(model)"
_OWN = "total / tokens(labels).clamp(min=1)"
_COUNT = "count = (labels != -100).sum()"
_LOG = "seen = torch.stack([loss.detach(), tokens(labels).float()])\n        dist.all_reduce(seen)\n        print(seen)"
_ALL = "count = tokens(labels)\n    dist.all_reduce(count)"

_STEP = """\
import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def main(loader, rank):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(8, 8).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    iterator = iter(loader)
    for step in range(100):
        batches = list(itertools.islice(iterator, 4))
        %s
        for images, labels in batches:
            total = F.cross_entropy(model(images), labels, ignore_index=-100, reduction="sum")
            (%s).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
_SUM = "count = sum((labels != -100).sum() for _, labels in batches)"
_GATHERED = """
        shares = [torch.zeros_like(count) for _ in range(dist.get_world_size())]
        dist.all_gather(shares, count)
        count = torch.stack(shares).float().mean()"""
_LOOP = "count = 0\n        for _, labels in batches:\n            count += labels.ne(-100).sum().item()"
_LIST = "count = torch.stack([(b[1] != -100).sum() for b in batches]).sum().to(rank)"

EXAMPLES = (
    bad("the count of a step", {"train.py": _STEP % (_SUM, "total / count.clamp(min=1)")}, "train.py:19 warning"),
    bad("a loop counts", {"train.py": _STEP % (_LOOP, "total / max(count, 1)")}, "train.py:21 warning"),
    bad("a list of counts", {"train.py": _STEP % (_LIST, "total.div(count)")}, "train.py:19 warning"),
    good(
        "of all ranks",
        {"train.py": _STEP % (_SUM + "\n        dist.all_reduce(count)", "total * dist.get_world_size() / count")},
    ),
    good("gathered", {"train.py": _STEP % (_SUM + _GATHERED, "total / count")}),
    good("the mean of a batch", {"train.py": _STEP % ("pass", "total / (labels != -100).sum() / 4")}),
    bad("a helper counts", {"train.py": _TRAIN % ("pass", _OWN, _SHARD, _LOG)}, "train.py:15 warning"),
    bad("a variable", {"train.py": _TRAIN % (_COUNT, "total / count", _DDP, _LOG)}, "train.py:15 warning"),
    bad("by a method", {"train.py": _TRAIN % (_COUNT, "total.div(count)", _DDP, _LOG)}, "train.py:15 warning"),
    good("nothing adds the count up", {"train.py": _TRAIN % ("pass", _OWN, _DDP, "pass")}),
    good(
        "the count of all ranks",
        {"train.py": _TRAIN % (_ALL, "total * dist.get_world_size() / count", _DDP, _LOG)},
    ),
    good("no wrapper", {"train.py": _TRAIN % ("pass", _OWN, "pass", _LOG)}),
)
