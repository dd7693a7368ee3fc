"""**What.** `torch.cuda.set_per_process_memory_fraction(x)` is called with a number that cannot be right for a
distributed job: above 1, a small share of the GPU in a ZeRO-3 script, more than a share where several processes use one
GPU, or for a device that is not chosen yet.

**Why it hurts.** The limit holds for one process on one device. Above 1, or as an integer, the call raises. A small
share makes one rank run out of memory in a large gather while its peers wait in the same collective until the timeout.
Called before `torch.cuda.set_device` and without `device=`, or with `device=0`, it limits GPU 0 for every rank instead
of the rank's own GPU.

**Fix.** Call `torch.cuda.set_device(local_rank)` first, pass `device=local_rank`, and leave the fraction near 1 (one
process a GPU) or drop the call.

**When it stays quiet.** Scripts without torch.distributed, DeepSpeed or accelerate; values that cannot be read;
a fraction of at least 0.5 on a chosen device; libraries that take the fraction as a parameter.

**Evidence.** torch 2.13 `cuda/memory.py: set_per_process_memory_fraction`: `TypeError: Invalid type for fraction
argument, must be float`, `ValueError: Invalid fraction value: ... Allowed range: 0~1`; `device=None` is
`torch.cuda.current_device()`, which is 0 until `set_device`. Issue https://github.com/OpenBMB/MiniCPM-V/issues/769.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Event, events
from dslint.python.values import PerRank
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.devices import choices, device_words
from dslint.rules.runs import Happening, RunQuery

_DISTRIBUTED = re.compile(r"torch\.distributed|torch import distributed|deepspeed|accelerate")
# Below this share of a GPU, ZeRO-3's gathered layers and their activations rarely fit.
_SMALL = 0.5
_FIRST_GPU = frozenset({"cuda:0"})

META = RuleMeta(
    code="DSL258",
    name="memory-fraction-literal",
    kind="script",
    severity=Severity.WARNING,
    summary="The memory fraction of a process does not fit a distributed job",
    markers=(r"set_per_process_memory_fraction",),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.cuda.memory.set_per_process_memory_fraction.html",
        "https://github.com/OpenBMB/MiniCPM-V/issues/769",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first of the mistakes of each call that is certain."""
    for found in run.happenings("limits-memory"):
        event = found.event
        known = event.arguments["fraction"].constants if "fraction" in event.arguments else None
        value = known[0] if known is not None and len(known) == 1 else None
        texts = [module.code for module in run.machine.program.modules()]
        if event.open or event.may or not isinstance(value, int | float) or not any(map(_DISTRIBUTED.search, texts)):
            continue
        mistake = _invalid(value) or _too_small(run, value) or _of_device(run, found, value)
        if mistake is not None:
            name, message, hint, severity, related = mistake
            yield run.finding(
                META,
                event.module,
                event.node,
                message,
                hint=hint,
                severity=severity,
                related=related,
                facts={"mistake": name, "fraction": value},
            )


# What is wrong, how to say it, what to do, how bad it is, other places.
_Mistake = tuple[str, str, str, Severity | None, tuple[Location, ...]]


def _invalid(value: float) -> _Mistake | None:
    """Return what torch itself refuses."""
    if isinstance(value, int):
        message = f"the memory fraction `{value}` is not a float: the call raises `TypeError` on every rank"
        return "integer", message, f"Write `{float(value)}`", Severity.ERROR, ()
    if not 0 <= value <= 1:
        message = f"the memory fraction {value:g} is outside 0 to 1: the call raises `ValueError` on every rank"
        return "above-1", message, "Use a share of one GPU's memory, such as 0.95", Severity.ERROR, ()
    return None


def _too_small(run: RunQuery, value: float) -> _Mistake | None:
    """Return that a share is too small for the layers that ZeRO-3 gathers."""
    engine = next((found.event for found in run.happenings("makes-engine") if found.event.stage == 3), None)
    if value >= _SMALL or (run.stage != 3 and engine is None):
        return None
    message = (
        f"each process may use only {value:.0%} of its GPU, but ZeRO-3 gathers whole layers: a rank out of memory"
        " stalls the others"
    )
    hint = "Raise the fraction (one process runs on each GPU) or drop the call"
    places = (run.location(engine.module, engine.node, "the engine of ZeRO-3"),) if engine is not None else ()
    return "small-share", message, hint, None, places or run.context.zero_stage.origins


def _of_device(run: RunQuery, found: Happening, value: float) -> _Mistake | None:
    """Return that the limit is for a GPU that is not that of the process alone."""
    event = found.event
    device = event.arguments.get("device")
    is_open = device is None or device.constants == (None,)
    sharers = _sharers(run)
    if sharers > 1 and value * sharers > 1:
        message = (
            f"{sharers} processes share one GPU and may use {value:.0%} each, {value * sharers:.0%} together: the last"
            " runs out of memory"
        )
        hint = f"Allow each of them {1 / sharers:.2g}, or give each its own GPU"
        return "shared", message, hint, None, run.context.processes_per_node.origins
    if is_open and not _is_chosen(found):
        message = (
            "the memory limit is set before `torch.cuda.set_device` and without `device`: it limits GPU 0 on every rank"
        )
        hint = "Call `torch.cuda.set_device(local_rank)` first, or pass `device=local_rank`"
        return "before-set-device", message, hint, None, ()
    if device is not None and not is_open and device_words(run, device) == _FIRST_GPU and _chooses_by_rank(run):
        message = "the memory limit names GPU 0, but each rank uses its own GPU: only the first is limited"
        return "device-0", message, "Pass `device=local_rank`", None, ()
    return None


def _sharers(run: RunQuery) -> int:
    """Return how many processes of a machine work on one GPU: all of them where the run chooses GPU 0 by its name."""
    chosen = [value for found in run.happenings("sets-device") for value, _ in choices(found.event)]
    if any(device_words(run, value) == _FIRST_GPU for value in chosen):
        number: int = run.context.processes_per_node.get_or(1)
        return number
    return 1


def _chooses_by_rank(run: RunQuery) -> bool:
    chosen = [value for found in run.happenings("sets-device") for value, _ in choices(found.event)]
    return any(value.atoms and all(isinstance(atom, PerRank) for atom in value.atoms) for value in chosen)


def _is_chosen(found: Happening) -> bool:
    """Return whether a device is selected before the call, or by something that may select one."""
    order = list(events(found.entry.tree))
    at = next(number for number, event in enumerate(order) if event is found.event)
    if any(map(_may_select, order[:at])):
        return True
    # A function may be called when a device is chosen; only a run that chooses it later tells.
    inside = found.entry.kind != "script" or bool(found.calls)
    return inside and not any("sets-device" in event.tags for event in order[at:])


def _may_select(event: Event) -> bool:
    is_of_torch = event.api.startswith("torch.")
    return bool(event.tags & {"sets-device", "uses-device"}) or ("starts-group" in event.tags and not is_of_torch)


EXAMPLES = (
    bad(
        "limits GPU 0 for every rank",
        {
            "infer.py": (
                "import os\n\nimport torch\nimport torch.distributed as dist\n\n"
                "local_rank = int(os.environ['LOCAL_RANK'])\n"
                "torch.cuda.set_per_process_memory_fraction(0.9)\n"
                "torch.cuda.set_device(local_rank)\n"
            )
        },
        at="infer.py:7 warning",
    ),
    bad(
        "a small share under ZeRO-3",
        {
            "infer.py": (
                "import deepspeed\nimport torch\n\n"
                "config = {'train_micro_batch_size_per_gpu': 1, 'zero_optimization': {'stage': 3}}\n\n\n"
                "def main(local_rank, model):\n"
                "    torch.cuda.set_device(local_rank)\n"
                "    torch.cuda.set_per_process_memory_fraction(0.3, local_rank)\n"
                "    return deepspeed.initialize(model=model, config=config)\n"
            )
        },
        at="infer.py:9 warning",
    ),
    bad(
        "more than the whole GPU",
        {
            "train.py": (
                "import deepspeed\nimport torch\n\n\ndef main(local_rank):\n"
                "    torch.cuda.set_device(local_rank)\n"
                "    torch.cuda.set_per_process_memory_fraction(1.5)\n"
            )
        },
        at="train.py:7 error",
    ),
    bad(
        "GPU 0 by its name, where each rank has its own",
        {
            "train.py": (
                "import os\n\nimport torch\nimport torch.distributed\n\n"
                "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
                "torch.cuda.set_per_process_memory_fraction(0.9, 'cuda:0')\n"
            )
        },
        at="train.py:7 warning",
    ),
    bad(
        "an integer",
        {"train.py": "import deepspeed\nimport torch\n\ntorch.cuda.set_per_process_memory_fraction(1, 0)\n"},
        at="train.py:4 error",
    ),
    bad(
        "two processes on one GPU",
        {
            "infer.py": (
                "import torch\nimport torch.distributed as dist\n\n"
                "torch.cuda.set_device(0)\n"
                "torch.cuda.set_per_process_memory_fraction(0.8)\n"
                "dist.init_process_group('gloo')\n"
            ),
            "run.sh": "torchrun --nproc_per_node 2 infer.py\n",
        },
        at="infer.py:5 warning",
    ),
    bad(
        "in a helper of another file, before the device is chosen",
        {
            "train.py": (
                "import os\n\nimport torch\nimport torch.distributed as dist\nfrom memory import limit\n\n"
                "limit(0.9)\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\ndist.init_process_group('nccl')\n"
            ),
            "memory.py": "from torch import cuda\n\n\ndef limit(share):\n"
            "    cuda.set_per_process_memory_fraction(fraction=share)\n",
        },
        at="memory.py:5 warning",
    ),
    good(
        "two processes that share one GPU fairly",
        {
            "infer.py": (
                "import torch\nimport torch.distributed as dist\n\n"
                "torch.cuda.set_device(0)\n"
                "torch.cuda.set_per_process_memory_fraction(0.45)\n"
                "dist.init_process_group('gloo')\n"
            ),
            "run.sh": "torchrun --nproc_per_node 2 infer.py\n",
        },
    ),
    good(
        "most of the chosen GPU",
        {
            "train.py": (
                "import deepspeed\nimport torch\n\n\ndef main(local_rank):\n"
                "    torch.cuda.set_device(local_rank)\n"
                "    torch.cuda.set_per_process_memory_fraction(0.95, local_rank)\n"
            )
        },
    ),
    good(
        "a script of one process",
        {"demo.py": "import torch\n\ntorch.cuda.set_per_process_memory_fraction(0.25)\n"},
    ),
    good(
        "the caller decides",
        {
            "memory.py": (
                "import torch\nimport torch.distributed as dist\n\n\ndef limit(fraction, device):\n"
                "    torch.cuda.set_per_process_memory_fraction(fraction, device)\n"
            )
        },
    ),
)
