"""CUDA is started in a process that forks its workers afterwards.

**What.** A script starts CUDA (it asks for the properties of a GPU, moves a model there, makes an `Accelerator`) and
then forks processes that use CUDA: `notebook_launcher` of accelerate, `start_processes(..., start_method="fork")`, or
`multiprocessing.Process`, which forks on Linux up to Python 3.13.

**Why it hurts.** A context of CUDA does not survive a fork. The first call that needs CUDA raises in every worker:
"Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start
method". An `Accelerator` that was made before makes `notebook_launcher` raise at once.

**Fix.** Ask the GPU inside of the function that the workers run. `torch.cuda.is_available()` and
`torch.cuda.device_count()` are harmless before the fork. Or start the workers with `torch.multiprocessing.spawn`.

**When it stays quiet.** Workers are spawned (`mp.spawn`, `set_start_method`, `get_context("spawn")`);
`num_processes=1`, which forks nothing; the call that starts CUDA is under a test, or after the fork; for
`multiprocessing.Process` also where the function of the worker is not seen to use CUDA.

**Evidence.** `_lazy_init` in torch/cuda/__init__.py of torch 2.13 raises after a fork; `notebook_launcher` of
accelerate 1.15 starts its workers with `start_method="fork"` and turns the error into "CUDA has been initialized before
the `notebook_launcher` could create a forked subprocess".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Call, Event, Loop, Node, Seq, children, events, walk
from dslint.python.queries.order import ways
from dslint.python.values import Function
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.devices import is_on_current
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL286",
    name="cuda-started-before-fork",
    kind="script",
    severity=Severity.WARNING,
    summary="CUDA is started before processes are forked that use it, and raises in each of them",
    markers=(r"notebook_launcher|start_processes|Process\(", r"torch|accelerat"),
    references=(
        "https://pytorch.org/docs/stable/notes/multiprocessing.html#cuda-in-multiprocessing",
        "https://huggingface.co/docs/accelerate/basic_tutorials/notebook",
        "_lazy_init in torch/cuda/__init__.py",
    ),
    depends_on_run=True,
    no_experiment="CUDA is started on a GPU only",
)
_USES = frozenset({"touches-cuda", "starts-cuda"})
_STATES = ("accelerate.Accelerator", "accelerate.PartialState")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first call before a fork that has started CUDA for certain."""
    for found in run.happenings("spawns"):
        if not _forks(run, found):
            continue
        past = (e for way in ways(found.entry.tree, found.event) for e in _passed(way))
        started = next((e for e in past if e is not found.event and _starts(run, e, found.event)), None)
        if started is not None:
            event = found.event
            name = run.text(started.module, getattr(started.node, "func", started.node))
            yield run.finding(
                META,
                started.module,
                started.node,
                f"`{name}` starts CUDA before the workers are forked: the first CUDA call in a worker raises",
                hint="Move it into the function that the workers run, or start them with `torch.multiprocessing.spawn`",
                related=(run.location(event.module, event.node, "forks the processes"),),
            )


def _forks(run: RunQuery, found: Happening) -> bool:
    """Return whether a call starts processes that are copies of this one and use CUDA."""
    event = found.event
    if event.api == "accelerate.notebook_launcher":
        number = event.arguments.get("num_processes")
        return number is None or number.constants not in ((1,), (None,))
    if run.has("sets-start-method"):
        return False
    method = event.arguments.get("start_method")
    if event.api == "torch.multiprocessing.start_processes":
        return method is not None and method.constants == ("fork",)
    return event.api == "multiprocessing.Process" and any(e.tags & _USES for e in _of_workers(run, found))


def _of_workers(run: RunQuery, found: Happening) -> Iterator[Event]:
    """Yield the events of the functions that a call runs in its processes."""
    target = found.event.arguments.get("target")
    functions = {a.node for a in target.atoms if isinstance(a, Function)} if target is not None else set()
    for _, tree in run.trees() if functions else ():
        for node in walk(tree):
            if isinstance(node, Call) and getattr(node.function, "node", None) in functions:
                yield from events(node)


def _passed(way: list[Node]) -> Iterator[Event]:
    """Yield the events that have certainly happened on one way down to an event."""
    for parent, child in pairwise(way):
        if isinstance(parent, Seq):
            for item in parent.items:
                if item is child:
                    break
                yield from _certain(item)


def _certain(node: Node) -> Iterator[Event]:
    """Yield the events of a node that no test decides over; a loop is taken to run."""
    if isinstance(node, Event):
        if not node.may:
            yield node
    elif isinstance(node, Seq | Loop | Call) or not isinstance(node, Alt):
        for child in children(node):
            yield from _certain(child)


def _starts(run: RunQuery, event: Event, fork: Event) -> bool:
    if event.api in _STATES:
        return fork.api == "accelerate.notebook_launcher"
    return _needs_cuda(run, event)


def _needs_cuda(run: RunQuery, event: Event) -> bool:
    return ("starts-cuda" in event.tags and "sets-device" not in event.tags) or is_on_current(run, event)


_TRAIN = """\
import torch
from accelerate import Accelerator, notebook_launcher


def train(path):
    accelerator = Accelerator()
    model = accelerator.prepare(torch.nn.Linear(8, 8))
    accelerator.save_state(path)


def describe(count):
    for index in range(count):
        print(torch.cuda.get_device_properties(index).name)


def main(gpus):
    %s
    notebook_launcher(train, ("out",), num_processes=%s)


if __name__ == "__main__":
    main(4)
"""
_WORKERS = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from model import build


def work(rank):
    dist.init_process_group("nccl", rank=rank, world_size=2)
    torch.cuda.set_device(rank)
    print(build().to(f"cuda:{rank}"))


if __name__ == "__main__":
    %s
    print(build().cuda())
    workers = [mp.Process(target=work, args=(rank,)) for rank in range(2)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        if any(worker.exitcode for worker in workers):
            raise SystemExit(1)
"""
_MODEL = "import torch\n\n\ndef build():\n    return torch.nn.Linear(8, 8)\n"

EXAMPLES = (
    bad(
        "The GPUs are listed before `notebook_launcher`",
        {"train.py": _TRAIN % ("describe(gpus)", "gpus")},
        "train.py:13",
    ),
    bad(
        "An Accelerator is made before `notebook_launcher`",
        {"train.py": _TRAIN % ("print(Accelerator().device)", "gpus")},
        "train.py:17",
    ),
    bad(
        "A model is moved to the GPU before the processes are forked",
        {"work.py": _WORKERS % "torch.manual_seed(0)", "model.py": _MODEL},
        "work.py:16",
    ),
    good("The GPUs are counted", {"train.py": _TRAIN % ("print(torch.cuda.device_count())", "gpus")}),
    good("One process, in which nothing is forked", {"train.py": _TRAIN % ("describe(gpus)", "1")}),
    good(
        "The processes are spawned",
        {"work.py": _WORKERS % 'mp.set_start_method("spawn")', "model.py": _MODEL},
    ),
    good(
        "The GPUs are listed by the workers",
        {"train.py": (_TRAIN % ("pass", "gpus")).replace("    model =", "    describe(1)\n    model =")},
    ),
)
