"""The loss is computed in float16 and its gradients are not scaled: no `GradScaler` anywhere.

**What.** The forward pass of a training step runs in `torch.autocast("cuda", dtype=torch.float16)`, in
`torch.cuda.amp.autocast()`, whose type is float16 where none is given, or in FSDP with
`MixedPrecision(param_dtype=torch.float16)`, and then plain `loss.backward()` and `optimizer.step()` follow. Also where
an option chooses among several types.

**Why it hurts.** float16 has no numbers below 6e-8: small gradients become 0, large ones `inf`, and a single `inf`
makes all weights NaN on every rank. The run trains worse than in bfloat16 or float32, or ends with a loss of NaN.

**Fix.** `scaler = torch.amp.GradScaler("cuda")` (`ShardedGradScaler` with FSDP) with `scaler.scale(loss).backward()`,
`scaler.step(optimizer)` and `scaler.update()`; or bfloat16, which needs no scaler.

**When it stays quiet.** The project has a scaler, a loss scale, or a library that scales (accelerate, DeepSpeed, apex,
Lightning); another type; a type that nobody knows; blocks without gradients, and blocks in which no loss is computed.

**Evidence.** PyTorch, "Automatic Mixed Precision": gradients of float16 may underflow, and `GradScaler` prevents it;
`torch.finfo(torch.float16).smallest_normal` is 6.1e-05.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Context, Event, Loop
from dslint.python.queries.skipped import is_frozen
from dslint.python.source import Module
from dslint.python.values import Api, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL728",
    name="half-precision-without-scaler",
    kind="script",
    severity=Severity.WARNING,
    summary="the loss is computed in float16 and nothing scales its gradients",
    markers=(r"backward\(", r"autocast|MixedPrecision|float16"),
    references=("https://pytorch.org/docs/stable/amp.html#gradient-scaling",),
    depends_on_run=True,
    no_experiment="whether gradients underflow depends on the model and the data, on one rank as on several",
)
_HALVES = frozenset({"torch.float16", "torch.half"})
_CUDA = re.compile(r"cuda(?::\d+)?")
# Who writes one of these scales gradients, or has a library that does.
_SCALES = re.compile(
    r"(?i)scaler|loss_scale|scale_loss|apex[^\n]{0,30}\bamp\b|amp\.initialize|deepspeed|accelerat|lightning|\bfabric\b|colossalai|bmtrain|"
    r"Trainer\b.{0,40}import|import.{0,80}\bTrainer\b|fp16_optimizer|OptimWrapper"
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each block in float16 whose loss runs a plain backward pass."""
    if not run.has("lowers-precision") or any(m.search(_SCALES) for m in run.machine.program.modules()):
        return
    steps = [h for h in run.occurrences("optimizer-step") if "scaler-step" not in h.event.tags]
    forwards = list(run.occurrences("ddp-forward"))
    seen: set[int] = set()
    for backward in run.occurrences("backward"):
        loops = [node for node in backward.around if isinstance(node, Loop)]
        loop = loops[-1] if loops else None
        if loop is None or not any(loops[0] in step.around or loop in step.around for step in steps):
            continue
        for made, is_only in (*_blocks(run, backward, loop, forwards), *_sharded(run, backward)):
            sure = _is_half(made)
            if sure is not None and not {id(made.node), id(backward.event.node)} & seen:
                seen |= {id(made.node), id(backward.event.node)}
                yield _finding(run, made, backward.event, sure and is_only)


def _blocks(run: RunQuery, backward: Happening, loop: Loop, forwards: list[Happening]) -> Iterator[tuple[Event, bool]]:
    """Yield what made the blocks in which the loss is computed."""
    models = {atom for _, _, made_by in backward.event.snapshot.values() for atom in made_by}
    whole = [f for f in forwards if loop in f.around and models & set(instances(f.event.receiver))]
    for block, around in run.blocks():
        if loop in around and not any(map(is_frozen, around)):
            is_around = any(block in found.around and not any(map(is_frozen, found.around)) for found in whole)
            if is_around or _computes(block, backward.event):
                yield from _makers(run, block.manager)


def _makers(run: RunQuery, value: Value | None) -> Iterator[tuple[Event, bool]]:
    """Yield what made a context manager or a setting, and whether it is the only one."""
    is_only = value is not None and value.single is not None
    made = (run.makers.get(atom) for atom in instances(value))
    yield from ((event, is_only) for event in made if event is not None and "lowers-precision" in event.tags)


def _computes(block: Context, backward: Event) -> bool:
    """Return whether a block gives its value to the name of which the same function runs the backward pass."""
    around = function_around(backward.module, backward.node)
    if block.module is not backward.module or function_around(block.module, block.node) is not around:
        return False
    called = backward.node.func if isinstance(backward.node, ast.Call) else None
    loss = _root(called.value) if isinstance(called, ast.Attribute) else ""
    inside = next((n for n in _withs(block.module) if any(block.node is i.context_expr for i in n.items)), None)
    if not loss or inside is None or around is None:
        return False
    made = {ast.unparse(n) for n in ast.walk(inside) if _is_stored(n)}
    given = [n for n in ast.walk(around) if isinstance(n, ast.Assign) and n.lineno > inside.lineno]
    for each in given:  # what is computed of it
        if any(ast.unparse(n) in made for n in ast.walk(each.value) if isinstance(n, ast.Name | ast.Attribute)):
            made |= {ast.unparse(n) for target in each.targets for n in ast.walk(target) if _is_stored(n)}
    return loss in made


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)


def _withs(module: Module) -> Iterator[ast.With]:
    yield from (node for node in module.nodes_of(ast.With) if isinstance(node, ast.With))


def _root(node: ast.expr) -> str:
    """Return the name in `(loss / steps)` and `loss.mean()`."""
    while True:
        if isinstance(node, ast.BinOp):
            node = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _sharded(run: RunQuery, backward: Happening) -> Iterator[tuple[Event, bool]]:
    """Yield the precision of models in FSDP that a loss comes from."""
    models = {atom for _, _, made_by in backward.event.snapshot.values() for atom in made_by}
    for found in run.happenings("wraps-model"):
        if models & set(instances(found.event.result)):
            yield from _makers(run, found.event.arguments.get("mixed_precision"))


def _is_half(made: Event) -> bool | None:
    """Return whether the type is float16, always or by what an option chooses (`False`); `None` where it is not."""
    enabled = made.arguments.get("enabled")
    if made.open or (enabled is not None and enabled.constants == (False,)):
        return None
    given = made.arguments.get("dtype", made.arguments.get("param_dtype"))
    if given is None or given.constants == (None,):
        if made.api.endswith("MixedPrecision"):
            return None
        device = made.arguments.get("device_type")
        names = device.constants if device is not None else None
        is_cuda = names is not None and all(isinstance(n, str) and _CUDA.fullmatch(n) for n in names)
        return True if made.api == "torch.cuda.amp.autocast" or is_cuda else None
    halves = [isinstance(atom, Api) and atom.path in _HALVES for atom in given.atoms]
    return all(halves) if any(halves) else None


def _finding(run: RunQuery, made: Event, backward: Event, sure: bool) -> Finding:
    when = "" if sure else " where an option chooses float16"
    return run.finding(
        META,
        made.module,
        made.node,
        f"the loss is computed in float16 here, unscaled by any `GradScaler`{when}: gradients underflow or overflow",
        hint="Scale the loss by `torch.amp.GradScaler` (`ShardedGradScaler` with FSDP), or use bfloat16",
        related=(run.location(backward.module, backward.node, "the backward pass without a scale"),),
    )


_TRAIN = """\
import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def compute(model, batch):
    return torch.load("compute.pt")(model, batch)


def step(model, batch):
    with torch.autocast("cuda", dtype=torch.float16):
        return model(batch).mean()


def main(loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", default="bf16", choices=["bf16", "fp16", "fp32"])
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = DDP(torch.nn.Linear(8, 8).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        optimizer.zero_grad()
        %s
        %s
        optimizer.step()
    print(args.amp, args.precision)


main(torch.load("data.pt"))
"""
_IN = "with %s:\n            loss = model(batch).mean()"
_CHOSEN = (
    'with {"bf16": torch.autocast("cuda", dtype=torch.bfloat16), "fp16": torch.autocast("cuda", dtype=torch.float16),'
    ' "fp32": contextlib.nullcontext()}[args.precision]:\n            loss = model(batch).mean()'
)
_TYPES = (
    'dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[args.precision]\n        '
    'with torch.autocast("cuda", dtype=dtype):\n            loss = model(batch).mean()'
)
_PARTS = (
    'with torch.autocast("cuda", dtype=torch.float16):\n            losses = compute(model, batch)\n        '
    'loss = losses["loss"].sum() / 4'
)
_FROZEN = (
    "with torch.no_grad(), torch.cuda.amp.autocast():\n            target = model(batch)\n        "
    "loss = (model(batch) - target).square().mean()"
)
_SHARDED = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


def main(loader):
    torch.distributed.init_process_group("nccl")
    model = FSDP(torch.nn.Linear(8, 8), mixed_precision=MixedPrecision(param_dtype=torch.%s))
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


main(torch.load("data.pt"))
"""
_PLAIN = "loss.backward()"


def _case(forward: str, backward: str = _PLAIN) -> dict[str, str]:
    return {"train.py": _TRAIN % (forward, backward)}


EXAMPLES = (
    bad("the type that CUDA takes", _case(_IN % "torch.cuda.amp.autocast()"), "train.py:30"),
    bad("a type that is given", _case(_IN % 'torch.autocast("cuda", torch.float16)'), "train.py:30"),
    bad(
        "an option switches it on, and the loss is divided",
        _case(_IN % "torch.cuda.amp.autocast(enabled=args.amp)", "(loss / 4).backward()"),
        "train.py:30",
    ),
    bad("an option chooses the block", _case(_CHOSEN), "train.py:30"),
    bad("an option chooses the type", _case(_TYPES), "train.py:31"),
    bad("in a function that gives the loss", _case("loss = step(model, batch)"), "train.py:15"),
    bad("what the block gives is added up", _case(_PARTS), "train.py:30"),
    bad("in FSDP", {"train.py": _SHARDED % "float16"}, "train.py:8"),
    good("bfloat16 in FSDP", {"train.py": _SHARDED % "bfloat16"}),
    good("bfloat16", _case(_IN % 'torch.autocast("cuda", dtype=torch.bfloat16)')),
    good("a CPU", _case(_IN % 'torch.autocast("cpu")')),
    good("nobody knows the device", _case(_IN % "torch.autocast(args.precision)")),
    good("it is off", _case(_IN % "torch.cuda.amp.autocast(enabled=False)")),
    good("a target without gradients", _case(_FROZEN)),
    good(
        "a scaler",
        {
            "train.py": (_TRAIN % (_IN % "torch.cuda.amp.autocast()", "scaler.scale(loss).backward()"))
            .replace("    for batch", '    scaler = torch.amp.GradScaler("cuda")\n    for batch')
            .replace("optimizer.step()", "scaler.step(optimizer)\n        scaler.update()")
        },
    ),
)
