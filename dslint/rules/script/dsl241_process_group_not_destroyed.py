"""**What.** A script makes a process group over NCCL and never calls `dist.destroy_process_group()`.

**Why it hurts.** Little: torch warns at the end (`process group has NOT been destroyed before we destruct
ProcessGroupNCCL`), and a rank that ends while another still talks to it may turn a finished job into a failed one.

**Fix.** Call `dist.destroy_process_group()` at the end, in a `finally:`.

**When it stays quiet.** The rule is off unless it is selected. Modules that are not started as a program; other
backends; `destroy_process_group` anywhere in the file; DeepSpeed, accelerate and Lightning, which make and end the
group themselves.

**Evidence.** Read from torch 2.13 (`ProcessGroupNCCL` warns in its destructor), not run: it takes NCCL. Over gloo 2 of
about 70 runs without the call ended with an error after their work was done.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, expression_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL241",
    name="process-group-not-destroyed",
    kind="script",
    severity=Severity.INFO,
    summary="The process group is never destroyed",
    markers=(r"init_process_group\s*\(", r"nccl"),
    references=("https://pytorch.org/docs/stable/distributed.html#shutdown",),
    optional=True,
    no_experiment="the warning comes from the destructor of the NCCL group",
)
_TORCH = ("torch.distributed.init_process_group", "torch.distributed.distributed_c10d.init_process_group")
_LIBRARIES = ("deepspeed", "accelerate", "lightning", "pytorch_lightning")


def precheck(tree: ast.Module) -> bool:
    """Nothing destroys the group."""
    nodes = flat(tree)
    names = {expression_name(n) for n in nodes.nodes(ast.Attribute)} | {n.id for n in nodes.nodes(ast.Name)}
    return "destroy_process_group" not in names and any(
        call_name(call) == "init_process_group" for call in nodes.nodes(ast.Call)
    )


class Check(ScriptCheck):
    """Looks at the first process group of a program."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when the file is started as a program."""
        if self.findings or self.ctx.qualified_name(node.func) not in _TORCH or not self.ctx.startup.is_entry:
            return
        backend = self.ctx.argument(node, "backend", 0)
        if (
            self._is_destroyed()
            or self.ctx.imports(*_LIBRARIES)
            or backend is None
            or self.ctx.constant(backend).get_or(None) != "nccl"
        ):
            return
        self.report(
            node,
            "the process group is never destroyed: torch warns at the end, and a rank that ends early may fail another",
            hint="Call `dist.destroy_process_group()` at the end of the program",
        )

    def _is_destroyed(self) -> bool:
        names = (n for n in self.ctx.tree.order if isinstance(n, cst.Name | cst.Attribute))
        return any(last_name(name) == "destroy_process_group" for name in names)


_MAIN = "if __name__ == '__main__':\n    dist.init_process_group('nccl')\n    train()\n"

EXAMPLES = (
    bad(
        "a program", {"train.py": "import torch.distributed as dist\n\n" + _MAIN}, at="train.py:4 info", select="DSL241"
    ),
    good(
        "it ends the group",
        {"train.py": "import torch.distributed as dist\n\n" + _MAIN + "    dist.destroy_process_group()\n"},
        select="DSL241",
    ),
    good(
        "a module",
        {"groups.py": "import torch.distributed as dist\n\n\ndef start():\n    dist.init_process_group('nccl')\n"},
        select="DSL241",
    ),
)
