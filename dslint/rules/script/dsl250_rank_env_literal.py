"""**What.** A script writes `os.environ["RANK"]`, `LOCAL_RANK`, `WORLD_SIZE` or `MASTER_PORT` with a fixed value in
every process, and leaves the process group to the environment.

**Why it hurts.** torchrun, deepspeed and accelerate give each process these variables. The script puts one value over
all of them: every process is rank 0, or a world of one, or looks for the store at a port where nobody listens. The
group never forms, and the job ends at the timeout (10 minutes with NCCL), or rank 0 trains alone.

**Fix.** `os.environ.setdefault("RANK", "0")`, which the safe fix writes: the value then only serves a run without a
launcher.

**When it stays quiet.** Under a test (`if "RANK" not in os.environ:`), in functions that the script does not call at
the top, in scripts that start their processes themselves (`mp.spawn`, `Process`, ray) or pass `rank=` to
`init_process_group`; values that the script computes; a run of one process on purpose (`WORLD_SIZE` is written as "1"
as well), unless a launch command starts several; `LOCAL_RANK` below srun; `MASTER_PORT` under launchers that do not
open the store themselves, and where it is 29500, the usual port.

**Evidence.** Two gloo ranks under torchrun, torch 2.13. `RANK` written as "0": `DistStoreError: wait timeout` on both
processes. `WORLD_SIZE` as "1": rank 0 is alone in a world of 1, rank 1 raises `rank < size`. Another `MASTER_PORT`:
`DistNetworkError: The client socket has timed out` on both. With `setdefault` the group forms.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.python.events import Event, Loop
from dslint.python.queries.order import deciding
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.visible import STARTING, variable_of
from dslint.rules.runs import Happening, RunQuery

_VARIABLES = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT"})
_USUAL_PORT = "29500"

META = RuleMeta(
    code="DSL250",
    name="rank-env-literal",
    kind="script",
    severity=Severity.WARNING,
    summary="The script writes its rank, world size or port over what the launcher gave",
    fix="safe",
    markers=(r"environ", r"RANK|WORLD_SIZE|MASTER_PORT"),
    references=("https://pytorch.org/docs/stable/elastic/run.html#environment-variables",),
    depends_on_run=True,
)

# What reads the variables of the launcher, or starts what does.
_JOINING = ("starts-group", "makes-engine", "prepares", "trainer", "training-arguments", "parses-arguments")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each variable that every process writes with the same value before it joins the group."""
    if run.context.is_one_process or run.has("spawns", "runs-command") or not run.has(*_JOINING):
        return
    groups = [found.event for found in run.happenings("starts-group")]
    if any(event.open or "rank" in event.arguments for event in groups):
        return
    writes = [(found, _name(found.event)) for found in run.happenings("sets-environment") if _name(found.event)]
    certain = [(found, name) for found, name in writes if _text(found.event) is not None and _runs_always(run, found)]
    several = run.context.world_size.get_or(1) > 1
    if not several and any(name == "WORLD_SIZE" and _text(found.event) == "1" for found, name in certain):
        return  # one process on purpose
    for found, name in certain:
        effect = _effect(run, found.event, name, {other for place, other in writes if place is not found})
        if effect:
            yield _finding(run, found.event, name, effect, several)


def _name(event: Event) -> str:
    """Return which variable of the launcher an event writes."""
    name = variable_of(event)
    return name if name in _VARIABLES else ""


def _text(event: Event) -> str | None:
    known = event.arguments["value"].constants
    return known[0] if known is not None and len(known) == 1 and isinstance(known[0], str) else None


def _runs_always(run: RunQuery, found: Happening) -> bool:
    """Return whether every process that runs the script comes here."""
    event, entry = found.event, found.entry
    if entry.kind != "script" or event.lanes != run.machine.worlds.full or event.module.search(STARTING):
        return False
    if any(isinstance(node, Loop) for node in found.around):
        return False
    return any(not way.tests for way in deciding(entry.tree, event))


def _effect(run: RunQuery, event: Event, name: str, others: set[str]) -> str:
    """Return what the value does to a run of several processes; empty when it may do nothing."""
    world, text = run.context.world_size.get_or(None), _text(event)
    launcher = run.context.launcher.get_or("torchrun")
    if name == "RANK":
        return f"every process believes it is rank {text}, and the group never forms"
    if name == "LOCAL_RANK":
        # Below srun each process may see a GPU of its own, with the index 0.
        given = launcher in ("torchrun", "deepspeed", "accelerate") and "SLURM" not in event.module.code
        return f"every process of a machine takes GPU {text}" if given else ""
    if name == "WORLD_SIZE":
        wrong = isinstance(world, int) and text != str(world)
        return f"the processes expect {text} of them, and the group never forms" if wrong else ""
    # Others than torchrun leave the store to rank 0, which then opens it at the port that all write.
    if text == _USUAL_PORT or launcher != "torchrun" or {"RANK", "WORLD_SIZE"} & others:
        return ""
    return "under torchrun nobody listens at that port, and every process hangs"


def _finding(run: RunQuery, event: Event, name: str, effect: str, several: bool) -> Finding:
    world, text = run.context.world_size, _text(event)
    # What two processes on one GPU come to needs GPUs to be seen.
    certain = several and name != "LOCAL_RANK"
    return run.finding(
        META,
        event.module,
        event.node,
        f'`os.environ["{name}"] = "{text}"` overwrites what the launcher set: {effect}',
        hint=f'Use `os.environ.setdefault("{name}", "{text}")`, or drop the line',
        severity=Severity.ERROR if certain else None,
        related=tuple(o.labelled("several processes are started here") for o in world.origins) if several else (),
        fix=_fix(event),
        facts={"variable": name, "value": text},
    )


def _fix(event: Event) -> Fix | None:
    module = event.module
    statements = (node for node in module.nodes_of(ast.Assign) if len(node.targets) == 1)
    found = next((s for s in statements if event.node in (s, s.targets[0])), None)
    target = found.targets[0] if found is not None else None
    if found is None or not isinstance(target, ast.Subscript):
        return None
    text = f"{module.text(target.value)}.setdefault({module.text(target.slice)}, {module.text(found.value)})"
    return Fix("Keep what the launcher set", (Edit(module.path, module.span(found), text),))


_HEAD = "import os\n\nimport torch.distributed as dist\n\n"
_INIT = 'dist.init_process_group("nccl")\n'
_RANK = 'os.environ["RANK"] = "0"\n'
_KEPT = 'os.environ.setdefault("RANK", "0")\n'
_MAIN = "\n\ndef main():\n    {}\n    dist.init_process_group('nccl')\n\n\nif __name__ == '__main__':\n    main()\n"

EXAMPLES = (
    bad(
        "every process is rank 0",
        {"train.py": _HEAD + _RANK + _INIT},
        at="train.py:5 warning",
        fixed={"train.py": _HEAD + _KEPT + _INIT},
    ),
    bad(
        "a launch command starts several processes",
        {"train.py": _HEAD + _RANK + _INIT, "run.sh": "torchrun --nproc_per_node 8 train.py\n"},
        at="train.py:5 error",
        fixed={"train.py": _HEAD + _KEPT + _INIT},
    ),
    bad(
        "in `main`, by `update`",
        {"train.py": _HEAD + _MAIN.format("os.environ.update({'LOCAL_RANK': '0'})")},
        at="train.py:8 warning",
    ),
    bad(
        "a port where nobody listens",
        {
            "train.py": _HEAD + "os.environ['MASTER_PORT'] = '12355'\n" + _INIT,
            "run.sh": "torchrun --standalone --nproc_per_node 4 train.py\n",
        },
        at="train.py:5 error",
        fixed={
            "train.py": _HEAD + "os.environ.setdefault('MASTER_PORT', '12355')\n" + _INIT,
        },
    ),
    bad(
        "a world of one, started as eight",
        {
            "train.py": _HEAD + "os.environ['WORLD_SIZE'] = '1'\n" + _INIT,
            "run.sh": "torchrun --nproc_per_node 8 train.py\n",
        },
        at="train.py:5 error",
        fixed={"train.py": _HEAD + "os.environ.setdefault('WORLD_SIZE', '1')\n" + _INIT},
    ),
    bad(
        "a helper of another file",
        {
            "train.py": "import torch.distributed as dist\n\nfrom settings import prepare\n\nprepare('0')\n" + _INIT,
            "settings.py": "import os\n\nNAME = 'RANK'\n\n\ndef prepare(rank):\n    os.environ[NAME] = rank\n",
        },
        at="settings.py:7 warning",
        fixed={
            "settings.py": "import os\n\nNAME = 'RANK'\n\n\ndef prepare(rank):\n    os.environ.setdefault(NAME, rank)\n"
        },
    ),
    good("a default", {"train.py": _HEAD + _KEPT + _INIT}),
    good(
        "only without a launcher",
        {"train.py": _HEAD + 'if "RANK" not in os.environ:\n    ' + _RANK + _INIT},
    ),
    good(
        "started by plain python",
        {"train.py": _HEAD + _RANK + 'os.environ["WORLD_SIZE"] = count()\n' + _INIT, "run.sh": "python train.py\n"},
    ),
    good(
        "one process on purpose",
        {"train.py": _HEAD + _RANK + 'os.environ["WORLD_SIZE"] = "1"\nos.environ["MASTER_PORT"] = "8088"\n' + _INIT},
    ),
    good(
        "the worker of `mp.spawn`",
        {
            "train.py": "import os\n\nimport torch.distributed as dist\nimport torch.multiprocessing as mp\n\n\n"
            "def worker(rank, world_size):\n"
            "    os.environ.setdefault('MASTER_PORT', '12355')\n"
            "    dist.init_process_group('nccl', rank=rank, world_size=world_size)\n\n\n"
            "if __name__ == '__main__':\n    mp.spawn(worker, args=(4,), nprocs=4)\n"
        },
    ),
    good(
        "a value of the scheduler",
        {"train.py": _HEAD + 'os.environ["RANK"] = os.environ["SLURM_PROCID"]\n' + _INIT},
    ),
    good("nobody calls the function", {"helpers.py": _HEAD + "\ndef single():\n    " + _RANK + "    " + _INIT}),
    good(
        "srun shows each process one GPU",
        {
            "train.py": _HEAD + "os.environ['RANK'] = os.environ['SLURM_PROCID']\n"
            "os.environ['LOCAL_RANK'] = '0'\n" + _INIT
        },
    ),
    good(
        "the deepspeed launcher opens no store: all processes use the same port",
        {
            "train.py": "import os\n\nimport deepspeed\n\nos.environ['MASTER_PORT'] = '12355'\n"
            "deepspeed.init_distributed()\n",
            "run.sh": "deepspeed --num_gpus 4 train.py\n",
        },
    ),
    good(
        "a script without a process group",
        {"demo.py": "import os\n\nimport torch\n\nos.environ['RANK'] = '0'\nprint(torch.ones(1))\n"},
    ),
)
