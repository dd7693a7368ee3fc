"""**What.** The first thing that the ranks do over NCCL is `dist.barrier()`, and the file never says which GPU a rank
uses: no `set_device`, no `device_id=` in `init_process_group`, no `device_ids=` in the barrier.

**Why it hurts.** A barrier of NCCL is a reduction on a GPU. Without a device torch takes the current one, which is
GPU 0 on every rank, or guesses `rank % number of GPUs`, with the warning `using the device under current context ...
This can potentially cause a hang if the rank to GPU mapping is incorrect`. All ranks of a node on GPU 0 hang or fail
with "Duplicate GPU detected".

**Fix.** `torch.cuda.set_device(local_rank)` before the barrier, or
`dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))`.

**When it stays quiet.** Another collective, `set_device`, `device_id` or `device_ids` stands anywhere in the file; the
backend is not known to be NCCL; the file uses DeepSpeed, accelerate or the Trainer, which set the device; the barrier
is in another function than the group. It is a note.

**Evidence.** Read from torch 2.13 `distributed_c10d.barrier` and `init_process_group`, not run: it takes several GPUs.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, flat
from dslint.model.script.setup.groupsetup import GroupSetup
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL240",
    name="barrier-device-unknown",
    kind="script",
    severity=Severity.INFO,
    summary="A barrier over NCCL before any rank has chosen its GPU",
    markers=(r"\.barrier\(\s*\)", r"init_process_group\s*\(", r"nccl"),
    references=(
        "https://github.com/pytorch/pytorch/issues/60752",
        "https://github.com/deepspeedai/DeepSpeed/pull/7266",
    ),
    no_experiment="which GPU a barrier takes shows only with several GPUs and NCCL",
)
_CHOOSES = frozenset({"set_device", "set_device_index", "init_device_mesh", "device"})
_LIBRARIES = ("deepspeed", "accelerate", "transformers", "lightning", "pytorch_lightning", "mmengine")


def precheck(tree: ast.Module) -> bool:
    """No call chooses a device."""
    calls = flat(tree).nodes(ast.Call)
    if any(call_name(c) in _CHOOSES for c in calls):
        return False
    return not any(k.arg in ("device_id", "device_ids") for c in calls for k in c.keywords)


class Check(ScriptCheck):
    """Looks at the first barrier after the process group."""

    def start(self) -> None:
        """Where the file makes its process group."""
        self.setup = GroupSetup(self.ctx.tree, self.ctx.names)
        self.collectives = self.ctx.summaries.collectives

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when nothing before it has chosen a device."""
        if self.findings or node.args or self.ctx.qualified_name(node.func) != "torch.distributed.barrier":
            return
        if self.ctx.imports(*_LIBRARIES):
            return
        made = self.setup.before(node)
        if made is None or last_name(made.call.func) != "init_process_group":
            return
        backend = self.ctx.argument(made.call, "backend", 0)
        if backend is None or self.ctx.constant(backend).get_or(None) != "nccl":
            return
        if self.ctx.argument(made.call, "device_id", 8) is not None or self._is_chosen(node):
            return
        self.report(
            node,
            "the first operation over NCCL is a barrier, and no rank has chosen its GPU: torch guesses one, and the job"
            " hangs when two ranks of a node take the same",
            hint="Call `torch.cuda.set_device(local_rank)` first, or pass `device_id=` to `init_process_group`",
            related=(self.ctx.location(made.site, "the process group is made here"),),
        )

    def _is_chosen(self, barrier: cst.Call) -> bool:
        """Something in the file may choose a device, or another collective comes first."""
        end = self.ctx.tree.position(barrier)
        for node in self.ctx.tree.order:
            if not isinstance(node, cst.Call) or node is barrier:
                continue
            named = any(a.keyword is not None and a.keyword.value in ("device_id", "device_ids") for a in node.args)
            if named or self.ctx.called(node) in _CHOOSES:
                return True
            if self.ctx.tree.position(node) < end and self.collectives.of(node) is not None:
                return True
        return False


_HEAD = "import torch\nimport torch.distributed as dist\n\n"

EXAMPLES = (
    bad(
        "a barrier first",
        {"train.py": _HEAD + "dist.init_process_group('nccl')\nmodel = make().cuda()\ndist.barrier()\n"},
        at="train.py:6 info",
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
