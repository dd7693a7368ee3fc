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
from collections.abc import Iterator, Mapping

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.python.events import Event
from dslint.python.values import Api, Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import parameter_owners
from dslint.rules.zero.stagetests import value_behind

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
# The functions that take the norm of what they get.
_CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_norm")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on a norm of parameters that are certainly the shards of FSDP."""
    if run.context.world_size.get_or(0) == 1:
        return
    asked = parameter_owners(run)
    for found in run.happenings("clip-grad"):
        event = found.event
        if event.api not in _CLIPS:
            continue
        call = _parameters(event, asked)
        owners = asked.get(call, []) if call is not None else []
        made = _wrapper(run, owners)
        if call is None or made is None or not _shards(run, made):
            continue
        text = run.text(event.module, call.func.value) if isinstance(call.func, ast.Attribute) else "model"
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{event.api.rpartition('.')[2]}` sees only this rank's shards of `{text}`: each rank clips by another "
            "factor, and too little",
            hint=f"Call `{text}.clip_grad_norm_(...)` on every rank",
            related=(run.location(made.module, made.node, "sharded here"),),
            fix=_fix(run, event, call, text),
        )


def _parameters(event: Event, asked: Mapping[ast.AST, list[Instance]]) -> ast.Call | None:
    """Return the only call of `parameters()` that gives what is clipped."""
    node = event.nodes.get("parameters")
    if not isinstance(node, ast.expr):
        return None
    behind = value_behind(event.module, node) or node
    calls = [part for part in ast.walk(behind) if isinstance(part, ast.Call) and part in asked]
    if not calls:  # the list was made elsewhere
        value = event.arguments.get("parameters")
        calls = [atom.node for atom in instances(value) if isinstance(atom.node, ast.Call) and atom.node in asked]
    return calls[0] if len(calls) == 1 else None


def _wrapper(run: RunQuery, owners: list[Instance]) -> Event | None:
    """Return the call that has made the FSDP model that all of these are."""
    libraries = run.machine.libraries
    makers = [
        next((e for e in [run.makers.get(atom)] if e is not None and libraries.is_class(e.api, "fsdp")), None)
        for atom in owners
    ]
    return makers[0] if makers and all(maker is makers[0] for maker in makers) else None


def _shards(run: RunQuery, made: Event) -> bool:
    """The wrapper shards gradients: by default, or by a strategy that is certainly one that does."""
    strategy = made.arguments.get("sharding_strategy")
    if strategy is None or strategy.constants == (None,):
        return not made.open
    rows = [run.machine.libraries.value(atom.path) if isinstance(atom, Api) else None for atom in strategy.atoms]
    return all(row is not None and "divides-model" in row.tags for row in rows)


def _fix(run: RunQuery, event: Event, call: ast.Call, text: str) -> Fix | None:
    """`model.clip_grad_norm_(1.0)`, when the other arguments mean the same to the method."""
    node, module = event.node, event.module
    if not isinstance(node, ast.Call) or not node.args or node.args[0] is not call or module.path != run.path:
        return None
    rest = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
    names = {keyword.arg for keyword in node.keywords}
    if not 0 < len(rest) < 3 or not names <= {"max_norm", "norm_type"} or isinstance(rest[0], ast.Starred):
        return None
    first = node.keywords[0] if len(node.args) == 1 else rest[0]
    start, end = module.span(first).start, module.span(rest[-1]).end
    edit = Edit(run.path, module.span(node), f"{text}.clip_grad_norm_({module.source.text[start:end]})")
    return Fix("Let the wrapper clip", (edit,))


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
