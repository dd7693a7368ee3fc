"""**What.** A script that a launcher starts on several processes writes `os.environ["CUDA_VISIBLE_DEVICES"]` with fewer
GPUs than there are processes on the machine.

**Why it hurts.** Each process runs the line, so each sees the same few GPUs. The process with local rank 1 asks for a
second GPU that it has hidden from itself: `CUDA error: invalid device ordinal`; or all of them share one.

**Fix.** Delete the line, and set the variable in the launch command: `CUDA_VISIBLE_DEVICES=0,1 torchrun
--nproc_per_node 2 train.py`.

**When it stays quiet.** With as many GPUs as processes; for one process; values that the script computes; an empty text
or "-1", which hide all GPUs on purpose; under a test; in functions that the script does not call at the top, and in
scripts that start their processes themselves. Without a launch command it fires only where one GPU is listed and the
script chooses its GPU by the local rank.

**Evidence.** CUDA C++ Programming Guide, "CUDA Environment Variables": devices are counted from 0 among those that the
variable lists.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Event
from dslint.python.queries.order import deciding
from dslint.python.values import PerRank
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.devices import DEVICE_TAGS, choices
from dslint.rules.ranks.visible import writes
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL249",
    name="cvd-set-under-launcher",
    kind="script",
    severity=Severity.WARNING,
    summary="Every process of a launch hides the GPUs of the others from itself",
    markers=(r"CUDA_VISIBLE_DEVICES",),
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables",),
    depends_on_run=True,
    no_experiment="a process needs GPUs to hide them",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where every process lists fewer GPUs than there are processes."""
    if run.context.is_one_process:
        return
    for found, value in writes(run):
        event, entry = found.event, found.entry
        known = value.constants
        text = known[0] if known is not None and len(known) == 1 and isinstance(known[0], str) else None
        gpus = _count(text)
        if not gpus or entry.kind != "script" or event.lanes != run.machine.worlds.full:
            continue
        if any(not way.tests for way in deciding(entry.tree, event)):
            yield from _judged(run, event, gpus, f"{gpus} GPU{'s' if gpus > 1 else ''} (`{text}`)")


def _judged(run: RunQuery, event: Event, gpus: int, listed: str) -> Iterator[Finding]:
    processes = run.context.processes_per_node
    if processes.get_or(0) > gpus:
        yield _finding(
            run,
            event,
            f"each of the {processes.get()} processes of a machine sees only {listed}, the same for all: local rank"
            f" {gpus} has none",
            tuple(origin.labelled("the processes are started here") for origin in processes.origins),
        )
    elif processes.is_absent and gpus == 1:
        place = _chosen_by_rank(run)
        if place is not None:
            message = f"the script sees only {listed}, but chooses its GPU by the local rank: local rank 1 has none"
            yield _finding(run, event, message, (place,))


def _chosen_by_rank(run: RunQuery) -> Location | None:
    """Return where a process chooses its GPU by its number."""
    for found in run.happenings(*DEVICE_TAGS):
        for value, node in choices(found.event):
            if value.atoms and all(isinstance(atom, PerRank) for atom in value.atoms):
                return run.location(found.event.module, node, "the GPU is chosen by the local rank")
    return None


def _finding(run: RunQuery, event: Event, message: str, related: tuple[Location, ...]) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        message,
        hint="Delete the line, and set `CUDA_VISIBLE_DEVICES` in the launch command",
        related=related,
    )


def _count(text: str | None) -> int:
    """The number of GPUs that a value lists; 0 when it hides all, or is not known."""
    items = [item.strip() for item in (text or "").split(",")]
    return len(items) if all(items) and "-1" not in items else 0


_HEAD = "import os\n\n"
_SET = 'os.environ["CUDA_VISIBLE_DEVICES"] = "0"\n'
_CHOOSE = "\nimport torch\n\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
_RUN = "torchrun --nproc_per_node 4 train.py\n"

EXAMPLES = (
    bad("one GPU for four processes", {"train.py": _HEAD + _SET + _CHOOSE, "run.sh": _RUN}, at="train.py:3 warning"),
    bad(
        "two GPUs for four processes",
        {"train.py": _HEAD + _SET.replace('"0"', '"0,1"'), "run.sh": _RUN},
        at="train.py:3",
    ),
    bad("the local rank is an index among one GPU", {"train.py": _HEAD + _SET + _CHOOSE}, at="train.py:3"),
    bad(
        "a helper of another file, with the name and the value in variables",
        {
            "train.py": "from gpus import show\n\nshow('0,1')\n"
            + _CHOOSE.replace("import", "import os, ", 1)
            + "torch.distributed.init_process_group('nccl')\n",
            "gpus.py": "import os\n\nNAME = 'CUDA_VISIBLE_DEVICES'\n\n\ndef show(numbers):\n"
            "    os.environ[NAME] = numbers\n",
            "run.sh": _RUN,
        },
        at="gpus.py:7",
    ),
    good(
        "as many GPUs as processes",
        {"train.py": _HEAD + _SET.replace('"0"', '"0,1,2,3"') + _CHOOSE, "run.sh": _RUN},
    ),
    good("one process", {"train.py": _HEAD + _SET + _CHOOSE, "run.sh": _RUN.replace("4", "1")}),
    good("no launcher", {"infer.py": _HEAD + _SET + "\nimport torch\n\nprint(torch.ones(1).cuda())\n"}),
    good("no GPU at all", {"train.py": _HEAD + _SET.replace('"0"', '""') + _CHOOSE, "run.sh": _RUN}),
    good(
        "the GPU of the process",
        {"train.py": _HEAD + "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\n", "run.sh": _RUN},
    ),
    good(
        "only without a launcher",
        {"train.py": _HEAD + "if 'LOCAL_RANK' not in os.environ:\n    " + _SET + _CHOOSE, "run.sh": _RUN},
    ),
    good("set in the command", {"train.py": _HEAD + _CHOOSE, "run.sh": "CUDA_VISIBLE_DEVICES=0,1,2,3 " + _RUN}),
)
