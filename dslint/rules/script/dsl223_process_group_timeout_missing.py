"""**What.** The process group is created without `timeout=`, so the default of the library applies. In
`torch.distributed` it is 30 minutes, and for NCCL 10 minutes since torch 2.2; in `deepspeed.init_distributed` it is
10 minutes in DeepSpeed 0.19.8 and 30 minutes up to 0.19.5, unless the environment variable `DEEPSPEED_TIMEOUT` (in
minutes) says otherwise. The message names the default of the release that the project states.

**Why it hurts.** A rank that waits longer than this for its peers dies, and takes the job with it. That bites where one
rank legitimately works alone for long: it downloads or tokenizes the data set while the others wait at a barrier, or
(ZeRO-3 inference) generates a longer answer than its peers. There the finding is a warning; elsewhere it is a note.

**Fix.** `timeout=timedelta(hours=2)` where a late rank is expected. A longer timeout cures a rank that comes *late*;
for a rank that never comes (a collective under a rank guard, an uneven loop) it only delays the error.

**When it stays quiet.** `timeout` is given, or `**kwargs` may hold it. It is a note only, unless the file shows slow
work of one rank before a barrier or ZeRO-3 inference. One finding a file: further calls are in other branches of the
same set-up. Silent in tests (`test_*.py`, files of a folder `tests`), for a group of one rank and the backend `xla`.

**Evidence.** torch 2.13 `distributed_c10d._get_default_timeout`; `constants.default_pg_timeout` of DeepSpeed 0.19.2 to
0.19.8; https://github.com/pytorch/pytorch/pull/113094 and https://github.com/deepspeedai/DeepSpeed/pull/8253. Two
gloo ranks, one of them 6 s late: with a 2 s timeout the waiting rank raises `Timed out waiting 2000ms for recv
operation to complete`, with 15 s both finish.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.versions.resolve import covers
from dslint.python.events import Call, Event
from dslint.python.events import Context as Block
from dslint.python.queries.order import following
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.groups import backend_of, called, is_open, timeout_of
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL223",
    name="process-group-timeout-missing",
    kind="script",
    severity=Severity.INFO,
    summary="The process group is created with the default timeout",
    markers=(r"distributed|deepspeed",),
    references=(
        "https://pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group",
        "https://github.com/pytorch/pytorch/issues/135352",
        "https://github.com/InternLM/xtuner/issues/438",
        "https://github.com/OpenBMB/MiniCPM-V/issues/769",
    ),
    depends_on_run=True,
)

# Blocks that rank 0 runs before the others, by the names that everybody gives them.
_FIRST = re.compile(r"(?:^|_)(?:zero|main_process|rank_zero)_first$")
_TURNS = frozenset({"main-first", "local-main-first"})
_INFERS = re.compile(r"\.(?:generate|chat)\(|init_inference\(|inference_mode\(")
_TRAINS = re.compile(r"\.backward\(|zero_grad\(|train_batch\(|Trainer\(")
# What makes the group and waits for the others there.
_MAKES = frozenset({"default-group", "takes-timeout", "collective"})


def applies(path: str, _: Context) -> bool:
    """Tests of seconds need no timeout."""
    *folders, name = path.split("/")
    return not (name.startswith("test_") or folders[-1:] in (["test"], ["tests"]))


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first group of each module without a timeout; escalate where a rank is late for good reason."""
    # A file creates one process group, in one of the branches of its set-up: the first finding says it for all.
    first: dict[str, Event] = {}
    for found in run.occurrences("default-group"):
        event = found.event
        known = first.get(event.module.path)
        if _lacks_timeout(run, event) and (known is None or event.node.lineno < known.node.lineno):  # type: ignore[attr-defined]
            first[event.module.path] = event
    reason = (_slow_rank(run) or _zero3_inference(run)) if first else None
    for event in first.values():
        yield _finding(run, event, reason)


def _lacks_timeout(run: RunQuery, event: Event) -> bool:
    """Return whether a call makes a group of several ranks, with timeouts, and states none."""
    if not event.tags >= _MAKES or is_open(event) or timeout_of(run, event) is not None:
        return False
    written = event.nodes.get("timeout")
    if written is not None and not (isinstance(written, ast.Constant) and written.value is None):
        return False  # a caller may give it one
    backend, size = backend_of(run, event), event.arguments.get("world_size")
    if backend is not None and backend.constants == ("xla",):
        return False  # it has timeouts of its own
    return (size is None or size.constants != (1,)) and applies(event.module.path, run.context)


def _finding(run: RunQuery, event: Event, reason: tuple[str, str, tuple[Location, ...]] | None) -> Finding:
    default = _default(run, event)
    message = f"`{called(run, event)}` has no `timeout`: a rank that waits {default} for another one fails"
    hint = "Pass `timeout=timedelta(...)` if one rank may be late for good reason"
    if reason is not None:
        message = f"`{called(run, event)}` has no `timeout`: {reason[1]} {default}"
        hint = (
            "Pass `timeout=timedelta(...)` longer than the slowest rank needs; a longer timeout does not "
            "cure a rank that never arrives"
        )
    return run.finding(
        META,
        event.module,
        event.node,
        message,
        hint=hint,
        related=reason[2] if reason is not None else (),
        severity=Severity.WARNING if reason is not None else None,
        # Where the others wait for the late rank.
        facts={"call": event.api.rpartition(".")[2], "waits_in": reason[0] if reason is not None else None},
    )


def _default(run: RunQuery, event: Event) -> str:
    """Return how long ranks wait by default, in the release that the project states."""
    if event.api.startswith("deepspeed"):
        return "30 minutes" if covers(run.context.deepspeed, "<=0.19.5", "deepspeed") == "yes" else "10 minutes"
    stated = run.context.libraries.get("torch")
    is_old = stated is not None and covers(stated, "<2.2", "torch") == "yes"
    return "30 minutes" if is_old else "10 minutes (gloo: 30)"


def _slow_rank(run: RunQuery) -> tuple[str, str, tuple[Location, ...]] | None:
    """Slow work of one rank while the others wait: in a block that it runs first, or guarded before a barrier."""
    for found in run.happenings("slow"):
        event = found.event
        block = _block(found)
        name = event.api.rpartition(".")[2]
        if block is not None:
            places = (
                run.location(event.module, event.node, "rank 0 does this first"),
                run.location(block[0], block[1], "the others wait here"),
            )
            return "barrier", f"while rank 0 runs `{name}`, the others wait at most", places
        full = run.machine.worlds.full
        later = following(found.entry.tree, event) if event.lanes != full else ()
        barrier = next((e for e in later if "barrier" in e.tags and e.lanes == full), None)
        if barrier is not None:
            places = (
                run.location(event.module, event.node, "only some ranks do this"),
                run.location(barrier.module, barrier.node, "the others wait here"),
            )
            return "barrier", f"while one rank runs `{name}`, the others wait at most", places
    return None


def _block(found: Happening) -> tuple[Module, ast.AST] | None:
    """Return the block around an event that rank 0 runs first."""
    for node in found.around:
        if isinstance(node, Block):
            call = node.node.func if isinstance(node.node, ast.Call) else node.node
            name = call.attr if isinstance(call, ast.Attribute) else call.id if isinstance(call, ast.Name) else ""
            if node.tags & _TURNS or _FIRST.search(name):
                return node.module, node.node
        elif isinstance(node, Call) and _FIRST.search(getattr(node.function, "name", "")):
            return node.module, node.node
    return None


def _zero3_inference(run: RunQuery) -> tuple[str, str, tuple[Location, ...]] | None:
    """Inference with partitioned parameters, in which every rank waits for the slowest one in each layer."""
    engines = [found.event for found in run.happenings("makes-engine") if found.event.stage is not None]
    stages = {event.stage for event in engines} or {run.stage}
    text = run.machine.program.load(run.machine.program.main)
    if stages != {3} or text is None:
        return None
    source = text.source.text
    if not _INFERS.search(source) or _TRAINS.search(source):
        return None
    places = tuple(run.location(e.module, e.nodes.get("config", e.node), "ZeRO stage 3") for e in engines)
    return (
        "all_gather",
        "in each layer, ZeRO-3 inference waits for the slowest rank at most",
        places or run.context.zero_stage.origins,
    )


EXAMPLES = (
    bad(
        "a plain training script: a note",
        {"train.py": "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"},
        at="train.py:3 info",
    ),
    bad(
        "rank 0 tokenizes while the others wait",
        {
            "train.py": (
                "import torch.distributed as dist\nfrom datasets import load_dataset\n\n"
                "dist.init_process_group('nccl')\n"
                "if dist.get_rank() == 0:\n"
                "    load_dataset('json', data_files='train.jsonl').map(str).save_to_disk('cache')\n"
                "dist.barrier()\n"
            )
        },
        at="train.py:4 warning",
    ),
    bad(
        "rank 0 tokenizes first, in a block that makes the others wait",
        {
            "train.py": (
                "import torch.distributed as dist\nfrom datasets import load_dataset\n\n"
                "dist.init_process_group('nccl')\nwith torch_distributed_zero_first(local_rank):\n"
                "    data = load_dataset('json', data_files='train.jsonl').map(str)\n"
            )
        },
        at="train.py:4 warning",
    ),
    bad(
        "ZeRO-3 inference: one rank generates longer than another",
        {
            "infer.py": (
                "import deepspeed\n\n"
                "config = {'train_micro_batch_size_per_gpu': 1, 'zero_optimization': {'stage': 3}}\n"
                "deepspeed.init_distributed('nccl')\n\n\n"
                "def run(model, batch):\n"
                "    engine = deepspeed.initialize(model=model, config=config)[0]\n"
                "    return engine.module.generate(**batch, synced_gpus=True)\n"
            )
        },
        at="infer.py:4 warning",
    ),
    good(
        "a timeout",
        {
            "train.py": (
                "from datetime import timedelta\n\nimport torch.distributed as dist\n\n"
                "dist.init_process_group('nccl', timeout=timedelta(hours=2))\n"
            )
        },
    ),
    good(
        "a timeout may be among the arguments",
        {
            "train.py": (
                "import torch.distributed as dist\n\n\ndef setup(**kwargs):\n"
                "    dist.init_process_group('nccl', **kwargs)\n"
            )
        },
    ),
    good(
        "one rank; TPUs",
        {
            "train.py": "import torch.distributed as dist\n\nif tpu:\n    dist.init_process_group(backend='xla')\n"
            "else:\n    dist.init_process_group('gloo', world_size=1, rank=0, store=dist.HashStore())\n"
        },
    ),
    good(
        "one rank, by a setting of the file",
        {
            "convert.py": "import torch.distributed as dist\n\nBACKEND = 'gloo'\nRANKS = (1)\n\n"
            "dist.init_process_group(BACKEND, world_size=RANKS, rank=0, store=dist.HashStore())\n"
        },
    ),
    good(
        "a test",
        {"tests/test_ops.py": "import torch.distributed as dist\n\ndist.init_process_group('gloo')\n"},
    ),
    good(
        "a function of the project with the same name",
        {"train.py": "def init_distributed():\n    return None\n\n\ninit_distributed()\n"},
    ),
)
