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

from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

_CALLS = frozenset({"torch.cuda.set_per_process_memory_fraction", "torch.cuda.memory.set_per_process_memory_fraction"})
# Below this share of a GPU, ZeRO-3's gathered layers and their activations rarely fit.
_SMALL = 0.5

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


class Check(ScriptCheck):
    """Looks at each call of the function in a distributed script."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire on the first of the three mistakes that is certain."""
        if self.ctx.qualified_name(node.func) not in _CALLS or not self._is_distributed():
            return
        fraction = self.ctx.constant(self.ctx.argument(node, "fraction", 0)).get_or(None)
        if not isinstance(fraction, int | float):
            return
        if isinstance(fraction, int):
            self.report(
                node,
                f"the memory fraction `{fraction}` is no float: the call raises `TypeError` on every rank",
                severity=Severity.ERROR,
                facts={"mistake": "integer", "fraction": fraction},
                hint=f"Write `{float(fraction)}`",
            )
        elif not 0 <= fraction <= 1:
            self.report(
                node,
                f"the memory fraction {fraction:g} is outside 0 to 1: the call raises `ValueError` on every rank",
                severity=Severity.ERROR,
                facts={"mistake": "above-1", "fraction": fraction},
                hint="Use a share of one GPU's memory, such as 0.95",
            )
        elif fraction < _SMALL and self.ctx.zero3_evidence.get_or(False):
            self.report(
                node,
                f"each process may use only {fraction:.0%} of its GPU, but ZeRO-3 gathers whole layers: a rank that "
                "runs out of memory leaves its peers waiting in the collective",
                related=self.ctx.zero3_evidence.origins,
                facts={"mistake": "small-share", "fraction": fraction},
                hint="Raise the fraction (one process runs on each GPU) or drop the call",
            )
        elif self._sharers() > 1 and fraction * self._sharers() > 1:
            self.report(
                node,
                f"each of the {self._sharers()} processes may use {fraction:.0%} of the one GPU that they share:"
                f" {fraction * self._sharers():.0%} together, and the last one to allocate runs out of memory",
                related=self.ctx.run.processes_per_node.origins,
                facts={"mistake": "shared", "fraction": fraction},
                hint=f"Allow each of them {1 / self._sharers():.2g}, or give each its own GPU",
            )
        elif self.ctx.argument(node, "device", 1) is None and not self._device_chosen(node):
            self.report(
                node,
                "the memory limit is set before `torch.cuda.set_device` and without `device`: it applies to GPU 0 for "
                "every rank, not to the rank's own GPU",
                facts={"mistake": "before-set-device", "fraction": fraction},
                hint="Call `torch.cuda.set_device(local_rank)` first, or pass `device=local_rank`",
            )
        elif self._names_gpu_0(self.ctx.argument(node, "device", 1)) and self._chooses_by_rank():
            self.report(
                node,
                "the memory limit names GPU 0, but each rank works on a GPU of its own: only the first is limited",
                facts={"mistake": "device-0", "fraction": fraction},
                hint="Pass `device=local_rank`",
            )

    def _sharers(self) -> int:
        """How many processes of a machine work on one GPU: all of them where the file chooses GPU 0 by its name."""
        if not any(self.ctx.called(parent) == "set_device" for parent in self._choosing_gpu_0()):
            return 1
        return self.ctx.run.processes_per_node.get_or(1)

    def _choosing_gpu_0(self) -> Iterator[cst.Call]:
        for value in self.ctx.startup.devices.first_gpu:
            call = self.ctx.parent(self.ctx.parent(value) or value)
            if isinstance(call, cst.Call):
                yield call

    def _names_gpu_0(self, device: cst.BaseExpression | None) -> bool:
        known = self.ctx.constant(device).get_or(None)
        return known == "cuda:0" or (known == 0 and not isinstance(known, bool))

    def _chooses_by_rank(self) -> bool:
        """Some call selects a device by a value that the file does not fix."""
        chosen = (n for n in self.ctx.tree.order if isinstance(n, cst.Call) and self.ctx.called(n) == "set_device")
        return any(n.args and self.ctx.guards.rank_values.is_rank(n.args[0].value) for n in chosen)

    def _is_distributed(self) -> bool:
        return self.ctx.imports("torch.distributed", "deepspeed", "accelerate")

    def _device_chosen(self, node: cst.Call) -> bool:
        """A device is selected before the call, or by something that may select one."""
        chosen = ("set_device", "Accelerator", "PartialState", "init_distributed", "device")
        position = self.ctx.tree.position(node)
        before = self.ctx.tree.order[:position]
        if any(isinstance(n, cst.Call) and self.ctx.called(n) in chosen for n in before):
            return True
        # Inside a function, the caller may have chosen the device; only a file that chooses it later tells.
        later = self.ctx.tree.order[position:]
        return self.ctx.enclosing_function(node) is not None and not any(
            isinstance(n, cst.Call) and self.ctx.called(n) == "set_device" for n in later
        )
