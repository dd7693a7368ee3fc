"""**What.** A script makes the default process group a second time, or hands a timeout or backend to a library that
would make it, when it exists already.

**Why it hurts.** A second `dist.init_process_group` raises `ValueError: trying to initialize the default process group
twice!`. DeepSpeed, accelerate and Lightning adopt the group as it is: the timeout and the backend that they are given
are ignored silently, so that the long wait which the timeout allows for ends the job after 10 minutes.

**Fix.** Make the group once, with the timeout and the backend that it shall have.

**When it stays quiet.** The second call gets neither a timeout nor a backend, or the same; it is guarded by
`if not dist.is_initialized():`; the two are in different branches, or
something may leave the first one out; `destroy_process_group` lies between them.

**Evidence.** Two gloo ranks: after `init_process_group(timeout=60 s)` the group keeps 60 s whatever
`deepspeed.init_distributed`, `InitProcessGroupKwargs` and `PartialState` are given; the second `init_process_group`
raises. Alone, `PartialState` uses its timeout. DeepSpeed 0.19.8 `comm/comm.py: init_distributed`; accelerate 1.15
`state.py: PartialState`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import RAISE, Call, Event, Try
from dslint.python.queries.asked import expressions_of
from dslint.python.queries.order import Before, ends
from dslint.python.values import Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.groups import (
    after_group,
    argument_text,
    backend_name,
    backend_of,
    called,
    is_open,
    is_same_duration,
    may_be_none,
    timeout_name,
    timeout_of,
)
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL242",
    name="process-group-made-twice",
    kind="script",
    severity=Severity.WARNING,
    summary="The timeout or backend of a process group comes when the group exists already",
    markers=(r"distributed|deepspeed|accelerate|transformers|trl|lightning",),
    references=("init_distributed in deepspeed/comm/comm.py", "PartialState in accelerate/state.py"),
    depends_on_run=True,
)
_TORCH = "torch.distributed.init_process_group"
_ASKS = re.compile("initialized|available")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on a second group of torch, and on options that come too late."""
    seen: set[int] = set()
    for event, past in after_group(run, "default-group", "group-options"):
        if id(event.node) in seen or "training-arguments" in event.tags or event.may:
            continue
        found = _second(run, event, past) if event.api == _TORCH else _late(run, event, past)
        if found is not None:
            seen.add(id(event.node))
            yield found


def _second(run: RunQuery, event: Event, past: Before) -> Finding | None:
    """Tell of a call that raises, unless a test or a handler stands in between."""
    if past.tests or any(isinstance(node, Try) and any(ends(h) != RAISE for h in node.handlers) for node in past.way):
        return None
    if any(isinstance(node, Call) and _is_of_singleton(node) for node in past.way):
        return None
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{called(run, past.done[0])}` has already made the default process group: `ValueError` on every rank",
        hint="Make the group once, or ask `dist.is_initialized()` first",
        related=(run.location(past.done[0].module, past.done[0].node, "the group is made here"),),
        severity=Severity.ERROR,
        facts={"taker": "init_process_group"},
    )


def _is_of_singleton(call: Call) -> bool:
    """Return whether a constructor runs of a class that may give the object that it has given before."""
    owner = getattr(call.function, "owner", None)
    body = getattr(getattr(owner, "node", None), "body", [])
    return any(isinstance(node, ast.FunctionDef) and node.name == "__new__" for node in body)


def _late(run: RunQuery, event: Event, past: Before) -> Finding | None:
    """Tell of a timeout or backend that the group does not get, which it has otherwise on every way."""
    if any(_ASKS.search(test.module.text(node)) for test in past.tests for node in expressions_of(test)):
        return None
    for option in ("timeout", "backend"):
        name, given = _option(run, event, option)
        if given is not None and all(_differs(run, first, given, option) for first in past.done):
            text, node = argument_text(run, event, name)
            return run.finding(
                META,
                event.module,
                node,
                f"the {option} `{text}` has no effect: `{called(run, past.done[0])}` has already made the process"
                " group",
                hint=f"Pass the {option} to the first call, or drop that call",
                related=(run.location(past.done[0].module, past.done[0].node, "the group is made here"),),
                facts={"taker": event.api.rpartition(".")[2], "option": option},
            )
    return None


def _option(run: RunQuery, event: Event, option: str) -> tuple[str, Value | None]:
    if option == "timeout":
        return timeout_name(run, event), timeout_of(run, event)
    return backend_name(run, event), backend_of(run, event)


def _differs(run: RunQuery, first: Event, given: Value, option: str) -> bool:
    """Return whether the first call certainly says something else, or leaves the timeout at its default."""
    if may_be_none(given) or is_open(first):
        return False
    _, stated = _option(run, first, option)
    if stated is None:
        return option == "timeout"
    if option == "timeout":
        return is_same_duration(stated, given) is False
    one, two = stated.constants, given.constants
    if one is None or two is None or len(one) != 1 or len(two) != 1:
        return False
    # "cpu:gloo,cuda:nccl" holds both.
    return not (str(one[0]) in str(two[0]) or str(two[0]) in str(one[0]))


_HEAD = "from datetime import timedelta\n\nimport deepspeed\nimport torch.distributed as dist\n"
_ACCELERATE = "from accelerate import Accelerator, InitProcessGroupKwargs, PartialState\n"

EXAMPLES = (
    bad(
        "a timeout for DeepSpeed, which adopts the group",
        {
            "train.py": _HEAD + "\ndist.init_process_group('nccl')\n"
            "deepspeed.init_distributed(timeout=timedelta(hours=2))\n"
        },
        at="train.py:7 warning",
    ),
    bad(
        "a timeout for accelerate",
        {
            "train.py": _HEAD + _ACCELERATE + "\nstate = PartialState()\n"
            "handler = InitProcessGroupKwargs(timeout=timedelta(hours=2))\n"
            "accelerator = Accelerator(kwargs_handlers=[handler])\n"
        },
        at="train.py:8 warning",
    ),
    bad(
        "another backend",
        {"train.py": _HEAD + "\ndist.init_process_group('gloo')\ndeepspeed.init_distributed('nccl')\n"},
        at="train.py:7 warning",
    ),
    bad(
        "twice",
        {
            "train.py": _HEAD + "\n\ndef main():\n    deepspeed.init_distributed()\n"
            "    dist.init_process_group('nccl', timeout=timedelta(hours=2))\n"
        },
        at="train.py:9 error",
    ),
    bad(
        "a helper of another file, a class, and a timeout in a field",
        {
            "train.py": "from datetime import timedelta\n\nimport deepspeed\nfrom parallel import Setup\n\n\n"
            "class Job:\n    def __init__(self, hours):\n        self.limit = timedelta(hours=hours)\n"
            "        self.setup = Setup('nccl')\n\n    def run(self):\n"
            "        deepspeed.init_distributed(timeout=self.limit)\n\n\nJob(3).run()\n",
            "parallel.py": "import torch.distributed as dist\n\n\nclass Setup:\n    def __init__(self, backend):\n"
            "        if not dist.is_initialized():\n            dist.init_process_group(backend=backend)\n"
            "        self.rank = dist.get_rank()\n",
        },
        at="train.py:13 warning",
    ),
    bad(
        "on both ways",
        {
            "train.py": _HEAD + "\n\ndef start(tcp):\n    if tcp:\n"
            "        dist.init_process_group('nccl', None)\n    else:\n        deepspeed.init_distributed()\n"
            "\n\nstart(None)\ndeepspeed.init_distributed(timeout=timedelta(hours=2))\n"
        },
        at="train.py:15 warning",
    ),
    bad(
        "the arguments of the Trainer make it, and a strategy of Lightning comes late",
        {
            "train.py": _HEAD + _ACCELERATE + "from transformers import TrainingArguments\n\n"
            "arguments = TrainingArguments('out')\n"
            "accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(hours=2))])\n",
            "fit.py": _HEAD + "from lightning.pytorch.strategies import DDPStrategy\n\n"
            "dist.init_process_group('nccl')\nstrategy = DDPStrategy(timeout=timedelta(hours=2))\n",
        },
        at=("train.py:9 warning", "fit.py:8 warning"),
    ),
    good(
        "a class with one object, which makes the group once",
        {
            "state.py": "import torch.distributed as dist\n\n\nclass State:\n    _one = None\n    _is_ready = False\n\n"
            "    def __new__(cls, *args):\n        if cls._one is None:\n            cls._one = super().__new__(cls)\n"
            "        return cls._one\n\n    def __init__(self):\n        if self._is_ready:\n            return\n"
            "        dist.init_process_group('nccl')\n        self._is_ready = True\n",
            "train.py": "from state import State\n\nState()\nState()\n",
        },
    ),
    good(
        "the group is destroyed by a helper, and made by a child",
        {
            "train.py": _HEAD + "import torch.multiprocessing as mp\n\n\ndef leave():\n"
            "    dist.destroy_process_group()\n\n\ndef work(rank):\n"
            "    dist.init_process_group('nccl', rank=rank, world_size=2, timeout=timedelta(hours=3))\n\n\n"
            "if __name__ == '__main__':\n    dist.init_process_group('gloo')\n    leave()\n"
            "    dist.init_process_group('gloo')\n    mp.spawn(work, nprocs=2)\n"
        },
    ),
    good(
        "a helper that asks",
        {
            "train.py": _HEAD + "\n\ndef start(limit):\n    if dist.is_initialized():\n        return\n"
            "    deepspeed.init_distributed(timeout=limit)\n\n\n"
            "dist.init_process_group('nccl')\nstart(timedelta(hours=2))\n"
        },
    ),
    good(
        "once",
        {"train.py": _HEAD + "\ndeepspeed.init_distributed(timeout=timedelta(hours=2))\nprint(dist.get_rank())\n"},
    ),
    good(
        "it is asked for",
        {
            "train.py": _HEAD + "\ndist.init_process_group('nccl', timeout=timedelta(hours=2))\n"
            "if not dist.is_initialized():\n    deepspeed.init_distributed(timeout=timedelta(hours=1))\n"
        },
    ),
    good(
        "the same backend, and no timeout",
        {
            "train.py": _HEAD + "\ndist.init_process_group('nccl', timeout=timedelta(hours=2))\n"
            "deepspeed.init_distributed('nccl')\n"
        },
    ),
    good(
        "one of two branches, and one of two functions",
        {
            "train.py": _HEAD
            + "\n\ndef main(args):\n    if args.gloo:\n        dist.init_process_group('gloo')\n    else:\n"
            "        deepspeed.init_distributed('nccl', timeout=timedelta(hours=2))\n\n\ndef test():\n"
            "    dist.init_process_group('gloo', timeout=timedelta(hours=3))\n"
        },
    ),
    good(
        "the first group is destroyed",
        {
            "train.py": _HEAD + "\ndist.init_process_group('gloo')\ndist.destroy_process_group()\n"
            "dist.init_process_group('nccl', timeout=timedelta(hours=2))\n"
        },
    ),
)
