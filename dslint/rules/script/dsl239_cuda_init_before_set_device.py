"""**What.** A script puts something on `"cuda"`, or asks `torch.cuda` for the state of the device, above the line that
chooses its GPU.

**Why it hurts.** What stands above `torch.cuda.set_device` happens on GPU 0, on every rank: each of the eight processes
of a machine keeps a CUDA context of some hundred MiB there, and what was allocated stays there. The first GPU runs out
of memory before the others do.

**Fix.** Make `torch.cuda.set_device(local_rank)` the first line that touches CUDA.

**When it stays quiet.** It is off unless selected: most scripts have room for it. Only calls of the same function, or
of the same level of the module, count, and only devices that are chosen by a rank.

**Evidence.** `torch/cuda/__init__.py` of torch 2.13: `_lazy_init` makes a context on the current device, which is 0
until `set_device`.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.quick import call_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL239",
    name="cuda-init-before-set-device",
    kind="script",
    severity=Severity.INFO,
    summary="CUDA starts on GPU 0 before the process chooses its own",
    markers=(r"set_device", r"cuda"),
    references=("https://pytorch.org/docs/stable/generated/torch.cuda.set_device.html",),
    optional=True,
    no_experiment="a context on GPU 0 needs a GPU",
)

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


def precheck(tree: ast.Module) -> bool:
    """Some device is chosen by something that is no literal."""
    calls = (call for call in flat(tree).nodes(ast.Call) if call_name(call) == "set_device")
    given = (v for call in calls for v in (*call.args[:1], *(k.value for k in call.keywords)))
    return any(not isinstance(value, ast.Constant) for value in given)


class Check(ScriptCheck):
    """Compares each choice of a device with what stands above it."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on the first call above that starts CUDA on every way to the choice."""
        if self.ctx.called(node) != "set_device" or len(node.args) != 1:
            return
        if not self.ctx.guards.rank_values.is_rank(node.args[0].value):
            return
        for call in self.ctx.startup.devices.starting_cuda:
            if call is not node and self._is_above(call, node):
                self.report(
                    call,
                    "this starts CUDA on GPU 0 in every rank, before the process chooses its own device below",
                    hint="Move `set_device` above it",
                    related=(self.ctx.location(node, "the device is chosen here"),),
                )
                return

    def _is_above(self, call: cst.Call, choice: cst.Call) -> bool:
        name = self.ctx.qualified_name(call.func)
        if name == "torch.cuda.is_available" or self.ctx.called(call) == "set_device":
            return False  # no context comes of the first; the second is a choice as well
        if self.ctx.enclosing_function(call) is not self.ctx.enclosing_function(choice):
            return False
        if self.ctx.tree.position(call) > self.ctx.tree.position(choice):
            return False
        return not any(True for _ in self.ctx.guards.conditions(call))
