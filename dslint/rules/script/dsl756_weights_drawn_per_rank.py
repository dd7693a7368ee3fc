"""Numbers that each rank draws by its own seed are written into the weights after DDP has made them equal.

**What.** Ranks are seeded by `torch.manual_seed(seed + rank)`, the model is wrapped in `DistributedDataParallel`, and
then a draw is written into its weights: noise that is added, a random mask that they are multiplied by, a row or layer
that is initialized anew.

**Why it hurts.** DDP sends the weights of rank 0 once, when it is made, and averages gradients from then on. What each
rank writes by itself stays: the replicas have other weights, the averaged gradient is that of none of them, and the
checkpoint of rank 0 is not the model that was trained. Nothing fails.

**Fix.** Draw with a generator that all ranks seed alike (`torch.Generator(device).manual_seed(seed + step)`), or
`dist.broadcast` the draw or the weights from rank 0.

**When it stays quiet.** Draws before the model is wrapped, draws with a generator of their own, draws that were
broadcast; ranks that are seeded alike, or of which nobody knows the seed; weights that the script sends or averages
itself; FSDP and DeepSpeed; buffers, which DDP sends before each forward pass; one process.

**Evidence.** Two gloo ranks, torch 2.13: after a random mask and three steps the weights of the ranks differ; with a
generator that all seed alike they are equal.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, events
from dslint.python.values import Instance
from dslint.python.varies import RANDOM, RANK
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import all_come
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.afterwrap import wrapper_of

META = RuleMeta(
    code="DSL756",
    name="weights-drawn-per-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="numbers that each rank draws by its own seed are written into the weights of a DDP model",
    markers=(r"DistributedDataParallel|DDP", r"seed", r"rand|normal|uniform|bernoulli|multinomial|dropout|init|reset"),
    references=(
        "https://github.com/neuralmagic/sparseml/issues/429",
        "DistributedDataParallel.__init__ in torch/nn/parallel/distributed.py: _sync_module_states",
    ),
    depends_on_run=True,
)
_WRITES = ("writes-tensor", "writes-item", "writes-parameter", "initializes")
_SHARDS = re.compile(r"FullyShardedDataParallel|\bFSDP\b|fully_shard|deepspeed")
_WEIGHTS = ("weight", "bias")
_OWN = RANK | RANDOM


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each write of such numbers."""
    if run.context.is_one_process or run.stage is not None or not run.has("backward") or _sends_itself(run):
        return
    if run.has("makes-engine") or any(module.search(_SHARDS) for module in run.machine.program.modules()):
        return
    told: set[ast.AST] = set()
    joined = (h.event for h in run.occurrences("collective") if "wraps-model" not in h.event.tags)
    sent = {a for e in joined for v in e.arguments.values() for a in v.atoms if isinstance(a, Instance)}
    for wrap in run.occurrences("wraps-model"):
        if wrapper_of(run, wrap.event) is None:
            continue
        order = list(events(wrap.entry.tree))
        later = {id(event) for event in order[order.index(wrap.event) + 1 :]}
        for found in run.occurrences(*_WRITES):
            event = found.event
            if event.node in told or found.entry is not wrap.entry or id(event) not in later or not _draws(event):
                continue
            taken = {atom for value in event.arguments.values() for atom in value.atoms}
            if not taken & sent and _is_weight(event, wrap.event) and all_come(run, found):
                told.add(event.node)
                yield _finding(run, event, wrap.event)


def _draws(event: Event) -> bool:
    """Return whether what is written was drawn by a seed that holds the rank."""
    given = [bits for name, (bits, _, _) in event.snapshot.items() if name not in ("self", "key", "index", "tensor")]
    return event.drawn & RANK > 0 or any(bits & _OWN == _OWN for bits in given)


def _is_weight(event: Event, wrap: Event) -> bool:
    """Return whether a call writes into a parameter, or into the parameters of a layer of the wrapped model."""
    value = event.receiver if event.receiver is not None else event.arguments.get("tensor")
    atoms = [atom for atom in value.atoms if isinstance(atom, Instance)] if value is not None else []
    if any(atom.cls == "torch.nn.Parameter" or atom in wrap.modules for atom in atoms):
        return True
    call = event.node
    node: ast.AST | None = call
    if isinstance(call, ast.Call):
        owner = call.func.value if isinstance(call.func, ast.Attribute) and event.receiver is not None else None
        node = owner or next(iter(call.args), event.nodes.get("tensor"))
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in ("data", "detach")):
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr in _WEIGHTS


def _sends_itself(run: RunQuery) -> bool:
    """Return whether a collective sends or averages weights, and not only gradients."""
    for found in run.occurrences("collective"):
        event = found.event
        values = [value for value in (event.receiver, *event.arguments.values()) if value is not None]
        atoms = [atom for value in values for atom in value.atoms if isinstance(atom, Instance)]
        if "wraps-model" not in event.tags and any(atom.cls == "torch.nn.Parameter" for atom in atoms):
            return True
        text = event.module.text(event.node)
        if "wraps-model" not in event.tags and re.search(r"weight|param|state_dict|\bp\b", text) and "grad" not in text:
            return True
    return False


def _finding(run: RunQuery, event: Event, wrap: Event) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        "each rank writes its own random numbers into the weights, as its seed holds the rank: replicas part for good",
        hint="Draw with a generator that all ranks seed alike, or broadcast the draw from rank 0",
        related=(run.location(wrap.module, wrap.node, "DDP makes the weights equal here, and never again"),),
    )


_SCRIPT = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def change(net, model, generator):
%s

def main(rows):
    dist.init_process_group("nccl")
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    torch.manual_seed(%s)
    generator = torch.Generator(device="cuda").manual_seed(5)
    net = nn.Linear(8, 8).to(device)
%s    model = DDP(net, device_ids=[device])
%s    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(rows, batch_size=8, sampler=DistributedSampler(rows))
    for x in loader:
        optimizer.zero_grad()
        model(x.to(device)).square().mean().backward()
        optimizer.step()


main([torch.ones(8)] * 64)
"""
_OWN_SEED, _CALL = "7 + dist.get_rank()", "    change(net, model, generator)\n"
_NOISE = "    for p in model.parameters():\n        p.data.add_(torch.randn_like(p) * 0.1)\n"
_MASK = """\
    for layer in net.modules():
        if isinstance(layer, nn.Linear):
            mask = torch.ones_like(layer.weight)
            mask[torch.randperm(8, device=mask.device)[:2]] = 0
%s            with torch.no_grad():
                layer.weight.mul_(mask)
"""
_ROW = "    with torch.no_grad():\n        net.weight[2] = torch.randn(8, device=net.weight.device)\n"
_INIT = "    nn.init.normal_(net.weight)\n"
_RESET = "    net.reset_parameters()\n"
_SEEDED = _NOISE.replace("randn_like(p)", "randn(p.shape, device=p.device, generator=generator)")
_SENT = "    for p in model.parameters():\n        dist.broadcast(p.data, src=0)\n"


def _script(change: str, seed: str = _OWN_SEED, *, is_before: bool = False) -> dict[str, str]:
    return {"train.py": _SCRIPT % (change, seed, *((_CALL.replace("model", "net"), "") if is_before else ("", _CALL)))}


EXAMPLES = (
    bad("noise", _script(_NOISE), at="train.py:12"),
    bad("a random mask", _script(_MASK % ""), at="train.py:16"),
    bad("a row", _script(_ROW), at="train.py:12"),
    bad("initialized anew", _script(_INIT), at="train.py:11"),
    bad("a layer that is reset", _script(_RESET), at="train.py:11"),
    good("a generator that all seed alike", _script(_SEEDED)),
    good("the mask of rank 0", _script(_MASK % "            dist.broadcast(mask, src=0)\n")),
    good("rank 0 sends its weights afterwards", _script(_NOISE + _SENT)),
    good("one seed for all", _script(_NOISE, "7")),
    good("before the model is wrapped", _script(_NOISE, is_before=True)),
)
