"""A write to gathered parameters that no rank passes on to the others.

**What.** An assignment or in-place operation on a parameter inside `deepspeed.zero.GatheredParameters(...)`, with
`modifier_rank` missing or `None`; or with a `modifier_rank` that never comes to the write, because it is under a
rank test.

**Why it hurts.** At ZeRO stage 3 the gathered copy is discarded when the context ends, and each rank has its old
part again. The initialisation, the averaged embeddings or the loaded weights are gone, and the training continues from
what was there before. No error comes, unless the sanity checks of DeepSpeed are on. With `modifier_rank=k` the values
of rank k are broadcast, and those of the other ranks are dropped.

**Fix.** `modifier_rank=0`. The fix adds it; it counts as unsafe where the values are drawn at random on each rank,
since the ranks then continue from one of the draws.

**When it stays quiet.** The body only reads; what is written is not certainly among the gathered parameters
(a `shadow` copy beside the weights); `enabled=False`; the block is in a `try` that catches `RuntimeError` by name,
as a test of the sanity checks does; the run is known to be at a stage below 3, where nothing is
gathered and the write stays.

**Evidence.** Two gloo ranks at stage 3: a weight filled with 7.0 has its old value after the context on both ranks;
with `modifier_rank=0` it is 7.0 everywhere; with `modifier_rank=0` and a write on rank 1 only the old value stays. At
stage 2 the write stays. `GatheredParameters._exit` of DeepSpeed 0.19.8: without a source rank it partitions with
`has_been_updated=False`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.python.events import Context, Event, Try
from dslint.python.values import Instance, Value
from dslint.python.varies import RANDOM
from dslint.rules import edits
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.wrapping.holders import Holders

META = RuleMeta(
    code="DSL211",
    name="gathered-write-without-modifier-rank",
    kind="script",
    severity=Severity.ERROR,
    summary="what is written inside `GatheredParameters` is lost, since no `modifier_rank` hands it on",
    fix="safe",
    markers=(r"GatheredParameters",),
    references=(
        "https://deepspeed.readthedocs.io/en/latest/zero3.html#deepspeed.zero.GatheredParameters",
        "GatheredParameters in deepspeed/runtime/zero/partition_parameters.py",
    ),
    depends_on_run=True,
)

_RESIZE = """\
import deepspeed
import torch


def average_new_rows(model, added):
    embeddings = model.get_input_embeddings()
    with deepspeed.zero.GatheredParameters([embeddings.weight]%s):
        rows = embeddings.weight.data
        rows[-added:] = rows[:-added].mean(dim=0, keepdim=True)
"""
_HELPER = """\
import deepspeed
from torch import nn

from inits import fill

CONFIG = {"train_batch_size": 8, "zero_optimization": {"stage": %d}}


def main():
    with deepspeed.zero.Init(config_dict_or_path=CONFIG):
        head = nn.Linear(1024, 1024)
    weights = [head.weight, head.bias]
    with deepspeed.zero.GatheredParameters(weights%s):
        fill(head)


main()
"""
_FILL = """\
from torch import nn


def fill(layer):
    nn.init.zeros_(layer.bias)
"""
_RANK_1 = """\
import deepspeed
import torch.distributed as dist


def scale(head):
    with deepspeed.zero.GatheredParameters(head.weight, modifier_rank=0):
        if dist.get_rank() != 0:
            head.weight.data.mul_(0.5)
"""

EXAMPLES = (
    bad(
        "a helper of another file fills the weights",
        {"train.py": _HELPER % (3, ""), "inits.py": _FILL},
        at="inits.py:5 error",
        fixed={"train.py": _HELPER % (3, ", modifier_rank=0")},
    ),
    good("rank 0 passes on what a helper fills", {"train.py": _HELPER % (3, ", modifier_rank=0"), "inits.py": _FILL}),
    good("a helper at stage 2", {"train.py": _HELPER % (2, ""), "inits.py": _FILL}),
    good(
        "a helper fills other weights",
        {
            "train.py": (_HELPER % (3, "")).replace("[head.weight, head.bias]", "[head.weight]"),
            "inits.py": _FILL,
        },
    ),
    bad(
        "new rows of the embeddings, averaged in a copy that is discarded",
        {"resize.py": _RESIZE % ""},
        at="resize.py:9 error",
        fixed={"resize.py": _RESIZE % ", modifier_rank=0"},
    ),
    bad(
        "`modifier_rank=None` and an initialisation at random, where the file says stage 3",
        {
            "init.py": """\
import deepspeed
import torch
from torch import nn

CONFIG = {"train_batch_size": 8, "zero_optimization": {"stage": 3}}

with deepspeed.zero.Init(config_dict_or_path=CONFIG):
    head = nn.Linear(1024, 1024)
params = [head.weight, head.bias]
with deepspeed.zero.GatheredParameters(params, modifier_rank=None):
    nn.init.normal_(head.weight, std=0.02)
"""
        },
        at="init.py:11",
    ),
    bad(
        "every parameter of a model, in a context that stage 3 alone enters",
        {
            "merge.py": """\
import contextlib

from deepspeed import zero
from transformers.integrations import is_deepspeed_zero3_enabled


def merge(model, other, weight):
    context = zero.GatheredParameters(list(model.parameters())) if is_deepspeed_zero3_enabled() else None
    with context or contextlib.nullcontext():
        pass
    with zero.GatheredParameters(model.parameters()):
        for mine, theirs in zip(model.parameters(), other):
            theirs.copy_(mine)
        for parameter in model.parameters():
            parameter.data.mul_(weight)
"""
        },
        at="merge.py:15",
    ),
    bad("the rank whose values are kept does not write", {"scale.py": _RANK_1}, at="scale.py:8"),
    good("rank 0 hands its values on", {"resize.py": _RESIZE % ", modifier_rank=0"}),
    good(
        "rank 0 alone writes, and its values are kept",
        {"scale.py": _RANK_1.replace("!= 0", "== 0")},
    ),
    good(
        "the gathered weights are read, a copy of them is written",
        {
            "ema.py": """\
import deepspeed


def update(model, shadow, decay):
    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=None):
            shadow[name].mul_(decay).add_(parameter.data, alpha=1 - decay)
            norm = parameter.detach().clone().div_(2).norm()
    return norm
"""
        },
    ),
    good(
        "the run is at stage 2: nothing is gathered, and the write stays",
        {"train.py": 'CONFIG = {"train_batch_size": 8, "zero_optimization": {"stage": 2}}\n' + _RESIZE % ""},
    ),
    good(
        "a context that is switched off",
        {
            "load.py": """\
import deepspeed


def load(layer, values):
    with deepspeed.zero.GatheredParameters([layer.weight], enabled=False):
        layer.weight.data.copy_(values)
"""
        },
    ),
    good(
        "a test of the sanity checks: the error that they raise is caught",
        {
            "test_checks.py": """\
import deepspeed


def raises(model):
    try:
        with deepspeed.zero.GatheredParameters([model.head.weight], modifier_rank=None):
            model.head.weight.add_(1.0)
    except RuntimeError as error:
        return "in-place modification" in str(error)
    return False
"""
        },
    ),
)


_WRITES = ("initializes", "writes-parameter", "writes-tensor", "writes-item", "loads-state-dict")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first write in each block that gathers what is written and does not hand it on."""
    if run.context.is_one_process or not run.has("gathers-parameters"):
        return
    holders = Holders(run)
    seen: set[ast.AST] = set()
    for found in run.occurrences(*_WRITES):
        gather = _gather_of(run, found)
        if gather is None or gather.node in seen or found.event.may or not run.stages.at(found).may_be(3):
            continue
        if any(isinstance(node, Try) and _names_the_error(node.node) for node in found.around):
            continue
        told = _told(run, found.event, gather)
        gathered = [gather.arguments.get("params"), *gather.items.get("params", ())]
        if told is not None and holders.shares(_written(found.event), gathered):
            seen.add(gather.node)
            yield told


def _written(event: Event) -> Value | None:
    return event.arguments.get("tensor") if "initializes" in event.tags else event.receiver


def _told(run: RunQuery, event: Event, gather: Event) -> Finding | None:
    """Return the finding about a write, unless the values of a rank that writes are kept."""
    main = run.machine.worlds.main
    modifier = gather.arguments.get("modifier_rank")
    if modifier is None or modifier.constants == (None,):
        return _lost(run, event, gather, is_by_main=event.lanes & main == main)
    return _left_out(run, event, gather) if modifier.constants == (0,) and not event.lanes & main else None


def _names_the_error(block: ast.AST) -> bool:
    """Return whether a `try` catches the RuntimeError of the sanity checks by its name."""
    caught = [handler.type for handler in block.handlers] if isinstance(block, ast.Try) else []
    return any(isinstance(error, ast.Name) and error.id == "RuntimeError" for error in caught)


def _gather_of(run: RunQuery, found: Happening) -> Event | None:
    """Return what made the innermost gathering context around something, where that gathers for all that is known."""
    blocks = (n for n in reversed(found.around) if isinstance(n, Context) and "gathers-parameters" in n.tags)
    block = next(blocks, None)
    made = block.manager.single if block is not None else None
    maker = run.makers.get(made) if isinstance(made, Instance) else None
    row = run.machine.libraries.class_(maker.api) if maker is not None else None
    if maker is None or maker.open or row is None or row.constructor.extra.get("modifier") != "modifier_rank":
        return None
    enabled = maker.arguments.get("enabled")
    return maker if enabled is None or not {False, None} & set(run.likely(enabled) or ()) else None


def _left_out(run: RunQuery, event: Event, gather: Event) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        f"rank 0 skips this write, and `{_maker(run, gather)}` keeps only rank 0's values: it is lost at ZeRO stage 3",
        hint="Write on every rank, or on the rank that `modifier_rank` names",
        related=(run.location(gather.module, gather.node, "keeps the values of rank 0"),),
        facts={"modifier_rank": 0, "writer": 1},
    )


def _maker(run: RunQuery, gather: Event) -> str:
    call = gather.node
    return run.text(gather.module, call.func if isinstance(call, ast.Call) else call)


def _lost(run: RunQuery, event: Event, gather: Event, is_by_main: bool) -> Finding:
    said = "`modifier_rank=None`" if "modifier_rank" in gather.arguments else "no `modifier_rank`"
    call = gather.node
    edit = None
    if isinstance(call, ast.Call) and is_by_main:
        edit = edits.keyword_edit(gather.module, call, "modifier_rank", "0")
    fix = Fix("Keep what rank 0 writes", (edit,), _safety(run, event)) if edit else None
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{_target(run, event)}` is written in `GatheredParameters` with {said}: at ZeRO stage 3 the write is"
        " silently lost",
        hint="Pass `modifier_rank=0`, so that the values of rank 0 are broadcast",
        related=(run.location(gather.module, call, "gathers without a modifier rank"),),
        fix=fix,
        facts={"modifier_rank": None, "writer": -1},
    )


def _safety(run: RunQuery, event: Event) -> Safety:
    """Return how safe it is to keep what rank 0 writes: numbers drawn at random are others than before."""
    name = event.api.rpartition(".")[2]
    row = run.machine.libraries.function(event.api) or run.machine.libraries.method("torch.Tensor", name)
    return Safety.UNSAFE if row is not None and (row.varies or 0) & RANDOM else Safety.SAFE


def _target(run: RunQuery, event: Event) -> str:
    """Return the text of the tensor that is written, without its `.data` and its rows."""
    node = event.nodes.get("tensor", event.node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
        node = node.value
    return run.text(event.module, node)
