"""**What.** `os.environ["CUDA_VISIBLE_DEVICES"]` is written below a line that has started CUDA.

**Why it hurts.** CUDA reads the variable once, when it starts in the process. A later value changes nothing: the
process works on GPUs that the script believes hidden, beside the runs of others, and finds no fault.

**Fix.** Write it above everything that touches CUDA, or better in the command: `CUDA_VISIBLE_DEVICES=0,1 torchrun ...`.

**When it stays quiet.** After `import torch` alone, which does not start CUDA, nor does `torch.cuda.device_count()`;
when the lines are in different functions or arms; below `set_device`, which has chosen the GPU of this process
already; in files that start processes, whose environment it may be for.

**Evidence.** torch 2.13 `torch/cuda/__init__.py`: `is_available` "initializes the CUDA Driver API via `cuInit`",
`_lazy_init` makes the context; CUDA C++ Programming Guide, "CUDA Environment Variables": changes after that have no
effect.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, events
from dslint.python.queries.order import before
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.groups import called
from dslint.rules.ranks.visible import writes
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL248",
    name="cvd-set-after-torch",
    kind="script",
    severity=Severity.WARNING,
    summary="`CUDA_VISIBLE_DEVICES` is written after CUDA has started, and ignored",
    markers=(r"CUDA_VISIBLE_DEVICES",),
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables",),
    no_experiment="CUDA has to start for the value to come too late",
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on a write that comes when CUDA has certainly started."""
    for found, _ in writes(run):
        event, tree = found.event, found.entry.tree
        for past in before(tree, event, _starts_cuda, lambda _: False):
            earlier = list(events(tree))
            earlier = earlier[: next(n for n, e in enumerate(earlier) if e is event)]
            if not past.done or any("sets-device" in e.tags for e in earlier):
                continue  # a process that has its GPU writes it for what it starts, or for who asks for it
            started = past.done[0]
            yield run.finding(
                META,
                event.module,
                event.node,
                f"`CUDA_VISIBLE_DEVICES` has no effect here: `{called(run, started)}(...)` has already started CUDA",
                hint="Write it above everything that touches CUDA, or set it in the command",
                related=(run.location(started.module, started.node, "CUDA starts here"),),
            )
            break


def _starts_cuda(event: Event) -> bool:
    """Return whether a call makes CUDA ask which GPUs there are."""
    if "starts-cuda" in event.tags:
        return True
    given = event.arguments.values() if "moves-to-device" in event.tags else ()
    words = [value.constants for value in given]
    return any(known is not None and all(str(word).startswith("cuda") for word in known) for known in words if known)


_HEAD = "import os\n\nimport torch\n\n"
_SET = "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"

EXAMPLES = (
    bad(
        "after a model has moved",
        {"train.py": _HEAD + "model = torch.nn.Linear(8, 8).cuda()\n" + _SET},
        at="train.py:6 warning",
    ),
    bad(
        "after the question for a GPU",
        {"train.py": _HEAD + "assert torch.cuda.is_available()\n" + _SET},
        at="train.py:6",
    ),
    bad(
        "in a function, with a value of the caller",
        {
            "train.py": _HEAD + "\ndef main(gpus):\n    print(torch.cuda.get_device_name(0))\n"
            "    os.environ['CUDA_VISIBLE_DEVICES'] = gpus\n"
        },
        at="train.py:8",
    ),
    good(
        "below the choice of the GPU, for an inference server that asks for the variable",
        {
            "train.py": _HEAD
            + "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
            "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\n"
        },
    ),
    bad(
        "in a helper of another file, after another one has asked",
        {
            "train.py": "from gpus import choose, count\n\ncount()\nchoose('0')\nimport torch\n\n"
            "torch.distributed.init_process_group('gloo')\n",
            "gpus.py": "import os\n\nimport torch\n\n\ndef count():\n    return torch.cuda.get_device_name(0)\n\n\n"
            "def choose(number):\n    os.environ.update({'CUDA_VISIBLE_DEVICES': number})\n",
        },
        at="gpus.py:11",
    ),
    good("after the import only", {"train.py": _HEAD + _SET + "model = torch.nn.Linear(8, 8).cuda()\n"}),
    good(
        "after a count, which asks the driver's library",
        {"train.py": _HEAD + "n = torch.cuda.device_count()\n" + _SET},
    ),
    good(
        "another arm",
        {
            "train.py": _HEAD + "if os.environ.get('CHECK'):\n    print(torch.cuda.is_available())\nelse:\n    " + _SET
        },
    ),
    good(
        "for the processes that it starts",
        {
            "run.py": "import os\nimport subprocess\n\nimport torch\n\nassert torch.cuda.is_available()\n"
            + _SET
            + "subprocess.run(['python', 'train.py'])\n"
        },
    ),
    good(
        "a function that is called first",
        {
            "train.py": _HEAD + "\ndef build():\n    return torch.nn.Linear(8, 8).cuda()\n\n\n" + _SET + "build()\n"
        },
    ),
)  # fmt: skip
