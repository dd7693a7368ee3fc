"""**What.** `os.environ["CUDA_VISIBLE_DEVICES"]` is written below a line that has started CUDA.

**Why it hurts.** CUDA reads the variable once, when it starts in the process. A later value changes nothing: the
process works on GPUs that the script believes hidden, beside the runs of others, and finds no fault.

**Fix.** Write it above everything that touches CUDA, or better in the command: `CUDA_VISIBLE_DEVICES=0,1 torchrun ...`.

**When it stays quiet.** After `import torch` alone, which does not start CUDA, nor does `torch.cuda.device_count()`;
when the lines stand in different functions or arms; below `set_device`, which has chosen the GPU of this process
already; in files that start processes, whose environment it may be for.

**Evidence.** torch 2.13 `torch/cuda/__init__.py`: `is_available` "initializes the CUDA Driver API via `cuInit`",
`_lazy_init` makes the context; CUDA C++ Programming Guide, "CUDA Environment Variables": changes after that have no
effect.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.quick import writes_environment
from dslint.model.script.setup.startup import EnvironmentWrite
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL248",
    name="cvd-set-after-torch",
    kind="script",
    severity=Severity.WARNING,
    summary="`CUDA_VISIBLE_DEVICES` is written after CUDA has started, and ignored",
    markers=(r"CUDA_VISIBLE_DEVICES", r"cuda", r"CUDA_VISIBLE_DEVICES[\"']?\s*\]?\s*[=:]\s*[^=\s]"),
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables",),
    no_experiment="CUDA has to start for the value to come too late",
)

_HEAD = "import os\n\nimport torch\n\n"
_SET = "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"

EXAMPLES = (
    bad(
        "after a model has moved",
        {"train.py": _HEAD + "model = torch.nn.Linear(8, 8).cuda()\n" + _SET},
        at="train.py:6 warning",
    ),
    bad(
        "after the question for a GPU",
        {"train.py": _HEAD + "assert torch.cuda.is_available()\n" + _SET},
        at="train.py:6",
    ),
    bad(
        "in a function, with a value of the caller",
        {
            "train.py": _HEAD + "\ndef main(gpus):\n    print(torch.cuda.get_device_name(0))\n"
            "    os.environ['CUDA_VISIBLE_DEVICES'] = gpus\n"
        },
        at="train.py:8",
    ),
    good(
        "below the choice of the GPU, for an inference server that asks for the variable",
        {
            "train.py": _HEAD
            + "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
            "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\n"
        },
    ),
    good("after the import only", {"train.py": _HEAD + _SET + "model = torch.nn.Linear(8, 8).cuda()\n"}),
    good(
        "after a count, which asks the driver's library",
        {"train.py": _HEAD + "n = torch.cuda.device_count()\n" + _SET},
    ),
    good(
        "another arm",
        {
            "train.py": _HEAD + "if os.environ.get('CHECK'):\n    print(torch.cuda.is_available())\nelse:\n    " + _SET
        },
    ),
    good(
        "for the processes that it starts",
        {
            "run.py": "import os\nimport subprocess\n\nimport torch\n\nassert torch.cuda.is_available()\n"
            + _SET
            + "subprocess.run(['python', 'train.py'])\n"
        },
    ),
    good(
        "a function that is called first",
        {
            "train.py": _HEAD + "\ndef build():\n    return torch.nn.Linear(8, 8).cuda()\n\n\n" + _SET + "build()\n"
        },
    ),
)  # fmt: skip


def precheck(tree: ast.Module) -> bool:
    """The variable is written into the environment."""
    return writes_environment(tree, "CUDA_VISIBLE_DEVICES")


_CHOICES = (cst.If, cst.Else, cst.IfExp, cst.Try, cst.For, cst.While, cst.ExceptHandler)


class Check(ScriptCheck):
    """Compares each write with what stands above it."""

    def finish(self) -> None:
        """Fire on a write below a call, on the same way, that starts CUDA."""
        if self.ctx.startup.starts_processes:
            return
        for write in self.ctx.startup.environment_writes:
            if write.name == "CUDA_VISIBLE_DEVICES":
                self._judge(write)

    def _judge(self, write: EnvironmentWrite) -> None:
        before = [call for call in self.ctx.startup.devices.starting_cuda if self._is_before(call, write.node)]
        if not before or any(self.ctx.called(call) == "set_device" for call in before):
            return  # the process has its GPU: the variable is for what it starts, or for who asks for it
        started = before[0]
        self.report(
            write.node,
            f"`CUDA_VISIBLE_DEVICES` is written after `{self.ctx.text(started.func)}(...)` has started CUDA: the"
            " process keeps the GPUs that it sees already",
            hint="Write it above everything that touches CUDA, or set it in the command",
            related=(self.ctx.location(started, "CUDA starts here"),),
        )

    def _is_before(self, call: cst.Call, write: cst.CSTNode) -> bool:
        tree = self.ctx.tree
        if self.ctx.enclosing_function(call) is not self.ctx.enclosing_function(write):
            return False
        if tree.position(call) > tree.position(write):
            return False
        for outer in tree.parents(call):
            if isinstance(outer, cst.FunctionDef | cst.Lambda | cst.ClassDef):
                return tree.contains(outer, write)
            if isinstance(outer, cst.If) and outer.test is not None and tree.contains(outer.test, call):
                continue  # the test is asked on every way
            if isinstance(outer, _CHOICES) and not self._same_arm(outer, call, write):
                return False
        return True

    def _same_arm(self, outer: cst.CSTNode, call: cst.CSTNode, write: cst.CSTNode) -> bool:
        body = getattr(outer, "body", None)
        arm = body if isinstance(body, cst.CSTNode) else outer
        return self.ctx.tree.contains(arm, call) and self.ctx.tree.contains(arm, write)
