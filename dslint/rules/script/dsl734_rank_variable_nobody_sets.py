"""What the main process should do is guarded by a variable that the way of starting the processes does not set.

**What.** `if int(os.environ.get("RANK", 0)) == 0:` decides who opens a run of a tracker, removes or writes a file. The
command starts plain Python, and Lightning starts the other processes, or the test is in a function that
`torch.multiprocessing.spawn` runs (there `LOCAL_RANK` as well).

**Why it hurts.** Lightning's launcher sets `LOCAL_RANK`, `NODE_RANK` and `WORLD_SIZE` for the processes that it starts,
and no `RANK`; `spawn` sets none of them. The default holds in each process, and all believe that they are the main one:
four runs for one training, or a file that four processes write at once. Under torchrun the same code is right.

**Fix.** With Lightning `rank_zero_only.rank`, `trainer.is_global_zero`, or `LOCAL_RANK` and `NODE_RANK` together; with
`spawn` the rank that the function gets as its first argument.

**When it stays quiet.** Jobs of torchrun, accelerate, srun and whatever sets `RANK`; a command that nobody knows; a
script that sets the variable itself; tests that ask another variable or the process group as well; code that runs
before `spawn` starts anything; whatever does no harm when all do it.

**Evidence.** lightning 2.6, `_SubprocessScriptLauncher._call_children_scripts`: `env_copy["LOCAL_RANK"]` and no `RANK`.
torch 2.13: two spawned processes both read 0 from `os.environ.get("RANK", 0)` and from `LOCAL_RANK`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Alt, Event, Node
from dslint.python.queries.derived import Derived
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.visible import variable_of
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.lightnings import draws_once, has_several, trainers

META = RuleMeta(
    code="DSL734",
    name="rank-variable-nobody-sets",
    kind="script",
    severity=Severity.WARNING,
    summary="a guard reads RANK or LOCAL_RANK, which nobody sets here: every process believes it is the main one",
    markers=(r"(?:environ(?:\.get)?|getenv)[\[(]\s*[\"'](?:LOCAL_)?RANK[\"']", r"lightning|spawn"),
    references=(
        "https://github.com/datamol-io/graphium/issues/493",
        "https://pytorch.org/docs/stable/multiprocessing.html#spawning-subprocesses",
    ),
    depends_on_run=True,
    no_experiment="it takes Lightning, or processes that no launcher of the experiments starts",
)
_DOES = frozenset({"starts-run", "saves", "removes", "moves-file"})
_READ = re.compile(r"(?:environ\.get|getenv)\(\s*[\"'](\w+)[\"']\s*,|[\"'](\w+)[\"']\s+(?:not\s+)?in\s+os\.environ")
_ANY = re.compile(r"environ(?:\.get)?[\[(]\s*[\"'](\w+)[\"']|getenv\(\s*[\"'](\w+)[\"']")
# What else says which process this is.
_OTHERS = re.compile(
    r"get_rank|is_initialized|rank_zero|global_(?:rank|zero)|SLURM|OMPI|getpid|current_process|lock", re.I
)
_MOST = 300


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on what one process should do, where a variable that is missing in all of them decides."""
    if run.context.launcher.get_or("") not in ("", "python"):
        return
    written = {variable_of(found.event) for found in run.happenings("sets-environment")}
    told: set[int] = set()
    for found in run.occurrences(*sorted(_DOES)):
        event = found.event
        if event.may or event.lanes == run.machine.worlds.full or not event.lanes & 1 or id(event.node) in told:
            continue
        missing, place = _missing(run, found)
        if not missing or written & {"", *missing}:
            continue
        test = next(
            (alt for alt, _ in _tests(found) if _asks(run.derived, alt) and _asks(run.derived, alt) <= missing), None
        )
        if test is not None and place is not None:
            told.add(id(event.node))
            yield _finding(run, event, test, place, min(_asks(run.derived, test)))


def _missing(run: RunQuery, found: Happening) -> tuple[frozenset[str], Location | None]:
    """Return the variables that no process has where something happens, and what starts the processes."""
    spawns = {id(h.event.node): h.event for h in run.happenings("spawns") if h.event.api.startswith("torch.")}
    call = next((node for node in found.calls if id(node.node) in spawns), None)
    if call is not None:
        return frozenset({"RANK", "LOCAL_RANK"}), run.location(call.module, call.node, "starts the processes")
    made = trainers(run)
    is_plain = run.context.launcher.get_or("") == "python" and not run.has("spawns")
    if not made or not is_plain or not all(map(has_several, made)) or draws_once(run) or _has_plugins(made):
        return frozenset(), None
    return frozenset({"RANK"}), run.location(made[0].module, made[0].node, "starts the other processes")


def _has_plugins(made: list[Event]) -> bool:
    return any("plugins" in event.arguments for event in made)


def _tests(found: Happening) -> Iterator[tuple[Alt, Node]]:
    """Yield the tests by which only the first rank comes to something, the nearest first."""
    way = [*found.around, found.event]
    pairs = [(alt, side) for alt, side in pairwise(way) if isinstance(alt, Alt)]
    # A `return` before: the function that holds the event is left by the others.
    for call in found.calls:
        pairs += [(node, call) for node in call.body.items if isinstance(node, Alt) and _parts(node)]
    yield from ((alt, side) for alt, side in reversed(pairs) if _parts(alt))


def _parts(alt: Alt) -> bool:
    return bool(alt.then_lanes and alt.else_lanes) and (alt.then_lanes & 1) != (alt.else_lanes & 1)


def _asks(derived: Derived, alt: Alt) -> frozenset[str]:
    """Return the variables that a test asks, each with a default; none where it asks for something else, too."""
    node = getattr(alt.node, "test", alt.node)
    pieces = (derived.of(alt.module, [node]) if isinstance(node, ast.expr) else None) or []
    texts = [text for module, piece in pieces if len(text := module.text(piece)) < _MOST]
    if any(_OTHERS.search(text) for text in texts):
        return frozenset()
    known = {next(filter(None, names)) for text in texts for names in _READ.findall(text)}
    every = {next(filter(None, names)) for text in texts for names in _ANY.findall(text)}
    return frozenset(known) if every <= known else frozenset()


def _finding(run: RunQuery, event: Event, test: Alt, place: Location, name: str) -> Finding:
    return run.finding(
        META,
        test.module,
        getattr(test.node, "test", test.node),
        f"nobody sets `{name}` for the processes of this run: each of them takes the default, and all pass as rank 0",
        hint="Ask what starts the processes: `rank_zero_only.rank` of Lightning, the first argument under `spawn`",
        related=(place, run.location(event.module, event.node, "every process does this")),
    )


_TRACKING = """\
import os
import shutil

import wandb

%s


def start(project):
    %s
    wandb.init(project=project)
"""
_LIGHTNING = """\
import lightning as L

from data import loaders
from model import Net
from tracking import start

if __name__ == "__main__":
    start("runs")
    trainer = L.Trainer(accelerator="gpu", devices=4, strategy=%s, logger=False)
    trainer.fit(Net(), *loaders())
"""
_SPAWN = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def is_main():
    return int(os.environ.get(%s)) == 0


def worker(rank, world_size):
    dist.init_process_group("gloo", "file:///tmp/store", rank=rank, world_size=world_size)
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    if %s:
        torch.save(model.module.state_dict(), "last.pt")


if __name__ == "__main__":
    mp.spawn(worker, args=(4,), nprocs=4)
"""
_GUARD = 'if int(os.environ.get("RANK", 0)) != 0:\n        return'
_PLAIN = "python train.py\n"


def _project(first: str, guard: str, strategy: str = '"ddp"', command: str = _PLAIN) -> dict[str, str]:
    return {"train.py": _LIGHTNING % strategy, "tracking.py": _TRACKING % (first, guard), "run.sh": command}


EXAMPLES = (
    bad("a run of each process", _project("", _GUARD), "tracking.py:10"),
    bad(
        "a constant of the module",
        _project('RANK = int(os.getenv("RANK", "0"))', "if RANK > 0:\n        return"),
        "tracking.py:10",
    ),
    bad("spawned processes", {"train.py": _SPAWN % ('"RANK", 0', "is_main()")}, "train.py:17"),
    bad(
        "spawned processes, by the local rank", {"train.py": _SPAWN % ('"LOCAL_RANK", "0"', "is_main()")}, "train.py:17"
    ),
    good("the rank that spawn gives", {"train.py": _SPAWN % ('"RANK", 0', "rank == 0")}),
    good(
        "the function sets it",
        {
            "train.py": (_SPAWN % ('"RANK", 0', "is_main()")).replace(
                "    dist.init", '    os.environ["RANK"] = str(rank)\n    dist.init'
            )
        },
    ),
    good("torchrun sets it", _project("", _GUARD, command="torchrun --nproc_per_node 4 train.py\n")),
    good("processes that begin later", _project("", _GUARD, '"ddp_spawn"')),
    good("variables that Lightning sets", _project("", _GUARD.replace("RANK", "LOCAL_RANK"))),
    good(
        "both",
        _project("", 'if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) != "0":\n        return'),
    ),
)
