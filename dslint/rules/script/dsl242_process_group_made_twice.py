"""**What.** A script makes the default process group a second time, or hands a timeout or backend to a library that
would make it, when it exists already.

**Why it hurts.** A second `dist.init_process_group` raises `ValueError: trying to initialize the default process group
twice!`. DeepSpeed, accelerate and Lightning adopt the group as it is: the timeout and the backend that they are given
are ignored without a word, so that the long wait which the timeout allows for ends the job after 10 minutes.

**Fix.** Make the group once, with the timeout and the backend that it shall have.

**When it stays quiet.** The second call gets neither a timeout nor a backend, or the same; it is guarded by
`if not dist.is_initialized():`; the two stand in different branches or functions (a helper of the file that always
makes the group counts); `destroy_process_group` lies between them.

**Evidence.** Two gloo ranks: after `init_process_group(timeout=60 s)` the group keeps 60 s whatever
`deepspeed.init_distributed`, `InitProcessGroupKwargs` and `PartialState` are given; the second `init_process_group`
raises. Alone, `PartialState` uses its timeout. DeepSpeed 0.19.8 `comm/comm.py: init_distributed`; accelerate 1.15
`state.py: PartialState`.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.behind import wording
from dslint.model.script.dotted import is_none
from dslint.model.script.quick import call_name, flat
from dslint.model.script.setup.groupsetup import GroupMade, GroupSetup
from dslint.model.script.setup.timeouts import timedelta_seconds, timeout_position
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL242",
    name="process-group-made-twice",
    kind="script",
    severity=Severity.WARNING,
    summary="The timeout or backend of a process group comes when the group exists already",
    markers=(
        r"init_(?:process_group|distributed)\s*\(|InitProcessGroupKwargs|PartialState\s*\([^)\n]*timeout",
        r"timeout|backend|nccl|gloo|mpi|ccl|init_process_group",
        r"(?s)(?:init_process_group|init_distributed|PartialState|Accelerator)\s*\("
        r".*?(?:init_process_group\s*\(|init_distributed\s*\(|PartialState\s*\(|InitProcess)",
    ),
    references=("init_distributed in deepspeed/comm/comm.py", "PartialState in accelerate/state.py"),
)
_TORCH = "init_process_group"
_MAKERS = frozenset({_TORCH, "init_distributed", "PartialState", "Accelerator", "AcceleratorState"})
_TAKERS = frozenset({_TORCH, "init_distributed", "PartialState", "InitProcessGroupKwargs"})


def precheck(tree: ast.Module) -> bool:
    """Two calls could make the group."""
    calls = [call_name(call) for call in flat(tree).nodes(ast.Call)]
    return sum(name in _MAKERS or name in _TAKERS for name in calls) > 1


class Check(ScriptCheck):
    """Looks at what is said about the process group after it is made."""

    def start(self) -> None:
        """Where the file makes its process group."""
        self.setup = GroupSetup(self.ctx.tree, self.ctx.names)

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on a second group of torch, and on options that come too late."""
        taker = self.ctx.called(node)
        if taker not in _TAKERS or not timeout_position(self.ctx.qualified_name(node.func))[0]:
            return
        made = self.setup.before(node)
        if made is None or self._is_asked(node, made):
            return
        if taker == _TORCH:
            if not any(True for _ in self.setup.deciding_tests(node, made.site)):
                self._report_second(node, made)
            return
        for name, position in (("timeout", timeout_position(self.ctx.qualified_name(node.func))[1]), ("backend", 0)):
            keyword = "dist_backend" if name == "backend" and taker == "init_distributed" else name
            given = self.ctx.argument(node, keyword, position if taker == "init_distributed" else None)
            if given is not None and self._differs(given, made, name):
                self._report_late(given, node, made, name)
                return

    def _is_asked(self, node: cst.Call, made: GroupMade) -> bool:
        """A test around the second call asks whether there is a group."""
        tests = self.setup.deciding_tests(node, made.site)
        asked = [wording(self.ctx.names, test) for test in tests]
        return any("initialized" in text or "available" in text for text in asked)

    def _differs(self, given: cst.BaseExpression, made: GroupMade, name: str) -> bool:
        """The first call certainly says something else, or leaves the timeout at its default."""
        if is_none(given):
            return False
        if self.ctx.has_unpacked_arguments(made.call) or self.ctx.argument(made.call, "kwargs_handlers", None):
            return False
        position = timeout_position(self.ctx.qualified_name(made.call.func))[1] if name == "timeout" else 0
        first = self.ctx.argument(made.call, name, position) or self.ctx.argument(made.call, "dist_backend", None)
        if name == "timeout":
            return first is None or self._is_other(first, given)
        return first is not None and self._is_other(first, given)

    def _is_other(self, first: cst.BaseExpression, given: cst.BaseExpression) -> bool:
        if self.ctx.text(first) == self.ctx.text(given):
            return False
        one, two = self.ctx.constant(first), self.ctx.constant(given)
        if one.is_known and two.is_known:
            # "cpu:gloo,cuda:nccl" holds both.
            return not (str(one.value) in str(two.value) or str(two.value) in str(one.value))
        seconds = [timedelta_seconds(self.ctx.names, self.ctx.constants, value) for value in (first, given)]
        return None not in seconds and seconds[0] != seconds[1]

    def _report_second(self, node: cst.Call, made: GroupMade) -> None:
        first = self.ctx.text(made.call.func)
        self.report(
            node,
            f"`{first}` has made the default process group already: this call raises a ValueError on every rank",
            hint="Make the group once, or ask `dist.is_initialized()` first",
            related=(self.ctx.location(made.site, "the group is made here"),),
            severity=Severity.ERROR,
            facts={"taker": _TORCH},
        )

    def _report_late(self, given: cst.BaseExpression, node: cst.Call, made: GroupMade, name: str) -> None:
        self.report(
            given,
            f"the {name} `{self.ctx.text(given)}` has no effect: `{self.ctx.text(made.call.func)}` has made the process"
            " group already, and it is adopted as it is",
            hint=f"Pass the {name} to the first call, or drop that call",
            related=(self.ctx.location(made.site, "the group is made here"),),
            facts={"taker": self.ctx.called(node), "option": name},
        )


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
