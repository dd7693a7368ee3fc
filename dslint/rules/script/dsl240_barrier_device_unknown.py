"""**What.** The first thing that the ranks do over NCCL is `dist.barrier()`, and nothing says which GPU a rank
uses: no `set_device`, no `device_id=` in `init_process_group`, no `device_ids=` in the barrier. Or they exchange
objects (`all_gather_object`, `broadcast_object_list`, ...) over NCCL, and no line sets the current device.

**Why it hurts.** A barrier of NCCL is a reduction on a GPU. Without a device torch takes the current one, which is
GPU 0 on every rank, or guesses `rank % number of GPUs`, with the warning `using the device under current context ...
This can potentially cause a hang if the rank to GPU mapping is incorrect`. All ranks of a node on GPU 0 hang or fail
with "Duplicate GPU detected".

Objects travel as tensors on the current device. A model on `cuda:1` does not change which device that is.

**Fix.** `torch.cuda.set_device(local_rank)` before the barrier, or
`dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))`.

**When it stays quiet.** Something in the run sets the device or is given `device_id` or `device_ids`; another
collective comes first; the backend is not known to be NCCL; the program uses DeepSpeed, accelerate or the Trainer,
which set the device; the group may not exist yet. A barrier is a note, an exchange of objects a warning.

**Evidence.** Read from torch 2.13 `distributed_c10d.barrier`, `init_process_group` and `_get_object_coll_device`
(`torch.device("cuda")`, the current one), not run: it takes several GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, events
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.groups import after_group, backend_words
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL240",
    name="barrier-device-unknown",
    kind="script",
    severity=Severity.INFO,
    summary="A barrier or an exchange of objects over NCCL before any rank has chosen its GPU",
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
# Where a library of the list above only lends models, the process chooses for itself.
_TRAINS = re.compile(r"\b(?:\w*Trainer|\w*TrainingArguments|Accelerator|PartialState|deepspeed|lightning|mmengine)\b")
_SETS = re.compile(r"set_device(?:_index)?\(|cuda\.device\(|CUDA_VISIBLE_DEVICES|set_default_device|hvd|horovod")
_TORCH = "torch.distributed.init_process_group"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first barrier or exchange of objects when nothing before it has chosen a device."""
    yield from _barriers(run)
    yield from _exchanges(run)


def _exchanges(run: RunQuery) -> Iterator[Finding]:
    texts = [module.source.text for module in run.machine.program.modules()]
    if run.context.is_one_process or any(_SETS.search(text) or _TRAINS.search(text) for text in texts):
        return
    for event, past in after_group(run, "object-collective"):
        made = past.done[0]
        if not event.api.startswith("torch.") or event.may:
            continue
        group, device = event.arguments.get("group"), event.arguments.get("device")
        is_other = any(value is not None and value.constants != (None,) for value in (group, device))
        is_bound = "device_id" in made.arguments or made.open or made.api != _TORCH
        if is_other or is_bound or event.open or len(past.done) > 1 or backend_words(run, made) != ("nccl",):
            continue
        yield run.finding(
            META,
            event.module,
            event.node,
            "the objects travel over NCCL by the current device, which is GPU 0 in every process: NCCL refuses two"
            " ranks on one GPU",
            hint="Call `torch.cuda.set_device(local_rank)` before the process group is made",
            related=(run.location(made.module, made.node, "the process group is made here"),),
            severity=Severity.WARNING,
        )
        return


def _barriers(run: RunQuery) -> Iterator[Finding]:
    """Yield the first barrier when nothing before it has chosen a device, and nothing has used one together."""
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
            "the first operation over NCCL is a barrier, and no rank has chosen its GPU: torch guesses one, and the job"
            " hangs when two ranks of a node take the same",
            hint="Call `torch.cuda.set_device(local_rank)` first, or pass `device_id=` to `init_process_group`",
            related=(run.location(made.module, made.node, "the process group is made here"),),
        )
        return


def _chooses(run: RunQuery) -> bool:
    """Return whether something in the run may choose the device of a process."""
    if any(_CHOOSES.search(module.source.text) for module in run.machine.program.modules()):
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
_EXCHANGE = """\
import os

import torch
import torch.distributed as dist

local_rank = int(os.environ["LOCAL_RANK"])
%s
dist.init_process_group("nccl")
model = torch.nn.Linear(8, 8).to(f"cuda:{local_rank}")
mine = model(torch.randn(1, 8, device=f"cuda:{local_rank}")).tolist()
parts = [None] * dist.get_world_size()
dist.all_gather_object(parts, mine)
dist.destroy_process_group()
"""

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
    bad(
        "objects are exchanged, and only the model knows its GPU",
        {"infer.py": _EXCHANGE % ""},
        at="infer.py:12 warning",
    ),
    good(
        "objects are exchanged on a device that is chosen",
        {"infer.py": _EXCHANGE % "torch.cuda.set_device(local_rank)"},
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
