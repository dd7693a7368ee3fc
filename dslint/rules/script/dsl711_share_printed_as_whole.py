"""The main process prints as the result what it has summed over its own share of the samples.

**What.** A script evaluates a loader that gives each rank a share (a `DistributedSampler`, or a loader that accelerate
prepared). A loop adds up a loss, an error or hits, and the main process alone prints or logs the mean. Nothing puts
this number together over the ranks.

**Why it hurts.** The number is that of the samples of rank 0, on eight GPUs of an eighth of the data. It is noisier
than the figure of the whole set, and it changes with the number of GPUs.
Nothing fails, and with one process the same script is right.

**Fix.** Sum what is counted over the ranks before: `dist.all_reduce(counts)`, `accelerator.reduce(...)`; or compute it
from what `accelerator.gather_for_metrics(...)` gave in the loop.

**When it stays quiet.** The number was reduced or gathered; every rank prints its own; the script trains: there such
numbers are for a look; samples that are printed, and no sum; a loader of which nobody knows that it is divided; one
process.

**Evidence.** Two gloo ranks, a `DistributedSampler` over ten samples with errors 0 to 9: rank 0 prints a mean of 4.0,
that of all samples is 4.5; reduced before, 4.5 is printed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop, events
from dslint.python.varies import DATA, HOST, LOST, NAMED_DATA, RANDOM, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.dividedloaders import divided_loaders
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL711",
    name="share-printed-as-whole",
    kind="script",
    severity=Severity.WARNING,
    summary="the main process prints as the result what it has summed over its own share of the samples",
    markers=(r"torch|accelerat|deepspeed", r"DistributedSampler|\.prepare\(", r"print|log|write|add_scalar"),
    references=("https://huggingface.co/docs/accelerate/quicktour#distributed-evaluation",),
    depends_on_run=True,
)
_TRAINS = ("backward", "engine-backward", "trainer-train", "engine-step", "optimizer-step")
_FORWARDS = frozenset({"forward", "ddp-forward", "fsdp-forward", "engine-forward", "generate"})
# What makes one figure of many.
_FOLDS = re.compile(r"/|\bmean\(|\baverage\(|\.avg\b|\bglobal_avg\b|\bsum\(")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first number of each loop over a share that the main process alone tells."""
    if run.context.is_one_process or run.has(*_TRAINS):
        return
    divided = divided_loaders(run)
    loops = list(_loops(run, divided)) if divided else []
    told: set[int] = set()
    for found in run.happenings("logs", "tracker") if loops else ():
        event = found.event
        if event.lanes != run.machine.worlds.main or event.may or found.entry.kind != "script":
            continue
        for expression in _own_parts(event, divided):
            pieces = [piece for _, piece in run.derived.of(event.module, [expression]) or ()]
            loop = next((loop for loop in loops if _is_figure(pieces, loop) and loop not in found.around), None)
            if loop is not None and id(loop.node) not in told:
                told.add(id(loop.node))
                yield _finding(run, found, loop)


def _loops(run: RunQuery, divided: dict[int, Event]) -> Iterator[Loop]:
    """Yield the loops over shares in which a model runs and no rank waits for others."""
    for loop, _, _ in run.loops():
        if any(id(node) in divided for node in loop.items) and isinstance(loop.node, ast.For):
            inside = [event.tags for event in events(loop.body)]
            if any(tags & _FORWARDS for tags in inside):
                yield loop


def _own_parts(event: Event, divided: dict[int, Event]) -> Iterator[ast.expr]:
    """Yield the arguments that differ by each rank's data alone, as far as is known by those of a divided loader."""
    for name, (causes, _, _) in event.snapshot.items():
        origin, node = event.origins.get(name), event.nodes.get(name) or _starred(event, name)
        is_own = causes & DATA and not causes & (LOST | HOST | RANDOM | RANKED | NAMED_DATA)
        if is_own and node is not None and (origin is None or id(origin[1]) in divided):
            yield node


def _starred(event: Event, name: str) -> ast.expr | None:
    """Return the argument that is the n-th of the star arguments of a call: `*0`."""
    given = event.node.args if isinstance(event.node, ast.Call) else []
    named = {id(node) for node in event.nodes.values()}
    rest = [node for node in given if id(node) not in named]
    return rest[int(name[1:])] if name[1:].isdigit() and int(name[1:]) < len(rest) else None


def _is_figure(pieces: list[ast.expr | ast.stmt], loop: Loop) -> bool:
    """Return whether code is made of what the loop has added up, and folds it to one number."""
    added = {name for part in ast.walk(loop.node) if (name := _added(part))}
    named = {ast.unparse(n) for piece in pieces for n in ast.walk(piece) if isinstance(n, ast.Name | ast.Attribute)}
    return bool(added & named) and any(_FOLDS.search(ast.unparse(piece)) for piece in pieces)


def _added(node: ast.AST) -> str:
    """Return the variable to which a statement adds something."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return ast.unparse(node.target)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend"):
        return ast.unparse(node.func.value)
    return ""


def _finding(run: RunQuery, found: Happening, loop: Loop) -> Finding:
    event = found.event
    return run.finding(
        META,
        event.module,
        event.node,
        "The main process tells a figure of its own share of the samples: nothing puts those of the ranks together",
        hint="Reduce the sums over the ranks before, or gather what they are made of",
        related=(run.location(loop.module, loop.node, "each rank goes through its own share here"),),
        facts={"kind": "results"},
    )


_EVALUATE = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification


def evaluate(model, loader, accelerator):
    error, seen = 0.0, 0
    model.eval()
    with torch.no_grad():
        for batch in loader:
            out = model(**batch)
            error += (out.logits.squeeze(1) - batch["labels"]).abs().sum().item()
            seen += len(batch["labels"])
    %sreturn error / seen


def main(data):
    accelerator = Accelerator()
    model = AutoModelForSequenceClassification.from_pretrained("gpt2", num_labels=1)
    model, loader = accelerator.prepare(model, DataLoader(data, batch_size=8))
    error = evaluate(model, loader, accelerator)
    if accelerator.is_main_process:
        print(f"MAE: {error:.4f}")


main(torch.load("test.pt"))
"""
_SAMPLER = """\
import logging

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

logger = logging.getLogger(__name__)
dist.init_process_group("gloo")
data = torch.load("test.pt")
model = DDP(torch.load("model.pt"))
losses = []
for x, y in DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=False)):
    losses.append(torch.nn.functional.cross_entropy(model(x), y).item())
%s
"""
_MEAN = 'if dist.get_rank() == 0:\n    logger.info("loss %.3f", np.mean(losses))'

EXAMPLES = (
    bad("an error of the share of the main process", {"test_model.py": _EVALUATE % ""}, "test_model.py:24"),
    good("the sums of all ranks", {"test_model.py": _EVALUATE % (
        "error, seen = accelerator.reduce(torch.tensor([error, seen]).cuda())\n    ")}),
    bad("a mean of losses", {"evaluate.py": _SAMPLER % _MEAN}, "evaluate.py:17"),
    bad("a sum over the number of batches", {"evaluate.py": _SAMPLER % (
        'mean = sum(losses) / len(losses)\nif not dist.get_rank():\n    print("loss", mean)')}, "evaluate.py:18"),
    good("gathered before", {"evaluate.py": _SAMPLER % (
        "parts = [None] * dist.get_world_size()\ndist.all_gather_object(parts, losses)\n"
        "losses = [each for part in parts for each in part]\n" + _MEAN)}),
    good("every rank prints its own", {"evaluate.py": _SAMPLER % 'print("loss", np.mean(losses))'}),
    good("a look at what came out", {"evaluate.py": _SAMPLER % "if dist.get_rank() == 0:\n    print(losses[:3])"}),
    good("one process", {"evaluate.py": _SAMPLER % _MEAN}, world_size=1),
)  # fmt: skip
