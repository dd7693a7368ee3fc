"""**What.** A script puts something on `"cuda"`, or asks `torch.cuda` for the state of the device, above the line that
chooses its GPU.

**Why it hurts.** What is above `torch.cuda.set_device` happens on GPU 0, on every rank: each of the eight processes
of a machine keeps a CUDA context of some hundred MiB there, and what was allocated stays there. The first GPU runs out
of memory before the others do.

**Fix.** Make `torch.cuda.set_device(local_rank)` the first line that touches CUDA.

**When it stays quiet.** It is off unless selected: most scripts have room for it. Only what every process has certainly
run before counts, and only devices that are chosen by a rank.

**Evidence.** `torch/cuda/__init__.py` of torch 2.13: `_lazy_init` makes a context on the current device, which is 0
until `set_device`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.queries.order import before
from dslint.python.values import PerRank, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.devices import choices, device_words, is_on_current
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL239",
    name="cuda-init-before-set-device",
    kind="script",
    severity=Severity.INFO,
    summary="CUDA starts on GPU 0 before the process chooses its own",
    markers=(r"set_device", r"cuda"),
    references=("https://pytorch.org/docs/stable/generated/torch.cuda.set_device.html",),
    depends_on_run=True,
    optional=True,
    no_experiment="a context on GPU 0 needs a GPU",
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Compare each choice of a device by a rank with what has certainly started CUDA before it."""
    for found in run.happenings("sets-device"):
        event = found.event
        if event.may or not any(_is_by_rank(value) for value, _ in choices(event)):
            continue
        for past in before(found.entry.tree, event, lambda e: _starts_on_first(run, e), _chooses):
            if past.done:
                started = past.done[0]
                yield run.finding(
                    META,
                    started.module,
                    started.node,
                    "this starts CUDA on GPU 0 in every rank, before the process chooses its own device below",
                    hint="Move `set_device` above it",
                    related=(run.location(event.module, event.node, "the device is chosen here"),),
                )
                break


def _is_by_rank(value: Value) -> bool:
    return bool(value.atoms) and all(isinstance(atom, PerRank) for atom in value.atoms)


def _chooses(event: Event) -> bool:
    return "sets-device" in event.tags


def _starts_on_first(run: RunQuery, event: Event) -> bool:
    """Return whether a call starts CUDA on GPU 0: it names that GPU, or none where none is chosen."""
    if "touches-cuda" not in event.tags:
        return is_on_current(run, event)
    given = event.arguments.get("device")
    named = device_words(run, given) if given is not None and given.constants != (None,) else frozenset()
    return not event.open and not _chooses(event) and named is not None and named <= {"cuda", "cuda:0"}


_HEAD = "import os\n\nimport torch\n\nlocal_rank = int(os.environ['LOCAL_RANK'])\n"
_SET = "torch.cuda.set_device(local_rank)\n"

EXAMPLES = (
    bad(
        "the model first",
        {"train.py": _HEAD + "model = torch.nn.Linear(8, 8).cuda()\n" + _SET},
        at="train.py:6 info",
    ),
    bad(
        "a question that makes a context",
        {"train.py": _HEAD + "print(torch.cuda.mem_get_info())\n" + _SET},
        at="train.py:6",
    ),
    good("the device first", {"train.py": _HEAD + _SET + "model = torch.nn.Linear(8, 8).cuda()\n"}),
    good("a question that makes none", {"train.py": _HEAD + "print(torch.cuda.is_available())\n" + _SET}),
    good(
        "another function",
        {
            "train.py": _HEAD + "\n\ndef build():\n    return torch.nn.Linear(8, 8).cuda()\n\n\n" + _SET + "build()\n"
        },
    ),
)  # fmt: skip
