"""**What.** `ddp_timeout` of the Hugging Face `TrainingArguments` is set, but the process group exists already, or
`use_cpu=True` is next to it.

**Why it hurts.** `ddp_timeout` is handed over when `TrainingArguments` makes the process group. A group that
`dist.init_process_group`, `deepspeed.init_distributed`, `PartialState()` or `Accelerator()` made before is adopted with
the timeout that it has (10 minutes with NCCL), and with `use_cpu` the timeout is not passed at all (30 minutes). The
first long wait ends the job although the arguments allow hours.

**Fix.** Drop the earlier initialization (the Trainer makes the group itself), or give it the timeout:
`dist.init_process_group(timeout=timedelta(hours=2))`.

**When it stays quiet.** The earlier call gets a timeout as well; it is in a branch of its own, or in another
function, and may not run before `TrainingArguments`; `ddp_timeout` is left at
its default; `TrainingArguments` in front. `--ddp_timeout` counts when every launch command of the project passes it.

**Evidence.** transformers 5.23 `TrainingArguments._setup_devices`. Two gloo ranks: after `init_process_group` with a
timeout of 60 s the group waits 60 s, with `use_cpu=True` 1,800 s, where `ddp_timeout=7200` is set; without either it
waits 7,200 s.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Event, events
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.groups import after_group, argument_text, called, may_have_timeout, timeout_of
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL225",
    name="ddp-timeout-without-effect",
    kind="script",
    severity=Severity.WARNING,
    summary="`ddp_timeout` comes when the process group exists already",
    markers=(r"transformers|trl", r"Arguments|Config|parse_args_into_dataclasses|import \*"),
    references=("TrainingArguments._setup_devices in transformers/training_args.py",),
    versions=("transformers>=4.31",),
    depends_on_run=True,
)
_DEFAULT = 1800
_HINT = "Pass `timeout=timedelta(seconds=...)` where the process group is made, or let the Trainer make it"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the arguments of a Trainer whose timeout certainly has no effect."""
    seen: set[int] = set()
    for event, past in after_group(run, "training-arguments"):
        if id(event.node) in seen or event.may or any(may_have_timeout(run, first) for first in past.done):
            continue
        first = past.done[0]
        why = f"`{called(run, first)}` has already made the process group"
        found = _finding(run, event, why, run.location(first.module, first.node, "the group is made here"))
        if found is not None:
            seen.add(id(event.node))
            yield found
    for _, tree in run.trees():
        for event in events(tree):
            if "training-arguments" in event.tags and id(event.node) not in seen and _is_on_cpu(event):
                found = _finding(run, event, "transformers does not pass it on with `use_cpu`", None)
                if found is not None:
                    seen.add(id(event.node))
                    yield found


def _is_on_cpu(event: Event) -> bool:
    """Return whether the arguments ask for the CPU for certain."""
    given = [event.arguments.get(name) for name in ("use_cpu", "no_cuda")]
    return any(value is not None and value.constants == (True,) for value in given)


def _finding(run: RunQuery, event: Event, why: str, made: Location | None) -> Finding | None:
    """Tell of a timeout that the code states, or else of one that every launch command passes."""
    timeout = timeout_of(run, event)
    if timeout is None:
        return None
    is_option = isinstance(timeout.number, tuple) and timeout.number[:1] == ("option",)
    passed = run.context.arguments.get("ddp_timeout") if is_option else None
    if is_option and (passed is None or not passed.is_known or passed.value == str(_DEFAULT) or made is None):
        return None
    if timeout.constants in ((None,), (_DEFAULT,)):
        return None
    text, node = argument_text(run, event, "ddp_timeout")
    what = f"`ddp_timeout={text}`"
    if passed is not None:
        node, what = event.node, f"`--ddp_timeout {passed.value}` of the launch command"
    cpu = event.nodes.get("use_cpu") or event.nodes.get("no_cuda") or event.node
    places = (made,) if made is not None else (run.location(event.module, cpu),)
    return run.finding(
        META,
        event.module,
        node,
        f"{what} has no effect: {why}",
        hint=_HINT,
        related=(*places, *(passed.origins if passed is not None else ())),
        facts={"taker": "ddp_timeout" if made is not None else "ddp_timeout-use_cpu"},
    )


_HEAD = "import torch.distributed as dist\nfrom transformers import TrainingArguments\n\n"
_LONG = "args = TrainingArguments('out', ddp_timeout=18000)\n"

EXAMPLES = (
    bad(
        "after the process group",
        {"train.py": _HEAD + "dist.init_process_group('nccl')\n" + _LONG},
        at="train.py:5 warning",
    ),
    bad(
        "after a helper that makes it",
        {
            "train.py": (
                "from accelerate import PartialState\nfrom transformers import TrainingArguments\n\n\ndef start():\n"
                "    state = PartialState()\n    print(state.process_index)\n\n\ndef main():\n    start()\n"
                "    return TrainingArguments('out', ddp_timeout=18000)\n"
            )
        },
        at="train.py:12 warning",
    ),
    bad(
        "on the CPU",
        {"train.py": _HEAD + "args = TrainingArguments('out', use_cpu=True, ddp_timeout=18000)\n"},
        at="train.py:4 warning",
    ),
    bad(
        "from the command line",
        {
            "train.py": (
                "import deepspeed\nfrom transformers import HfArgumentParser, TrainingArguments\n\n"
                "deepspeed.init_distributed()\nparser = HfArgumentParser(TrainingArguments)\n"
                "(args,) = parser.parse_args_into_dataclasses()\n"
            ),
            "run.sh": "deepspeed --num_gpus 8 train.py --output_dir out --ddp_timeout 36000\n",
        },
        at="train.py:6 warning",
    ),
    bad(
        "a field of a class of the project, after a helper of another file",
        {
            "train.py": (
                "from dataclasses import dataclass\n\nfrom parallel import start\n"
                "from transformers import TrainingArguments\n\n\n@dataclass\n"
                "class Arguments(TrainingArguments):\n    extra: int = 3\n\n\n"
                "options = {'output_dir': 'out', 'ddp_timeout': 36000}\nstart()\n"
                "arguments = Arguments(**options)\n"
            ),
            "parallel.py": "import deepspeed\n\n\ndef start():\n    deepspeed.init_distributed()\n",
        },
        at="train.py:12 warning",
    ),
    good("before anything else", {"train.py": _HEAD + _LONG + "print(dist.is_initialized())\n"}),
    good(
        "the group has a timeout of its own",
        {
            "train.py": "from datetime import timedelta\n"
            + _HEAD
            + "dist.init_process_group('nccl', timeout=timedelta(hours=5))\n"
            + _LONG
        },
    ),
    good(
        "another branch makes the group",
        {"train.py": _HEAD + "if alone:\n    dist.init_process_group('gloo')\nelse:\n    " + _LONG},
    ),
    good(
        "the default",
        {"train.py": _HEAD + "dist.init_process_group('nccl')\nTrainingArguments('o', ddp_timeout=1800)\n"},
    ),
)
