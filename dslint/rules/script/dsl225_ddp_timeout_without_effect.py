"""**What.** `ddp_timeout` of the Hugging Face `TrainingArguments` is set, but the process group exists already, or
`use_cpu=True` stands beside it.

**Why it hurts.** `ddp_timeout` is handed over when `TrainingArguments` makes the process group. A group that
`dist.init_process_group`, `deepspeed.init_distributed`, `PartialState()` or `Accelerator()` made before is adopted with
the timeout that it has (10 minutes with NCCL), and with `use_cpu` the timeout is not passed at all (30 minutes). The
first long wait ends the job although the arguments allow hours.

**Fix.** Drop the earlier initialization (the Trainer makes the group itself), or give it the timeout:
`dist.init_process_group(timeout=timedelta(hours=2))`.

**When it stays quiet.** The earlier call gets a timeout as well; it stands in a branch of its own, or in another
function than `TrainingArguments` (a helper of the file that always makes the group counts); `ddp_timeout` is left at
its default; `TrainingArguments` in front. `--ddp_timeout` counts when every launch command of the project passes it.

**Evidence.** transformers 5.23 `TrainingArguments._setup_devices`. Two gloo ranks: after `init_process_group` with a
timeout of 60 s the group waits 60 s, with `use_cpu=True` 1,800 s, where `ddp_timeout=7200` is set; without either it
waits 7,200 s.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.source import Location
from dslint.model.script.dotted import is_none
from dslint.model.script.quick import call_name, flat
from dslint.model.script.setup.groupsetup import GroupMade, GroupSetup
from dslint.model.script.setup.timeouts import has_timeout
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL225",
    name="ddp-timeout-without-effect",
    kind="script",
    severity=Severity.WARNING,
    summary="`ddp_timeout` comes when the process group exists already",
    markers=(
        r"ddp_timeout\s*=|parse_args_into_dataclasses\(",
        r"init_process_group|init_distributed|PartialState|Accelerator\(|use_cpu|no_cuda",
    ),
    references=("TrainingArguments._setup_devices in transformers/training_args.py",),
    versions=("transformers>=4.31",),
    depends_on_run=True,
)
_DEFAULT = 1800
_PARSE = "parse_args_into_dataclasses"
_MAKERS = frozenset({"init_process_group", "init_distributed", "PartialState", "Accelerator", "AcceleratorState"})


def precheck(tree: ast.Module) -> bool:
    """Some call gets `ddp_timeout`, or makes the arguments of the command line."""
    calls = flat(tree).nodes(ast.Call)
    if any(k.arg == "ddp_timeout" for call in calls for k in call.keywords):
        return True
    # In this order only where the group comes first.
    return any(call_name(call) == _PARSE for call in calls) and any(call_name(call) in _MAKERS for call in calls)


class Check(ScriptCheck):
    """Looks at each `TrainingArguments(ddp_timeout=...)`."""

    def start(self) -> None:
        """Where the file makes its process group."""
        self.setup = GroupSetup(self.ctx.tree, self.ctx.names)

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when the timeout certainly has no effect."""
        if self.ctx.called(node) == _PARSE:
            self._check_command(node)
            return
        timeout = self.ctx.argument(node, "ddp_timeout", None)
        if timeout is None or self.ctx.kind(node) != "training_arguments":
            return
        if self.ctx.constant(timeout).get_or(None) == _DEFAULT or is_none(timeout):
            return
        made = self.setup.before(node)
        if made is not None and not has_timeout(made.call):
            self._report(timeout, f"`{self.ctx.text(made.call.func)}` has made the process group already", made)
            return
        cpu = self.ctx.argument(node, "use_cpu", None) or self.ctx.argument(node, "no_cuda", None)
        if made is None and cpu is not None and self.ctx.constant(cpu).get_or(None) is True:
            self._report(timeout, "with `use_cpu` transformers does not pass it on", None, self.ctx.location(cpu))

    def _check_command(self, node: cst.Call) -> None:
        """The launch commands pass `--ddp_timeout`, and `TrainingArguments` are made here."""
        passed = self.ctx.run.arguments.get("ddp_timeout")
        if passed is None or not passed.is_known or passed.value == str(_DEFAULT):
            return
        made = self.setup.before(node)
        if made is None or has_timeout(made.call):
            return
        self.report(
            node,
            f"`--ddp_timeout {passed.value}` of the launch command has no effect: `{self.ctx.text(made.call.func)}` has"
            " made the process group already, and ranks that wait give up after its default",
            hint="Pass `timeout=timedelta(seconds=...)` where the process group is made, or let the Trainer make it",
            related=(self.ctx.location(made.site, "the group is made here"), *passed.origins),
            facts={"taker": "ddp_timeout"},
        )

    def _report(
        self, timeout: cst.BaseExpression, why: str, made: GroupMade | None, place: Location | None = None
    ) -> None:
        related = place or (self.ctx.location(made.site, "the group is made here") if made is not None else None)
        self.report(
            timeout,
            f"`ddp_timeout={self.ctx.text(timeout)}` has no effect: {why}, and ranks that wait give up after the"
            " default",
            hint="Pass `timeout=timedelta(seconds=...)` where the process group is made, or let the Trainer make it",
            related=(related,) if related is not None else (),
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
