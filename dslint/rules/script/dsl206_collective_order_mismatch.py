"""The ranks make the same collectives in another order, or each with a root of its own.

**What.** On the two sides of a rank test the same collectives are in different order (`all_reduce(loss)` before
`all_reduce(tokens)` here, after it there), or a `broadcast`, `reduce`, `gather` or `scatter` names the rank of the
process itself as its root: `dist.broadcast(x, src=rank)`, or the two sides name different roots.

**Why it hurts.** Collectives pair up by the order in which they are made, not by their names or tensors. Two sums of
the same shape are then exchanged without any error: each rank adds the loss of one to the token count of the other.
Tensors of different shape abort the job over gloo and hang or corrupt memory over NCCL. When every rank believes to be
the root, each sends and nobody receives, until the timeout.

**Fix.** Make the calls in one order, outside of the test; name one root, the same number on every rank (`src=0`).

**When it stays quiet.** The operations of the two sides are not all known; conditions or loops are between them; the
call is on a subgroup (`group=`), where each group may have its own root; the other arm of an
`if` makes the same call (the rank that holds a tensor sends it, the others name that rank).

**Evidence.** Two ranks over gloo: swapped `all_reduce` of equal shape end with wrong sums on both ranks and exit code
0; of different shape with a size mismatch; `broadcast(x, src=rank)` in the send timeout (torch 2.13).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event, walk
from dslint.python.values import PerRank
from dslint.python.varies import DIVERGENT, LOST
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.markers import RANKS
from dslint.rules.ranks import parted

if TYPE_CHECKING:
    from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL206",
    name="collective-order-mismatch",
    kind="script",
    severity=Severity.ERROR,
    summary="ranks make the same collectives in another order, or each with a root of its own",
    markers=(
        r"(?:broadcast|reduce|gather|scatter)\w*\(",
        RANKS,
        r"\.distributed|torch import|deepspeed",
    ),
    alone=parted.ALONE,
    also_told_by=parted.RANKS_PART,
    references=(
        "https://pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast",
        "https://arxiv.org/abs/1310.5552",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Yield calls in another order, and roots that are the rank."""
    for parting in parted.partings(run):
        other = parting.against.event if parting.against is not None else None
        if not parting.order or other is None or not parted.is_about_ranks(run, parting):
            continue
        mine, theirs = run.text(parting.event.module, parting.event.node), run.text(other.module, other.node)
        is_root = run.waits.roots(parting.event, other)
        effect, hint = _ROOT if is_root else _ORDER
        yield run.finding(
            META,
            *parted.place(parting),
            f"some ranks run `{mine}` while others run `{theirs}`: {effect}",
            hint=hint,
            related=(
                parted.test_place(run, parting),
                run.location(other.module, other.node, "the other ranks are here at the same time"),
            ),
            varies=parting.varies,
            origin=parted.origin(run, parting),
            facts={"what": "root" if is_root else "order", "collective": parted.key(parting.event)},
        )
    yield from _roots(run)


def _roots(run: RunQuery) -> Iterator[Finding]:
    """Yield calls that every rank makes with itself as the root."""
    for happening in run.happenings("collective"):
        event = happening.event
        root = run.waits.root(event)
        atom = root.single if root is not None else None
        if event.module.path != run.path or event.may or not isinstance(atom, PerRank) or run.waits.of(event) is None:
            continue
        if any(isinstance(node, Alt) and _may_be_meant(node, event) for node in happening.around):
            continue
        if _takes_a_rank(happening.entry.node):
            continue  # a parameter called `rank` may be the number of the root
        lanes = run.machine.worlds.lanes
        is_rank = any(atom.values == tuple(lane[column] for lane in lanes) for column in (0, 1))
        if not is_rank or event.lanes != run.machine.worlds.full:
            continue
        name, keyword = parted.key(event), run.waits.root_name(event)
        given = event.nodes.get(keyword, event.node)
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{run.text(event.module, given)}` differs on every rank: each acts as the root of `{name}`, and the job"
            " hangs",
            hint=f"Pass one number that is the same everywhere, such as `{keyword}=0`",
            related=(run.location(event.module, given, "the rank of the process"),),
            facts={"what": "root", "collective": name},
        )


def _takes_a_rank(node: ast.AST) -> bool:
    """Return whether a parameter that is called a rank has a default: it is that of the root."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    places = [*node.args.posonlyargs, *node.args.args]
    given = places[len(places) - len(node.args.defaults) :]
    given += [p for p, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if default is not None]
    return any(p.arg in ("rank", "global_rank", "local_rank") for p in given)


def _may_be_meant(alt: Alt, event: Event) -> bool:
    """Return whether the ranks may differ here, or the other side of a test makes the same call from its root."""
    others = (node for side in (alt.then, alt.orelse) for node in walk(side) if node is not event)
    is_met = any(isinstance(node, Event) and node.api == event.api for node in others)
    return is_met or bool(alt.varies & (DIVERGENT | LOST))


_ORDER = (
    "the calls pair up by order, and mix values or hang",
    "Make these calls in the same order on every rank, best outside of the test",
)
_ROOT = (
    "the roots differ, and the job hangs",
    "Name one root, the same number on every rank",
)


EXAMPLES = (
    bad(
        "A reduction and a broadcast change places",
        {
            "metrics.py": """\
import torch.distributed as dist


def share(rank, loss, config):
    if rank == 0:
        dist.broadcast(config, src=0)
        dist.all_reduce(loss)
    else:
        dist.all_reduce(loss)
        dist.broadcast(config, src=0)
"""
        },
        "metrics.py:6",
    ),
    bad(
        "The same operation on other tensors",
        {
            "metrics.py": """\
import torch.distributed as dist


def share(rank, loss, tokens):
    if rank == 0:
        dist.all_reduce(loss)
        dist.all_reduce(tokens)
    else:
        dist.all_reduce(tokens)
        dist.all_reduce(loss)
"""
        },
        "metrics.py:6",
    ),
    bad(
        "Every rank is its own root",
        {
            "share.py": """\
import torch.distributed as dist


def share(weights):
    dist.broadcast(weights, src=dist.get_rank())
    return weights
"""
        },
        "share.py:5",
    ),
    bad(
        "Each side of a test names another root",
        {
            "share.py": """\
import torch.distributed as dist


def share(rank, weights):
    if rank == 0:
        print("sending")
        dist.broadcast(weights, src=0)
    else:
        dist.broadcast(weights, src=1)
"""
        },
        "share.py:7",
    ),
    good(
        "One root, one order",
        {
            "share.py": """\
import torch.distributed as dist


def share(rank, weights, loss):
    if rank == 0:
        print("sharing")
        dist.broadcast(weights, src=0)
        dist.all_reduce(loss)
    else:
        dist.broadcast(weights, src=0)
        dist.all_reduce(loss)
"""
        },
    ),
    good(
        "The rank that holds the tensor sends it",
        {
            "share.py": """\
import torch.distributed as dist


def share(param, held):
    if isinstance(held, int):
        dist.broadcast(param, src=held)
    else:
        param.copy_(held)
        dist.broadcast(param, src=dist.get_rank())
"""
        },
    ),
    good(
        "A parameter names the root",
        {
            "share.py": """\
import torch.distributed as dist


def share(items, rank=0):
    dist.broadcast_object_list(items, src=rank)
    return items
"""
        },
    ),
    good(
        "Each subgroup has a root of its own",
        {
            "share.py": """\
import torch.distributed as dist


def share(weights, group, rank):
    dist.broadcast(weights, src=rank, group=group)
"""
        },
    ),
)
