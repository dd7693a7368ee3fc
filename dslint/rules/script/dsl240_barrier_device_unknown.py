"""**What.** The first thing that the ranks do over NCCL is `dist.barrier()`, and nothing says which GPU a rank
uses: no `set_device`, no `device_id=` in `init_process_group`, no `device_ids=` in the barrier.

**Why it hurts.** A barrier of NCCL is a reduction on a GPU. Without a device torch takes the current one, which is
GPU 0 on every rank, or guesses `rank % number of GPUs`, with the warning `using the device under current context ...
This can potentially cause a hang if the rank to GPU mapping is incorrect`. All ranks of a node on GPU 0 hang or fail
with "Duplicate GPU detected".

**Fix.** `torch.cuda.set_device(local_rank)` before the barrier, or
`dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))`.

**When it stays quiet.** Something in the run sets the device or is given `device_id` or `device_ids`; another
collective comes first; the backend is not known to be NCCL; the program uses DeepSpeed, accelerate or the Trainer,
which set the device; the group may not exist yet. It is a note.

**Evidence.** Read from torch 2.13 `distributed_c10d.barrier` and `init_process_group`, not run: it takes several GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, events
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.groups import after_group, backend_words
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL240",
    name="barrier-device-unknown",
    kind="script",
    severity=Severity.INFO,
    summary="A barrier over NCCL before any rank has chosen its GPU",
    markers=(r"distributed",),
    references=(
        "https://github.com/pytorch/pytorch/issues/60752",
        "https://github.com/deepspeedai/DeepSpeed/pull/7266",
    ),
    no_experiment="which GPU a barrier takes shows only with several GPUs and NCCL",
    depends_on_run=True,
)
# An import of a library that chooses the device of a process itself, or a call that does, of whatever object.
_CHOOSES = re.compile(
    r"\bset_device(?:_index)?\(|(?:^\s*(?:import|from)\s+|import\w*\(\s*[\"'])"
    r"(?:deepspeed|accelerate|transformers|lightning|pytorch_lightning|mmengine)\b",
    re.MULTILINE,
)
_TORCH = "torch.distributed.init_process_group"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first barrier when nothing before it has chosen a device, and nothing has used one together."""
    if _chooses(run):
        return
    for event, past in after_group(run, "barrier"):
        made = past.done[0]
        given = [value for name, value in event.arguments.items() if name != "group" or value.constants != (None,)]
        if event.api != "torch.distributed.barrier" or given or event.open or event.may or len(past.done) > 1:
            continue
        if made.api != _TORCH or made.open or backend_words(run, made) != ("nccl",):
            continue
        if not _is_first(run, event):
            return
        yield run.finding(
            META,
            event.module,
            event.node,
            "the first NCCL operation is a barrier before any rank chose its GPU: torch guesses, and two may take the"
            " same one",
            hint="Call `torch.cuda.set_device(local_rank)` first, or pass `device_id=` to `init_process_group`",
            related=(run.location(made.module, made.node, "the process group is made here"),),
        )
        return


def _chooses(run: RunQuery) -> bool:
    """Return whether something in the run may choose the device of a process."""
    if any(module.search(_CHOOSES) for module in run.machine.program.modules()):
        return True
    for _, tree in run.trees():
        for event in events(tree):
            named = [event.arguments.get(name) for name in ("device_id", "device_ids")]
            if "sets-device" in event.tags or any(v is not None and v.constants != (None,) for v in named):
                return True
    return False


def _is_first(run: RunQuery, barrier: Event) -> bool:
    """Return whether no other collective stands before the barrier."""
    for _, tree in run.trees():
        found = list(events(tree))
        at = next((number for number, event in enumerate(found) if event is barrier), None)
        if at is not None:
            return not any(e.tags & {"collective", "wraps-model"} and "default-group" not in e.tags for e in found[:at])
    return True


_HEAD = "import torch\nimport torch.distributed as dist\n\n"

EXAMPLES = (
    bad(
        "a barrier first",
        {"train.py": _HEAD + "dist.init_process_group('nccl')\nmodel = make().cuda()\ndist.barrier()\n"},
        at="train.py:6 info",
    ),
    bad(
        "in a helper, after a group with a backend from a table",
        {
            "train.py": "from parallel import Job\nimport torch.distributed as dist\n\njob = Job(backend='nccl')\n"
            "job.wait()\ndist.barrier()\n",
            "parallel.py": "import torch.distributed as dist\n\n\nclass Job:\n    def __init__(self, **options):\n"
            "        dist.init_process_group(**options)\n\n    def wait(self):\n        dist.barrier()\n",
        },
        at="parallel.py:9 info",
    ),
    good(
        "the device is chosen by a helper",
        {
            "train.py": "from parallel import choose\nimport torch.distributed as dist\n\n"
            "dist.init_process_group('nccl')\nchoose(3)\ndist.barrier()\n",
            "parallel.py": "import torch\n\n\ndef choose(number):\n    torch.cuda.set_device(number)\n",
        },
    ),
    good(
        "the device is chosen",
        {"train.py": _HEAD + "dist.init_process_group('nccl')\ntorch.cuda.set_device(local_rank)\ndist.barrier()\n"},
    ),
    good(
        "the group knows the device",
        {
            "train.py": _HEAD + "dist.init_process_group('nccl', device_id=torch.device('cuda', local_rank))\n"
            "dist.barrier()\n"
        },
    ),
    good("over gloo", {"train.py": _HEAD + "dist.init_process_group('gloo')\ndist.barrier()\n"}),
    good(
        "DeepSpeed chooses it",
        {"train.py": "import deepspeed\n" + _HEAD + "dist.init_process_group('nccl')\ndist.barrier()\n"},
    ),
)
