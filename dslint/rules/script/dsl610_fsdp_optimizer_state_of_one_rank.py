"""The state of an optimizer under FSDP is saved by one rank, which holds a part of it only.

**What.** `optimizer.state_dict()` of an optimizer over the parameters of `FullyShardedDataParallel` (or one that
accelerate has prepared with an `fsdp_plugin`) goes into a file that only some ranks write.

**Why it hurts.** Each rank keeps the moments of its own shard. The file holds those of rank 0. When a run resumes from
it, every rank loads the moments of rank 0 onto other parameters, or the sizes do not match. The weights beside it are
whole, so nothing shows until the loss jumps.

**Fix.** `FSDP.optim_state_dict(model, optimizer)` on every rank, and `FSDP.optim_state_dict_to_load` before it is
loaded; `get_state_dict` of `torch.distributed.checkpoint.state_dict`; with accelerate `accelerator.save_state(...)`.

**When it stays quiet.** `FSDP.optim_state_dict`; every rank writes (a file of its own); a `sharding_strategy` that may
be `NO_SHARD`; models that `fully_shard` has taken; an optimizer whose parameters cannot be followed; one process.

**Evidence.** Two gloo ranks, torch 2.13: the saved moments have half of the numbers of the model; those of
`FSDP.optim_state_dict` have all of them, and so has the state of DDP.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.values import Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks import parted
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import parameter_owners
from dslint.rules.zero.stagetests import expressions_behind

META = RuleMeta(
    code="DSL610",
    name="fsdp-optimizer-state-of-one-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="one rank saves the state of an optimizer under FSDP: it holds its own shard only",
    markers=(r"FullyShardedDataParallel|fsdp|FSDP", r"state_dict"),
    references=(
        "https://docs.pytorch.org/docs/stable/fsdp.html",
        "FullyShardedDataParallel.optim_state_dict in torch/distributed/fsdp/fully_sharded_data_parallel.py",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each file of some ranks that gets the state of a sharded optimizer."""
    if run.context.is_one_process:
        return
    sharded = _sharded(run)
    states = {
        found.event.node: found.event
        for found in (run.occurrences("state-dict") if sharded else ())
        if found.event.api.endswith(".state_dict") and _is_among(found.event.receiver, sharded)
    }
    seen: set[int] = set()
    for found in run.occurrences("saves") if states else ():
        event = found.event
        state = _saved(event, states)
        if state is None or id(event.node) in seen or not parted.are_some(run, event.lanes):
            continue
        seen.add(id(event.node))
        yield run.finding(
            META,
            event.module,
            event.node,
            f"`{run.text(state.module, state.node, 40)}` holds one rank's shard, and only some ranks save theirs:"
            " the rest"
            " is lost",
            hint="Save `FSDP.optim_state_dict(model, optimizer)`, which every rank must call",
            related=(run.location(state.module, state.node, "each rank has its own part"),),
        )


def _sharded(run: RunQuery) -> set[Instance]:
    """Return the optimizers whose parameters FSDP has certainly divided."""
    wrapped = {atom for h in run.occurrences("wraps-model") if _divides(run, h.event) for atom in _made(h.event)}
    asked = parameter_owners(run) if wrapped else {}
    found: set[Instance] = set()
    for happening in run.occurrences("makes-optimizer"):
        event = happening.event
        node = event.nodes.get("params")
        parts = list(expressions_behind(event.module, node)) if node is not None else []
        values = [event.arguments.get("params"), *event.items.get("params", ())]
        parts += [part for value in values for atom in instances(value) for part in ast.walk(atom.node)]
        owners = {owner for part in parts for owner in asked.get(part, ())}
        if owners and owners <= wrapped:
            found |= set(instances(event.result))
    if run.is_fsdp:
        made = (atom for h in run.occurrences("prepares") for atom in _all(h.event.result))
        found |= {atom for atom in made if atom.cls == "accelerate.optimizer.AcceleratedOptimizer"}
    return found


def _all(value: Value | None) -> Iterator[Instance]:
    for atom in value.atoms if value is not None else ():
        if isinstance(atom, Instance):
            yield atom
        for item in getattr(atom, "items", ()):
            yield from instances(item)


def _made(event: Event) -> list[Instance]:
    return instances(event.result)


def _divides(run: RunQuery, event: Event) -> bool:
    strategy = event.arguments.get("sharding_strategy")
    is_fsdp = run.machine.libraries.is_class(event.api, "fsdp")
    return is_fsdp and not event.open and (strategy is None or strategy.constants == (None,) or _shards(strategy))


def _shards(strategy: Value) -> bool:
    """Return whether a strategy is certainly one that divides over all ranks."""
    paths = [str(getattr(atom, "path", "")).rpartition(".")[2] for atom in strategy.atoms]
    return bool(paths) and all(path in ("FULL_SHARD", "SHARD_GRAD_OP") for path in paths)


def _is_among(value: Value | None, sharded: set[Instance]) -> bool:
    found = instances(value)
    return bool(found) and value is not None and len(found) == len(value.atoms) and sharded.issuperset(found)


def _saved(event: Event, states: dict[ast.AST, Event]) -> Event | None:
    """Return the call whose result goes into the file, perhaps inside of a dictionary."""
    inside = set(expressions_behind(event.module, event.node))
    held = [value for values in event.items.values() for value in values]
    atoms = [atom for value in (*event.arguments.values(), *held) for atom in instances(value)]
    inside |= {part for atom in atoms for part in ast.walk(atom.node)}
    made = {atom: state for state in states.values() for atom in instances(state.result)}
    known = next((made[atom] for atom in atoms if atom in made), None)
    return known or next((state for node, state in states.items() if node in inside), None)


_TRAIN = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from checkpoints import save


def main(loader):
    dist.init_process_group("nccl")
    model = FSDP(torch.nn.Linear(8, 8), device_id=torch.cuda.current_device()%s)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    save(model, optimizer, "last.pt")
    dist.destroy_process_group()
"""
_SAVE = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, optimizer, path):
    state = %s
%s
"""
_ON_MAIN = '    if dist.get_rank() == 0:\n        torch.save({"optimizer": state}, path)'
_BY_ALL = '    torch.save({"optimizer": state}, f"{path}.{dist.get_rank()}")'
_ACCELERATE = """\
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin


def main(loader):
    accelerator = Accelerator(%s)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.is_main_process:
        torch.save({"optimizer": optimizer.state_dict()}, "last.pt")
"""
_PLUGIN = "fsdp_plugin=FullyShardedDataParallelPlugin()"


def _files(state: str, saves: str, more: str = "") -> dict[str, str]:
    return {"train.py": _TRAIN % more, "checkpoints.py": _SAVE % (state, saves)}


EXAMPLES = (
    bad("rank 0 saves its shard", _files("optimizer.state_dict()", _ON_MAIN), "checkpoints.py:9 warning"),
    bad(
        "a dictionary that is filled bit by bit",
        _files(
            '{}\n    state["optimizer"] = optimizer.state_dict()', _ON_MAIN.replace('{"optimizer": state}', "state")
        ),
        "checkpoints.py:10 warning",
    ),
    bad("an optimizer that accelerate has prepared", {"train.py": _ACCELERATE % _PLUGIN}, "train.py:15 warning"),
    good("put together before", _files("FSDP.optim_state_dict(model, optimizer)", _ON_MAIN)),
    good("each rank saves its own", _files("optimizer.state_dict()", _BY_ALL)),
    good("accelerate without FSDP", {"train.py": _ACCELERATE % ""}),
    good(
        "a strategy that does not divide",
        _files("optimizer.state_dict()", _ON_MAIN, ", sharding_strategy=dist.fsdp.ShardingStrategy.NO_SHARD"),
    ),
)
