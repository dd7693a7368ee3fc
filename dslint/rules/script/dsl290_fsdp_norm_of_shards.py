"""Gradients of `FullyShardedDataParallel` are clipped by the norm of one rank's shards.

**What.** `torch.nn.utils.clip_grad_norm_(model.parameters(), ...)`, where `model` is wrapped in
`FullyShardedDataParallel`.

**Why it hurts.** Each rank holds a part of every gradient. The function takes the norm of that part alone, which is
too small, and each rank scales by its own: the gradient is clipped too little and its direction changes. Nothing
raises, and the norm in the log is wrong.

**Fix.** `model.clip_grad_norm_(...)`, the method of the wrapper, on all ranks. The fix writes it where the call passes
the parameters and a norm.

**When it stays quiet.** `fully_shard` (FSDP2), whose parameters are distributed tensors that the function understands;
`NO_SHARD`, or a sharding strategy that is not written out; `clip_grad_value_`, which works on each element; one
process; `accelerator.clip_grad_norm_`.

**Evidence.** Two gloo ranks, torch 2.13, `FULL_SHARD` and `SHARD_GRAD_OP`: norms of 1.39 and 3.75 on the two ranks
where the norm of the gradient is 4.0; with `NO_SHARD` both agree.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix
from dslint.model.script.collective.sharded import SHARDED_STRATEGIES
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL290",
    name="fsdp-norm-of-shards",
    kind="script",
    severity=Severity.ERROR,
    summary="gradients of FSDP are clipped by the norm of the shards of one rank",
    fix="safe",
    markers=(r"clip_grad_norm", r"FullyShardedDataParallel"),
    versions=("torch>=1.12",),
    references=(
        "https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_",
    ),
    depends_on_run=True,
)

_CLIPS = frozenset(
    f"torch.nn.utils.{module}{name}" for module in ("", "clip_grad.") for name in ("clip_grad_norm_", "clip_grad_norm")
)
_TRAIN = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy


def train(net, loader, rank):
    model = FSDP(net, device_id=rank%s)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(batch).mean().backward()
        %s
        optimizer.step()
        optimizer.zero_grad()
"""
_CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"

EXAMPLES = (
    bad(
        "the function of torch",
        {"train.py": _TRAIN % ("", _CLIP)},
        "train.py:11",
        fixed={"train.py": _TRAIN % ("", "model.clip_grad_norm_(1.0)")},
    ),
    bad(
        "with the keyword of the function",
        {
            "train.py": _TRAIN
            % (
                ", sharding_strategy=ShardingStrategy.SHARD_GRAD_OP",
                "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)",
            )
        },
        "train.py:11",
        fixed={
            "train.py": _TRAIN
            % (
                ", sharding_strategy=ShardingStrategy.SHARD_GRAD_OP",
                "norm = model.clip_grad_norm_(max_norm=1.0)",
            )
        },
    ),
    bad(
        "a choice among strategies that shard",
        {
            "train.py": (_TRAIN % (", sharding_strategy=STRATEGIES[rank.sharding]", _CLIP)).replace(
                "\n\n\ndef train",
                "\n\nSTRATEGIES = {'full': ShardingStrategy.FULL_SHARD, 'grad': ShardingStrategy.SHARD_GRAD_OP}"
                "\n\n\ndef train",
            )
        },
        "train.py:13",
        fixed={
            "train.py": (
                _TRAIN % (", sharding_strategy=STRATEGIES[rank.sharding]", "model.clip_grad_norm_(1.0)")
            ).replace(
                "\n\n\ndef train",
                "\n\nSTRATEGIES = {'full': ShardingStrategy.FULL_SHARD, 'grad': ShardingStrategy.SHARD_GRAD_OP}"
                "\n\n\ndef train",
            )
        },
    ),
    good(
        "a choice among strategies, one of which does not shard",
        {
            "train.py": (_TRAIN % (", sharding_strategy=STRATEGIES[rank.sharding]", _CLIP)).replace(
                "\n\n\ndef train",
                "\n\nSTRATEGIES = {'full': ShardingStrategy.FULL_SHARD, 'none': ShardingStrategy.NO_SHARD}"
                "\n\n\ndef train",
            )
        },
    ),
    good("the method of the wrapper", {"train.py": _TRAIN % ("", "model.clip_grad_norm_(1.0)")}),
    good("nothing is sharded", {"train.py": _TRAIN % (", sharding_strategy=ShardingStrategy.NO_SHARD", _CLIP)}),
    good("a strategy that the caller chooses", {"train.py": _TRAIN % (", sharding_strategy=rank.strategy", _CLIP)}),
    good("element by element", {"train.py": _TRAIN % ("", _CLIP.replace("norm_", "value_"))}),
    good("one process", {"train.py": _TRAIN % ("", _CLIP)}, world_size=1),
    good(
        "FSDP2",
        {
            "train.py": """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard


def train(model, loader):
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(batch).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""
        },
    ),
)


def precheck(tree: ast.Module) -> bool:
    """A function clips, and not a method."""
    return any(call_name(call).startswith("clip_grad_norm") for call in flat(tree).nodes(ast.Call))


class Check(ScriptCheck):
    """Looks at the parameters of every clipping call."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when they are certainly the shards of FSDP."""
        if not self.ctx.called(node).startswith("clip_grad_norm") or self.ctx.qualified_name(node.func) not in _CLIPS:
            return
        given = self.ctx.argument(node, "parameters", 0)
        owner = _owner(given)
        if owner is None or self.ctx.kind(owner) != "fsdp" or self.ctx.run.world_size.get_or(0) == 1:
            return
        made = self.ctx.objects.made(owner)
        if made is None or self.ctx.objects.taken(owner) is not None or not self._shards(made):
            return
        text = self.ctx.text(owner)
        self.report(
            node,
            f"`{last_name(node.func)}` takes the norm of the shards of `{text}` on one rank: each rank clips its "
            "part of the gradient by another factor, and too little",
            hint=f"Call `{text}.clip_grad_norm_(...)` on every rank",
            related=(self.ctx.location(made, "sharded here"),),
            fix=self._fix(node, text),
        )

    def _shards(self, made: cst.Call) -> bool:
        """The wrapper shards gradients: by default, or by a strategy that is written out."""
        if any(arg.star for arg in made.args):
            return False
        strategy = self.ctx.argument(made, "sharding_strategy", 2)
        return strategy is None or self._is_sharding(strategy)

    def _is_sharding(self, strategy: cst.BaseExpression) -> bool:
        """One that shards gradients, or a choice among such: `STRATEGIES[args.sharding]`, `A if nodes > 1 else B`."""
        if isinstance(strategy, cst.IfExp):
            return self._is_sharding(strategy.body) and self._is_sharding(strategy.orelse)
        if isinstance(strategy, cst.Subscript):
            table = self.ctx.names.single_value(strategy.value)
            parts = table.elements if isinstance(table, cst.Dict) else ()
            return bool(parts) and all(isinstance(p, cst.DictElement) and self._is_sharding(p.value) for p in parts)
        value = self.ctx.names.single_value(strategy) if isinstance(strategy, cst.Name) else None
        return self._is_sharding(value) if value is not None else last_name(strategy) in SHARDED_STRATEGIES

    def _fix(self, node: cst.Call, text: str) -> Fix | None:
        """`model.clip_grad_norm_(1.0)`, when the other arguments mean the same to the method."""
        rest = node.args[1:]
        names = {arg.keyword.value for arg in rest if arg.keyword is not None}
        plain = node.args[0].keyword is None and not any(arg.star for arg in rest)
        if not (plain and 0 < len(rest) < 3 and names <= {"max_norm", "norm_type"}):
            return None
        start, end = self.ctx.span(rest[0]).start, self.ctx.span(rest[-1]).end
        written = self.ctx.doc.source.text[start:end].rstrip().removesuffix(",")
        edit = Edit(self.ctx.doc.path, self.ctx.span(node), f"{text}.clip_grad_norm_({written})")
        return Fix("Let the wrapper clip", (edit,))


def _owner(given: cst.BaseExpression | None) -> cst.BaseExpression | None:
    """The model of `model.parameters()`."""
    called = given.func if isinstance(given, cst.Call) else None
    return called.value if isinstance(called, cst.Attribute) and called.attr.value == "parameters" else None
