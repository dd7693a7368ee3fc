"""A resume restores the optimizer, and not the schedule or the gradient scaler that belongs to it.

**What.** A script calls `optimizer.load_state_dict(...)` at a resume. The schedule that steps this optimizer, or the
`GradScaler` that steps it, is made anew, and nothing loads its state or moves it forward.

**Why it hurts.** A schedule of torch counts its own steps. After a restart it counts from 0: the warm-up comes again,
with the moments of a model that is half trained, the rate stays high for as long as before, and where the job ends at
the planned step the decay is never reached. A scaler begins at a loss scale of 65536: the first steps overflow and are
skipped until it has come down, in each restart, while the schedule and the average of the weights go on.

**Fix.** Save `scheduler.state_dict()` and `scaler.state_dict()` beside the optimizer's, and load them where it is
restored.

**When it stays quiet.** A state of the same kind that is loaded anywhere in the run, also by names that nobody knows; a
schedule that is told the epoch (`scheduler.step(epoch)`, `last_epoch=`), or that is made of what was restored; one that
follows a metric; a scaler that is switched off. It is an information: a scaler finds its scale again, `ExponentialLR`
computes from the rate that the optimizer restores, and a loop of `step()` that catches up is not seen.

**Evidence.** torch 2.13: a `LambdaLR` with a warm-up of ten steps that is made anew beside an optimizer of step 100
gives rates of steps 0, 1, 2 and so on; with its state those of 100, 101, 102.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import PLATEAU, instances
from dslint.rules.training.resumes import loads_unnamed

META = RuleMeta(
    code="DSL770",
    name="schedule-left-out-of-resume",
    kind="script",
    severity=Severity.INFO,
    summary="a resume restores the optimizer and leaves out its schedule or scaler, which begin anew",
    markers=(r"torch", r"load_state_dict\(", r"(?i)sched|scaler|LR\("),
    references=("https://pytorch.org/tutorials/recipes/recipes/saving_and_loading_a_general_checkpoint.html",),
    depends_on_run=True,
    no_experiment="what a restart begins with needs no run of several ranks",
)
_KINDS = (("scheduler", "scheduler-step"), ("scaler", "scaler-step"))
# Names of what is no schedule and no scaler, where a state is loaded into something unknown.
_OTHER = re.compile(
    r"(?i)model|net|optim|^opt$|ema|disc|gen|enc|dec|head|module|teacher|student|crit|loss|proj|embed|backbone"
)
_LOADS = {
    "scheduler": re.compile(
        r"(?i)(?:sched\w*|\blr_?\w*)(?:\[[^\]]*\])?(?:\.module)?\.(?:load\w*\(|last_epoch\s*=|_step_count\s*=|__dict__)"
    ),
    "scaler": re.compile(r"(?i)scaler?\w*(?:\[[^\]]*\])?\.(?:load\w*\(|_init_scale|_scale\b|__dict__)|amp\.load_state"),
}
# A schedule that is made of such numbers knows where the run is.
_POSITION = re.compile(r"(?i)start|resum|last|begin|initial_|offset|done|restor|curr")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each schedule and scaler of an optimizer that is restored, while nothing restores them."""
    resumed = list(_resumed(run))
    told: set[int] = set()
    for kind, tag in _KINDS if resumed and run.has("backward") else ():
        if _may_be_restored(run, kind):
            continue
        for step in run.occurrences(tag):
            for atom in instances(step.event.receiver):
                made = run.makers.get(atom)
                if made is None or id(made.node) in told or not _begins_anew(made, step, kind):
                    continue
                load = _load_of(made if kind == "scheduler" else step.event, resumed)
                if load is not None:
                    told.add(id(made.node))
                    yield _finding(run, kind, made, step.event, load)


def _resumed(run: RunQuery) -> Iterator[tuple[Event, set[Instance]]]:
    """Yield the calls that restore an optimizer, each with the optimizers that it may be."""
    for found in run.occurrences("loads-state-dict"):
        event = found.event
        if event.api.endswith("Optimizer.load_state_dict") and not event.may:
            yield event, set(instances(event.receiver))


def _load_of(event: Event, resumed: list[tuple[Event, set[Instance]]]) -> Event | None:
    """Return what restores the optimizer that a call is given."""
    own = set(instances(event.arguments.get("optimizer")))
    return next((load for load, atoms in resumed if atoms & own), None)


def _may_be_restored(run: RunQuery, kind: str) -> bool:
    """Return whether some code loads a state of this kind, or one into something whose name does not say what it is."""
    libraries = run.machine.libraries
    for found in run.occurrences("loads-state-dict"):
        atoms = instances(found.event.receiver)
        if any(isinstance(atom.cls, str) and libraries.is_class(atom.cls, kind) for atom in atoms):
            return True
    is_named = any(module.search(_LOADS[kind]) for module in run.machine.program.modules())
    return is_named or loads_unnamed(run, _OTHER)


def _begins_anew(made: Event, step: Happening, kind: str) -> bool:
    """Return whether an object certainly begins where a new run begins."""
    if made.open:
        return False
    if kind == "scaler":
        enabled = made.arguments.get("enabled")
        return enabled is None or enabled.constants != (False,)
    is_told = "last_epoch" in made.arguments or "epoch" in step.event.arguments
    return not is_told and made.api != PLATEAU and not _POSITION.search(made.module.text(made.node))


def _finding(run: RunQuery, kind: str, made: Event, step: Event, load: Event) -> Finding:
    is_scaler = kind == "scaler"
    what = "this scaler: it begins at its first scale" if is_scaler else "this schedule: it begins at step 0 again"
    return run.finding(
        META,
        made.module,
        made.node,
        f"A resume restores the optimizer and not {what}",
        hint=f"Save its `state_dict()` beside the optimizer's, and load it with `{kind}.load_state_dict(...)`",
        related=(
            run.location(load.module, load.node, "restores the optimizer"),
            run.location(step.module, step.node, "its steps"),
        ),
    )


_TRAIN = """\
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def save(path, model, optimizer, epoch, **others):
    if dist.get_rank() == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        for name, part in others.items():
            state[name] = part.state_dict()
        torch.save(state, path)


def resume(path, model, optimizer%s):
    state = torch.load(path, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    %s
    return state["epoch"] + 1


def main(net, loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", default="")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    %s
    start = resume(args.resume, model, optimizer%s) if args.resume else 0
    for epoch in range(start, 10):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            %s
        save("last.pt", model, optimizer, epoch)


main(torch.nn.Linear(2, 2), torch.load("loader.pt", weights_only=False))
"""
_STEP = "loss.backward()\n            optimizer.step()\n            part.step()"
_SCALED = "part.scale(loss).backward()\n            part.step(optimizer)\n            part.update()"
_EACH = "for name, part in parts.items():\n        part.load_state_dict(state[name])"
_SCHEDULE = "part = torch.optim.lr_scheduler.%s"
_SCALER = 'part = torch.amp.GradScaler("cuda"%s)'


def _script(made: str, step: str = _STEP, load: str = "print(path)", given: str = "") -> dict[str, str]:
    return {"train.py": _TRAIN % (given, load, made, given, step)}


_COSINE = _SCHEDULE % "CosineAnnealingLR(optimizer, 100)"
_WARMUP = _SCHEDULE % "LambdaLR(optimizer, lambda step: min(1.0, step / 10))"

EXAMPLES = (
    bad("a cosine", _script(_COSINE), at="train.py:31 info"),
    bad("a warm-up", _script(_WARMUP), at="train.py:31 info"),
    bad("one of two", _script(
        _SCHEDULE % "SequentialLR(optimizer, [torch.optim.lr_scheduler.StepLR(optimizer, 3)], [])"), at="train.py:31"),
    bad("a scaler", _script(_SCALER % "", _SCALED), at="train.py:31 info"),
    good("it is loaded", _script(_COSINE, load='part.load_state_dict(state["part"])', given=", part")),
    good("it is told the epoch", _script(_COSINE, _STEP.replace("part.step()", "part.step(epoch)"))),
    good("it is made for the steps that remain", _script(
        _SCHEDULE % "CosineAnnealingLR(optimizer, 100, last_epoch=-1 if not args.resume else 50)")),
    good("it follows a metric", _script(
        _SCHEDULE % "ReduceLROnPlateau(optimizer)", _STEP.replace("part.step()", "part.step(1.0)"))),
    good("the scaler is off", _script(_SCALER % ", enabled=False", _SCALED)),
    good("all parts are loaded in a loop", {"train.py": _TRAIN % (", **parts", _EACH, _COSINE, ", part=part", _STEP)}),
)  # fmt: skip
