"""A plain `GradScaler` steps the optimizer of a model in FSDP.

**What.** `torch.amp.GradScaler` (or `torch.cuda.amp.GradScaler`) is used for `unscale_` or `step` with a model that
`FullyShardedDataParallel` has wrapped.

**Why it hurts.** Each rank of FSDP holds other shards of the gradients. An overflow is seen by the rank alone whose
shard has it: it leaves its step out and halves its scale, and the others make theirs. From then on the shards of one
model belong to different steps, and the losses of the ranks are scaled differently. Nothing raises.

**Fix.** `from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler`, which asks all ranks whether one of
them has found an overflow. With bfloat16 no scaler is needed.

**When it stays quiet.** `ShardedGradScaler`; a scaler with `enabled=False`; models of `fully_shard`, whose gradients
are distributed tensors that ask all ranks; `NO_SHARD`; a script that wraps a model in other ways as well.

**Evidence.** Two gloo ranks, torch 2.13: the gradient of rank 0 overflows; with `GradScaler` rank 1 makes its step,
with `ShardedGradScaler` none does.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL613",
    name="plain-scaler-under-fsdp",
    kind="script",
    severity=Severity.WARNING,
    summary="`GradScaler` sees the overflow of one shard only, and the ranks of FSDP part",
    markers=(r"GradScaler", r"FSDP|FullyShardedDataParallel"),
    references=(
        "https://github.com/pytorch/pytorch/issues/64632",
        "torch/distributed/fsdp/sharded_grad_scaler.py",
    ),
    depends_on_run=True,
)
_FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"
_PLAIN = ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where a plain scaler is made that steps the optimizer of a model in FSDP."""
    wrapped = [found.event for found in run.happenings("wraps-model", "makes-engine", "prepares")]
    sharded = [event for event in wrapped if event.api == _FSDP and _is_divided(event)]
    if run.context.is_one_process or not sharded or any(event.api != _FSDP for event in wrapped):
        return
    seen: set[int] = set()
    for found in run.happenings("scaler-step", "unscales"):
        for atom in instances(found.event.receiver):
            made = run.makers.get(atom)
            if made is None or made.api not in _PLAIN or id(made.node) in seen or _is_off(made):
                continue
            seen.add(id(made.node))
            first = sharded[0]
            yield run.finding(
                META,
                made.module,
                made.node,
                "`GradScaler` sees only its rank's shard: a rank that overflows skips its step while the others step",
                hint="Use `torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler`",
                related=(
                    run.location(first.module, first.node, "the model is divided over the ranks"),
                    run.location(found.event.module, found.event.node, "the step that this rank may skip"),
                ),
                facts={"scaler": "plain"},
            )


def _is_divided(event: Event) -> bool:
    """Return whether FSDP certainly divides the gradients."""
    strategy = event.nodes.get("sharding_strategy")
    return not event.open and (strategy is None or "NO_SHARD" not in event.module.text(strategy))


def _is_off(made: Event) -> bool:
    """Return whether a scaler may do nothing."""
    enabled = made.arguments.get("enabled")
    return made.open or (enabled is not None and enabled.constants != (True,))


_TRAIN = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def train(model, loader):
    model = FSDP(model%s)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = %s
    for batch in loader:
        scaler.scale(model(batch).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
"""
_SCALER = """\
from torch.cuda.amp import GradScaler


class Precision:
    def __init__(self):
        self.scaler = GradScaler(init_scale=2.0**14)

    def step(self, loss, optimizer):
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(optimizer)
        self.scaler.step(optimizer)
        self.scaler.update()
"""
_MAIN = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel

from precision import Precision


def main(model, loader):
    model = FullyShardedDataParallel(model)
    optimizer, precision = torch.optim.AdamW(model.parameters()), Precision()
    for batch in loader:
        precision.step(model(batch).mean(), optimizer)
"""

EXAMPLES = (
    bad("The scaler of one process", {"train.py": _TRAIN % ("", 'torch.amp.GradScaler("cuda")')}, "train.py:10"),
    bad("The scaler is in a class of another file", {"train.py": _MAIN, "precision.py": _SCALER}, "precision.py:6"),
    good("The scaler of FSDP", {"train.py": _TRAIN % ("", "ShardedGradScaler()")}),
    good("It does nothing", {"train.py": _TRAIN % ("", 'torch.amp.GradScaler("cuda", enabled=False)')}),
    good(
        "Nothing is divided",
        {"train.py": _TRAIN % (", sharding_strategy=ShardingStrategy.NO_SHARD", 'torch.amp.GradScaler("cuda")')},
    ),
)
