"""**What.** The backend of the process group is the literal `"nccl"`, and the file never asks whether there is a GPU.

**Why it hurts.** The script cannot run on the CPU, not even for a test on two processes: `init_process_group` raises.

**Fix.** `backend="nccl" if torch.cuda.is_available() else "gloo"`, or no backend: torch then takes one for each device.

**When it stays quiet.** The rule is off unless it is selected. `is_available`, an accelerator of DeepSpeed or
accelerate, or a device count is asked for anywhere in the file; the backend comes from elsewhere.

**Evidence.** Two processes without a GPU: `init_process_group("nccl")` raises on both (`Distributed package doesn't
have NCCL built in` or `ProcessGroupNCCL is only supported with GPUs`); with `"gloo"` it passes.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.quick import call_name, flat
from dslint.model.script.setup.timeouts import GROUP_CREATORS
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL260",
    name="nccl-without-cuda-check",
    kind="script",
    severity=Severity.INFO,
    summary="The backend is `nccl`, with or without a GPU",
    markers=(r"(?:init_process_group|init_distributed)\s*\(\s*(?:\w+\s*=\s*)?[\"']nccl",),
    references=("https://pytorch.org/docs/stable/distributed.html#which-backend-to-use",),
    optional=True,
)
_ASKS = frozenset({"is_available", "device_count", "get_accelerator", "is_cuda_available", "is_torch_npu_available"})


def precheck(tree: ast.Module) -> bool:
    """Nothing asks for a device."""
    return not any(call_name(call) in _ASKS for call in flat(tree).nodes(ast.Call))


class Check(ScriptCheck):
    """Looks at the backend of each process group."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on the literal."""
        name = self.ctx.qualified_name(node.func)
        if self.findings or name not in GROUP_CREATORS:
            return
        keyword = "dist_backend" if name.endswith("init_distributed") else "backend"
        backend = self.ctx.argument(node, keyword, 0)
        is_nccl = isinstance(backend, cst.SimpleString) and backend.evaluated_value == "nccl"
        if backend is not None and is_nccl and not self._asks():
            self.report(
                backend,
                "the backend is `nccl` with or without a GPU: where there is none the process group cannot be made",
                hint='Write `"nccl" if torch.cuda.is_available() else "gloo"`',
            )

    def _asks(self) -> bool:
        return any(isinstance(n, cst.Call) and self.ctx.called(n) in _ASKS for n in self.ctx.tree.order)


EXAMPLES = (
    bad(
        "a literal",
        {"train.py": "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"},
        at="train.py:3 info",
        select="DSL260",
    ),
    good(
        "it is asked for",
        {
            "train.py": (
                "import torch\nimport torch.distributed as dist\n\n"
                "if not torch.cuda.is_available():\n    raise SystemExit\n"
                "dist.init_process_group('nccl')\n"
            )
        },
        select="DSL260",
    ),
    good(
        "the backend comes from the caller",
        {
            "train.py": (
                "import torch.distributed as dist\n\n\n"
                "def start(backend='nccl'):\n    dist.init_process_group(backend)\n"
            )
        },
        select="DSL260",
    ),
)
