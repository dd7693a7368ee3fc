"""A write to gathered parameters that no rank hands on to the others.

**What.** An assignment or in-place operation on a parameter inside `deepspeed.zero.GatheredParameters(...)`, with
`modifier_rank` missing or `None`; or with a `modifier_rank` that never comes to the write, because it stands behind a
rank test.

**Why it hurts.** At ZeRO stage 3 the gathered copy is thrown away when the context ends, and each rank has its old
part again. The initialisation, the averaged embeddings or the loaded weights are gone, and the training goes on from
what was there before. No error comes, unless the sanity checks of DeepSpeed are on. With `modifier_rank=k` the values
of rank k are broadcast, and those of the other ranks are dropped.

**Fix.** `modifier_rank=0`. The fix adds it; it counts as unsafe where the values are drawn at random on each rank,
since the ranks then continue from one of the draws.

**When it stays quiet.** The body only reads; what is written is not certainly among the gathered parameters
(a `shadow` copy beside the weights); `enabled=False`; the block stands in a `try` that catches `RuntimeError` by name,
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

import libcst as cst

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.script.edits import keyword_edit
from dslint.model.script.quick import call_name, flat
from dslint.model.script.ranks.rankset import Ranks
from dslint.model.script.zero.gathers import MODULE_WRITERS, Gather, Write
from dslint.python.events import Context, Event, Try
from dslint.python.values import Instance
from dslint.python.varies import RANDOM
from dslint.rules import edits
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.plateaus import instances
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.walk import ScriptCheck

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
    good("rank 0 hands on what a helper fills", {"train.py": _HELPER % (3, ", modifier_rank=0"), "inits.py": _FILL}),
    good("a helper at stage 2", {"train.py": _HELPER % (2, ""), "inits.py": _FILL}),
    good(
        "a helper fills other weights",
        {
            "train.py": (_HELPER % (3, "")).replace("[head.weight, head.bias]", "[head.weight]"),
            "inits.py": _FILL,
        },
    ),
    bad(
        "new rows of the embeddings, averaged in a copy that is thrown away",
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


_WRITES = ("initializes", "writes-parameter")


# What the visitor cannot see: writes in helper functions and other files.
def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first write in each block that gathers what is written and hands nothing on."""
    if run.context.is_one_process:
        return
    seen: set[ast.AST] = set()
    for found in run.occurrences(*_WRITES):
        gather = _gather_of(run, found)
        if gather is None or gather.node in seen or found.event.may or not run.stages.at(found).may_be(3):
            continue
        if any(isinstance(node, Try) and _names_the_error(node.node) for node in found.around):
            continue
        written = {
            atom for value in (found.event.receiver, *found.event.arguments.values()) for atom in instances(value)
        }
        gathered = [gather.arguments.get("params"), *gather.items.get("params", ())]
        if written & {atom for value in gathered for atom in instances(value)}:
            seen.add(gather.node)
            yield _lost(run, found.event, gather)


def _names_the_error(block: ast.AST) -> bool:
    """Return whether a `try` catches the RuntimeError of the sanity checks by its name."""
    caught = [handler.type for handler in block.handlers] if isinstance(block, ast.Try) else []
    return any(isinstance(error, ast.Name) and error.id == "RuntimeError" for error in caught)


def _gather_of(run: RunQuery, found: Happening) -> Event | None:
    """Return what made the innermost gathering context around something, where it hands nothing on for certain."""
    blocks = (n for n in reversed(found.around) if isinstance(n, Context) and "gathers-parameters" in n.tags)
    block = next(blocks, None)
    made = block.manager.single if block is not None else None
    maker = run.makers.get(made) if isinstance(made, Instance) else None
    row = run.machine.libraries.class_(maker.api) if maker is not None else None
    if maker is None or maker.open or row is None or row.constructor.extra.get("modifier") != "modifier_rank":
        return None
    modifier, enabled = maker.arguments.get("modifier_rank"), maker.arguments.get("enabled")
    is_plain = (modifier is None or modifier.constants == (None,)) and (enabled is None or enabled.constants == (True,))
    return maker if is_plain else None


def _lost(run: RunQuery, event: Event, gather: Event) -> Finding:
    target = event.nodes.get("tensor", event.node)
    said = "`modifier_rank=None`" if "modifier_rank" in gather.arguments else "no `modifier_rank`"
    call = gather.node
    text = run.text(gather.module, call.func if isinstance(call, ast.Call) else call)
    worlds = run.machine.worlds
    main = worlds.mask(lambda lane: worlds.lanes[lane][0] == 0)
    edit = None
    if isinstance(call, ast.Call) and event.lanes & main == main:
        edit = edits.keyword_edit(gather.module, call, "modifier_rank", "0")
    row = run.machine.libraries.function(event.api)
    is_drawn = row is not None and bool((row.varies or 0) & RANDOM)
    fix = Fix("Keep what rank 0 writes", (edit,), Safety.UNSAFE if is_drawn else Safety.SAFE) if edit else None
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{run.text(event.module, target)}` is written inside `{text}` with {said}: at ZeRO stage 3 the gathered copy "
        "is thrown away when the context ends, and no error says so",
        hint="Pass `modifier_rank=0`, so that the values of rank 0 are broadcast",
        related=(run.location(gather.module, call, "gathers without a modifier rank"),),
        fix=fix,
        facts={"modifier_rank": None, "writer": -1},
    )


def precheck(tree: ast.Module) -> bool:
    """A gathering context is entered or made, and something is written in this file."""
    nodes = flat(tree)
    calls = nodes.nodes(ast.Call)
    if not any(call_name(c) == "GatheredParameters" for c in calls):
        return False
    if any(call_name(c).endswith("_") or call_name(c) in MODULE_WRITERS for c in calls):
        return True
    targets = [t for a in nodes.nodes(ast.Assign) for t in a.targets] + [a.target for a in nodes.nodes(ast.AugAssign)]
    return any(isinstance(t, ast.Subscript | ast.Attribute) for t in targets)


def _catches_runtime_error(handler: cst.ExceptHandler) -> bool:
    return isinstance(handler.type, cst.Name) and handler.type.value == "RuntimeError"


class Check(ScriptCheck):
    """Looks into every gathering block."""

    def visit_With(self, node: cst.With) -> None:
        """Fire on the first write that is lost."""
        gathers = [g for g in self.ctx.zero3.gathers.of_block(node) if self._counts(g)]
        if not gathers or self._expects_the_error(node):
            return
        for write in self.ctx.zero3.gathers.writes(node.body):
            holding = next((g for g in gathers if self.ctx.zero3.gathers.holds(g, write)), None)
            if holding is not None and self._is_innermost(node, write) and self._judge(holding, write):
                return

    def _expects_the_error(self, block: cst.With) -> bool:
        """A `try` of the same function catches the RuntimeError of the sanity checks by its name."""
        for parent in self.ctx.parents(block):
            if isinstance(parent, cst.FunctionDef):
                return False
            if isinstance(parent, cst.Try) and any(_catches_runtime_error(h) for h in parent.handlers):
                return True
        return False

    def _counts(self, gather: Gather) -> bool:
        if gather.enabled is not None and self.ctx.constants.likely(gather.enabled).get_or(True) in (False, None):
            return False
        return self.ctx.zero.at(gather.call).may_be(3) and not self.ctx.has_unpacked_arguments(gather.call)

    def _is_innermost(self, block: cst.With, write: Write) -> bool:
        """No other gather stands between: it may hand the values on."""
        between = (p for p in self.ctx.parents(write.node) if isinstance(p, cst.With))
        for outer in between:
            if outer is block:
                return True
            if any(True for _ in self.ctx.zero3.gathers.of_block(outer)):
                return False
        return False

    def _judge(self, gather: Gather, write: Write) -> bool:
        if not self.ctx.zero.at(write.node).may_be(3):
            return False
        modifier = known_rank = None
        if gather.modifier is not None:
            modifier = self.ctx.constant(gather.modifier)
            if not modifier.is_known:
                return False
            known_rank = modifier.value
        guard = self.ctx.guard(write.node)
        if known_rank is None:
            self._report_lost(gather, write, guard is None or guard.ranks is Ranks.MAIN)
            return True
        if guard is None or known_rank != 0 or guard.ranks is not Ranks.OTHERS:
            return False
        self.report(
            write.node,
            f"`{self.ctx.text(gather.call.func)}` keeps what rank 0 writes (`modifier_rank=0`), and rank 0 does not "
            "come to this write: at ZeRO stage 3 it is lost when the context ends, without an error",
            hint="Write on every rank, or on the rank that `modifier_rank` names",
            related=(self.ctx.location(gather.call, "keeps the values of rank 0"),),
            facts={"modifier_rank": 0, "writer": 1},
        )
        return True

    def _report_lost(self, gather: Gather, write: Write, rank_0_writes: bool) -> None:
        said = "`modifier_rank=None`" if gather.modifier is not None else "no `modifier_rank`"
        edit = keyword_edit(self.ctx.doc, gather.call, "modifier_rank", "0") if rank_0_writes else None
        safety = Safety.UNSAFE if write.is_random else Safety.SAFE
        self.report(
            write.node,
            f"`{self.ctx.text(write.target)}` is written inside `{self.ctx.text(gather.call.func)}` with {said}: at "
            "ZeRO stage 3 the gathered copy is thrown away when the context ends, and no error says so",
            hint="Pass `modifier_rank=0`, so that the values of rank 0 are broadcast",
            related=(self.ctx.location(gather.call, "gathers without a modifier rank"),),
            fix=Fix("Keep what rank 0 writes", (edit,), safety) if edit is not None else None,
            facts={"modifier_rank": None, "writer": -1},
        )
