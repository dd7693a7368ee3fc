"""What only some ranks have made is used on all of them: the others raise, and those that have it wait.

**What.** A writer, a run of Weights & Biases or the like is made under a test of the rank, and code that every rank
comes to uses it: `writer.add_scalar(...)` where `writer` is `None` elsewhere, or `wandb.log(...)` where only rank 0 has
called `wandb.init`. Or a function returns the path of a checkpoint on the main process alone, and every rank loads it;
or it returns the merged results there and `None` elsewhere, and every rank takes their `len()`, an item, or goes
through them. Or rank 0 alone keeps an average of the weights, and every rank sets or reads an attribute of it.

**Why it hurts.** On one GPU the only process is rank 0, and all is well. On several, every other rank stops at its
first report: `'NoneType' object has no attribute 'add_scalar'`, or `You must call wandb.init() before wandb.log()`.
Rank 0 continues, and waits for the others in its next collective. `torch.load(None)` raises in the same way.

**Fix.** Put the same test around the use, after the collectives that the report needs; or make something on the other
ranks, too (`wandb.init(mode="disabled")`). Compute a path on every rank, or send it with `broadcast_object_list`.

**When it stays quiet.** A test of the thing itself (`if writer is not None`, `if wandb.run`) or one that cannot be read
is around the use; the use is tried; nobody makes the thing in the same script, or perhaps on every rank; a function
that rank 0 alone calls; process groups, which ranks outside of them do not have; one of several
objects.

**Evidence.** Two gloo ranks, torch 2.13: rank 1 stops with an AttributeError, and rank 0 never leaves its `all_reduce`.
wandb 0.31, `wandb/sdk/lib/preinit.py`: `PreInitCallable` raises `wandb.Error` on each call before `wandb.init`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.values import Const, Instance, Value
from dslint.python.varies import LOST, OWN, RANKED, UNSURE
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.madescripts import MORE
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import RunQuery
from dslint.rules.training.trackers import asks_for_rank, is_for_all
from dslint.rules.wrapping.copies import assigned

META = RuleMeta(
    code="DSL615",
    name="made-on-some-ranks-used-on-all",
    kind="script",
    severity=Severity.ERROR,
    summary="what only some ranks have made is used on all of them: the others raise",
    markers=(r"wandb|[Ww]riter|[Tt]racker|[Ll]ogger|mlflow|None", r"torch|accelerat|deepspeed|lightning|horovod"),
    references=("https://docs.wandb.ai/guides/track/log/distributed-training/",),
    depends_on_run=True,
)
# What may not be `None`, of what reads a file.
_PATHS = ("f", "filename", "file", "path", "pretrained_model_name_or_path")
_WITHOUT = {
    "__len__": "`None` has no length",
    "__getitem__": "`None` has no items",
    "__iter__": "`None` is not iterable",
}
_GROUPS = re.compile(r"ProcessGroup|DeviceMesh|Work$")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each use that comes to ranks which have not made the thing."""
    if run.context.is_one_process:
        return
    started = [found.event for found in run.occurrences("starts-run") if found.event.api.startswith("wandb.")]
    for found in run.occurrences("loads", "reads-file"):
        if not found.event.may and is_for_all(found):
            yield from _without_path(run, found.event)
    full = run.machine.worlds.full
    told: set[ast.AST] = set()
    for found in run.happenings("missing-object", "needs-run"):
        if found.event.may or not is_for_all(found) or (found.event.lanes == full and asks_for_rank(found)):
            continue
        if "needs-run" in found.event.tags:
            yield from _without_run(run, found.event, started)
        else:
            yield from _without_object(run, found.event, told)


def _without_run(run: RunQuery, event: Event, started: list[Event]) -> Iterator[Finding]:
    """Yield a call of the tracker on ranks that have started no run."""
    full, covered = run.machine.worlds.full, 0
    for start in started:
        covered |= start.lanes if not start.varies & (LOST | UNSURE) else full
    missing = event.lanes & ~covered & full
    if covered and missing:
        yield _finding(
            run,
            event,
            "you must call `wandb.init` first",
            tuple(run.location(start.module, start.node, "only some ranks start a run") for start in started[:2]),
            is_elsewhere=event.lanes != full and _is_elsewhere(run, missing),
        )


def _is_elsewhere(run: RunQuery, lanes: int) -> bool:
    """Return whether all of these ranks are on other machines than the first."""
    worlds = run.machine.worlds
    return all(worlds.lanes[lane][2] > 0 for lane in range(worlds.count) if lanes >> lane & 1)


def _without_object(run: RunQuery, event: Event, told: set[ast.AST]) -> Iterator[Finding]:
    """Yield a use of an object on ranks where it is `None`; of its attributes the first, which raises."""
    value = event.receiver
    if value is None or event.lanes != run.machine.worlds.full or not _is_missing(value):
        return
    origin = run.machine.origin(value)
    is_tested = origin is not None and isinstance(origin[1], ast.If | ast.IfExp)
    if not is_tested and (origin is not None or not _is_returned(event)):
        return  # `next(items, None)`: the items of a rank end, and no test has made the thing
    is_attribute = isinstance(event.node, ast.Attribute)
    made = origin[1] if origin is not None else event.node
    if is_attribute and made in told:
        return
    told.add(made)
    why = _WITHOUT.get(event.api.rpartition(".")[2], f"`None` has no such {'attribute' if is_attribute else 'method'}")
    yield _finding(run, event, why, run.origin(value, "only some ranks make it, the others have `None`"))


def _is_returned(event: Event) -> bool:
    """Return whether what is used is a variable that a call of a function has given, and none of `next`."""
    node = event.node
    if event.api.endswith(".__len__") and isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    elif isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    scope = function_around(event.module, event.node) or event.module.tree
    given = assigned(scope, node.id) if isinstance(node, ast.Name) else [node]
    if isinstance(node, ast.Name) and _is_made_in_loop(scope, node.id):
        return False  # no turn of a loop has made it yet
    calls = [value for value in given if isinstance(value, ast.Call)]
    return bool(calls) and all(ast.unparse(call.func) not in ("next", "iter") for call in calls)


def _is_made_in_loop(scope: ast.AST, name: str) -> bool:
    """Return whether a variable is `None` at first, `a, b = None, None` included, and loops alone give it a value."""
    first, later = False, []
    for node in (node for node in ast.walk(scope) if isinstance(node, ast.Assign)):
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            mine = [v for t, v in pairs if isinstance(t, ast.Name) and t.id == name]
            first |= any(ast.unparse(v) == "None" for v in mine)
            later += [v for v in mine if ast.unparse(v) != "None"]
    loops = [node for node in ast.walk(scope) if isinstance(node, ast.For | ast.While)]
    inside = {inner for loop in loops for inner in ast.walk(loop)}
    return first and bool(later) and all(value in inside for value in later)


def _without_path(run: RunQuery, event: Event) -> Iterator[Finding]:
    """Yield a load on ranks where the path is `None`."""
    value = next((event.arguments[name] for name in _PATHS if name in event.arguments), None)
    if value is None or event.lanes != run.machine.worlds.full or event.varies & RANKED:
        return
    is_ranked = value.varies & RANKED and not value.varies & (LOST | UNSURE | OWN)
    origin = run.machine.origin(value)
    if not is_ranked or origin is None or not isinstance(origin[1], ast.If | ast.IfExp):
        return
    nothing = [atom for atom in value.atoms if isinstance(atom, Const) and atom.value is None]
    if len(nothing) == 1 and len(value.atoms) > 1:
        related = run.origin(value, "only some ranks have a path, the others `None`")
        yield _finding(run, event, "the path is `None` there", related)


def _is_missing(value: Value) -> bool:
    """Return whether a value is `None` on some ranks, by their number."""
    if not value.varies & RANKED or value.varies & (LOST | UNSURE | OWN):
        return False
    made = [atom.cls for atom in value.atoms if isinstance(atom, Instance)]
    # Ranks outside of a group have none: what uses it is called by its members.
    # One of several objects: the test that chose it may be the one around the use.
    return (
        len(value.atoms) == 2
        and bool(made)
        and all(cls and not (isinstance(cls, str) and _GROUPS.search(cls)) for cls in made)
    )


def _finding(
    run: RunQuery, event: Event, why: str, related: tuple[object, ...], *, is_elsewhere: bool = False
) -> Finding:
    is_special = event.api.rpartition(".")[2] in _WITHOUT
    called = run.text(event.module, event.node if is_special else getattr(event.node, "func", event.node))
    verb = "uses" if is_special else "calls"
    if isinstance(event.node, ast.Attribute):
        verb = "reads" if isinstance(event.node.ctx, ast.Load) else "sets"
    return run.finding(
        META,
        event.module,
        event.node,
        f"each machine calls `{called}`, but only the first made what it needs: on the others it raises ({why})"
        if is_elsewhere
        else f"every rank {verb} `{called}`, but only some ranks made what it needs: the others raise ({why})",
        severity=Severity.WARNING if is_elsewhere else None,
        hint="Put the test of the rank around this call too, and leave collectives outside of it",
        related=related,  # type: ignore[arg-type]
        facts={"called": called},
    )


_SAVED = """\
import os

import torch
from accelerate import Accelerator%s


def save(accelerator, model, folder, tag):
    path = None
    if accelerator.is_main_process:
        path = os.path.join(folder, f"{tag}.pt")
        torch.save(accelerator.unwrap_model(model).state_dict(), path)
    accelerator.wait_for_everyone()
    return %s


def main(model, folder):
    accelerator = Accelerator()
    model = accelerator.prepare(model)
    last = save(accelerator, model, folder, "stage1")
    %s
"""
_LOADS = 'state = torch.load(last, map_location="cpu")\n    print(len(state))'
_GUARDED = 'if accelerator.is_main_process:\n        print(len(torch.load(last, map_location="cpu")))'

_LOCAL = """\
import wandb
from accelerate import Accelerator

accelerator = Accelerator()
if accelerator.is_main_process:
    wandb.init(project="x")
for step in range(100):
    if accelerator.is_%smain_process:
        wandb.log({"step": step})
accelerator.wait_for_everyone()
"""
_AVERAGE = """\
import copy

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Average:
    def __init__(self, net, updates=0):
        self.net, self.updates = copy.deepcopy(net).eval(), updates


class Run:
    def __init__(self, net):
        dist.init_process_group("nccl")
        self.is_main = dist.get_rank() == 0
        self.model = DDP(net)
        self.average = Average(net) if self.is_main else None

    def resume(self, state):
        self.model.module.load_state_dict(state["model"])
        %s


Run(torch.nn.Linear(8, 8)).resume(torch.load("last.pt", map_location="cpu"))
"""
_GIVEN = """import torch
from accelerate import Accelerator
from torch.optim.swa_utils import AveragedModel


def average_of(accelerator, net):
    if accelerator.is_main_process:
        return AveragedModel(net)
    return %s


def main(net, loader):
    accelerator = Accelerator()
    average = average_of(accelerator, net)
    model = accelerator.prepare(net)
    for batch in loader:
        accelerator.backward(model(batch).mean())
    print(average.n_averaged)


main(torch.nn.Linear(8, 8), torch.load("batches.pt"))
"""
EXAMPLES = (
    bad(
        "an attribute of an average is set",
        {"train.py": _AVERAGE % 'self.average.updates = state["updates"]'},
        at="train.py:22 error",
    ),
    bad(
        "a part of an average is read",
        {"train.py": _AVERAGE % 'self.average.net.load_state_dict(state["average"])'},
        at="train.py:22 error",
    ),
    bad("an attribute of what a function returns", {"train.py": _GIVEN % "None"}, at="train.py:18 error"),
    good("the others have another average", {"train.py": _GIVEN % "AveragedModel(net, torch.device('cpu'))"}),
    good(
        "the average is asked",
        {"train.py": _AVERAGE % 'if self.average:\n            self.average.updates = state["updates"]'},
    ),
    good(
        "rank 0 alone sets it",
        {"train.py": _AVERAGE % 'if self.is_main:\n            self.average.updates = state["updates"]'},
    ),
    bad(
        "the first process of each machine logs, that of the job has begun",
        {"train.py": _LOCAL % "local_"},
        "train.py:9 warning",
    ),
    good("the process that has begun logs", {"train.py": _LOCAL % ""}),
    good(
        "a job of one machine",
        {
            "train.py": _LOCAL % "local_",
            "run.sh": "accelerate launch --num_machines 1 --num_processes 8 train.py\n",
        },
    ),
    bad("the path of a checkpoint", {"train.py": _SAVED % ("", "path", _LOADS)}, at="train.py:20 error"),
    good(
        "the path is sent",
        {
            "train.py": _SAVED
            % (
                "\nfrom accelerate.utils import broadcast_object_list",
                "broadcast_object_list([path])[0]",
                _LOADS,
            )
        },
    ),
    good("rank 0 alone loads it", {"train.py": _SAVED % ("", "path", _GUARDED)}),
    good(
        "the path is asked",
        {"train.py": _SAVED % ("", "path", "if last:\n        print(len(torch.load(last, map_location='cpu')))")},
    ),
    *MORE,
)
