"""**What.** `torch.nn.DataParallel` in a process that is one rank of a distributed job.

**Why it hurts.** `DataParallel` spreads its batch over all GPUs that the process sees. Under a launcher every rank sees
all of them: eight processes make eight replicas each, and all meet on the same GPUs. The memory is used several times
over, the replicas of a step are thrown away, and the gradients of DeepSpeed's or DDP's hooks are those of replica 0.

**Fix.** Remove the wrapper: `DistributedDataParallel`, the DeepSpeed engine or accelerate wrap the model once a rank.

**When it stays quiet.** In the arm that runs without distribution (`if local_rank == -1`, `if not args.distributed`),
in another function than the one that joins the job, and where a test other than the number of GPUs decides. An
`Accelerator` alone, which prepares nothing, need not be a job. With `device_ids=[local_rank]` it is a plain wrapper,
and one that `model = model.module` takes off at once does nothing.

**Evidence.** torch 2.13 `nn/parallel/data_parallel.py`: `device_ids` is by default all visible devices, and `forward`
replicates the module to each of them.
"""

from __future__ import annotations

import ast

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.quick import call_name, flat
from dslint.model.script.ranks.rankset import Ranks
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL247",
    name="dataparallel-with-launcher",
    kind="script",
    severity=Severity.WARNING,
    summary="`DataParallel` in a rank of a distributed job replicates the model on all GPUs in every process",
    markers=(
        r"DataParallel",
        r"init_process_group|init_distributed|deepspeed|DistributedDataParallel|Accelerator",
        r"[^d]DataParallel\(",
    ),
    references=("https://pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",),
    depends_on_run=True,
    no_experiment="without GPUs `DataParallel` only calls the module",
)

_HEAD = "import torch\nimport torch.distributed as dist\nfrom torch import nn\n\n\ndef main(args, model):\n"

EXAMPLES = (
    bad(
        "beside the process group",
        {"train.py": _HEAD + "    dist.init_process_group('nccl')\n    model = nn.DataParallel(model.cuda())\n"},
        at="train.py:8 warning",
    ),
    bad(
        "where there is more than one GPU, which is so on every rank",
        {
            "train.py": _HEAD + "    dist.init_process_group('nccl')\n"
            "    if torch.cuda.device_count() > 1:\n        model = nn.DataParallel(model)\n    return model\n"
        },
        at="train.py:9",
    ),
    bad(
        "under the engine",
        {
            "train.py": "import deepspeed\nimport torch\n\n\ndef main(model):\n"
            "    model = torch.nn.DataParallel(model)\n"
            "    return deepspeed.initialize(model=model, config='ds.json')\n"
        },
        at="train.py:6",
    ),
    bad(
        "in the distributed arm",
        {
            "train.py": _HEAD + "    if args.local_rank != -1:\n        dist.init_process_group('nccl')\n"
            "        model = nn.DataParallel(model)\n    return model\n"
        },
        at="train.py:9",
    ),
    good(
        "the arm without distribution",
        {
            "train.py": _HEAD + "    if args.local_rank != -1:\n        dist.init_process_group('nccl')\n"
            "        model = nn.parallel.DistributedDataParallel(model)\n"
            "    elif args.n_gpu > 1:\n        model = nn.DataParallel(model)\n    return model\n"
        },
    ),
    good(
        "a test of its own",
        {
            "train.py": _HEAD + "    if args.distributed:\n        dist.init_process_group('nccl')\n"
            "    if not args.distributed:\n        model = nn.DataParallel(model)\n    return model\n"
        },
    ),
    good(
        "a number of GPUs that is 1 in a distributed run",
        {
            "train.py": _HEAD + "    dist.init_process_group('nccl')\n"
            "    if args.n_gpu > 1:\n        model = nn.DataParallel(model)\n    return model\n"
        },
    ),
    good(
        "the GPU of the rank",
        {
            "train.py": _HEAD + "    dist.init_process_group('nccl')\n"
            "    model = nn.DataParallel(model, device_ids=[args.local_rank])\n"
        },
    ),
    good(
        "an accelerator for its device, which prepares nothing",
        {
            "infer.py": "from accelerate import Accelerator\nfrom torch import nn\n\n\ndef main(model, batch):\n"
            "    accelerator = Accelerator()\n    model = nn.DataParallel(model.to(accelerator.device))\n"
            "    return model(batch)\n"
        },
    ),
    bad(
        "beside what an accelerator prepares",
        {
            "train.py": "from accelerate import Accelerator\nfrom torch import nn\n\n\ndef main(model, judge):\n"
            "    accelerator = Accelerator()\n    model = accelerator.prepare(model)\n"
            "    judge = nn.DataParallel(judge)\n    return model, judge\n"
        },
        at="train.py:8",
    ),
    good(
        "taken off again at once: only a call replicates",
        {
            "infer.py": _HEAD + "    dist.init_process_group('nccl')\n    model = nn.DataParallel(model)\n"
            "    model = model.module\n    return model.generate(args.tokens)\n"
        },
    ),
    good(
        "taken off again in the same line",
        {
            "infer.py": _HEAD
            + "    dist.init_process_group('nccl'); model = nn.DataParallel(model); model = model.module\n"
            "    return model.generate(args.tokens)\n"
        },
    ),
    good(
        "taken off again, in parentheses",
        {
            "infer.py": _HEAD + "    dist.init_process_group('nccl')\n    model = (nn.DataParallel(model))\n"
            "    model = (model.module)\n    return model.generate(args.tokens)\n"
        },
    ),
    good("no job", {"eval.py": "from torch import nn\n\n\ndef main(model):\n    return nn.DataParallel(model)\n"}),
    good(
        "another function",
        {
            "train.py": _HEAD + "    dist.init_process_group('nccl')\n\n\ndef evaluate(model):\n"
            "    return nn.DataParallel(model)\n"
        },
    ),
)

_DATA_PARALLEL = frozenset({"torch.nn.DataParallel", "torch.nn.parallel.DataParallel"})
_JOINING = frozenset({"init_process_group", "init_distributed"})
_JOINING_NAMES = frozenset(
    {
        *("deepspeed.initialize", "accelerate.Accelerator", "torch.nn.parallel.DistributedDataParallel"),
        "torch.nn.parallel.distributed.DistributedDataParallel",
    }
)
_PREPARING = frozenset({"prepare", "prepare_model", "prepare_data_loader"})


def precheck(tree: ast.Module) -> bool:
    """The wrapper, and something that needs a job."""
    names = {call_name(call) for call in flat(tree).nodes(ast.Call)}
    return "DataParallel" in names and bool(
        names & {*_JOINING, "initialize", "Accelerator", "DistributedDataParallel", "DDP"}
    )


class Check(ScriptCheck):
    """Compares each wrapper with what joins the job in the same function."""

    def visit_Call(self, node: cst.Call) -> None:
        """Fire where every process that wraps has joined, or joins, a job."""
        if self.ctx.qualified_name(node.func) not in _DATA_PARALLEL or self._has_one_device(node):
            return
        if self.ctx.run.world_size.get_or(0) == 1 or self._is_unwrapped(node):
            return
        tests = [c for c in self.ctx.guards.conditions(node) if not self._counts_gpus(c.test)]
        if any(c.ranks is Ranks.NONE for c in tests):
            return
        owners = {id(c.owner) for c in tests}
        function = self.ctx.enclosing_function(node)
        for call in self.ctx.tree.own_nodes(function or self.ctx.tree.module):
            if isinstance(call, cst.Call) and self._joins(call) and self._same_arm(call, node, owners):
                self._report(node, call)
                return

    def _joins(self, call: cst.Call) -> bool:
        name = self.ctx.qualified_name(call.func)
        if name == "accelerate.Accelerator":  # many make one for its device, in a program of one process
            return any(self.ctx.called(c) in _PREPARING for c in self.ctx.tree.every(cst.Call))
        return self.ctx.called(call) in _JOINING or name in _JOINING_NAMES

    def _same_arm(self, join: cst.Call, wrap: cst.Call, owners: set[int]) -> bool:
        """Each test that decides about one of the two decides about the other alike."""
        for condition in self.ctx.guards.conditions(join):
            arm = self._arm(condition.owner, join)
            if id(condition.owner) not in owners or arm is not self._arm(condition.owner, wrap):
                return False
        joined = {id(c.owner) for c in self.ctx.guards.conditions(join)}
        return owners <= joined

    def _arm(self, owner: cst.CSTNode, node: cst.CSTNode) -> cst.CSTNode | None:
        body = owner.body if isinstance(owner, cst.If) else None
        if body is None:
            return owner
        return body if self.ctx.tree.contains(body, node) else None

    def _counts_gpus(self, test: cst.CSTNode) -> bool:
        """``torch.cuda.device_count() > 1``, also through a variable that is nothing else."""
        if not isinstance(test, cst.Comparison):
            return False
        value = self.ctx.names.single_value(test.left) or test.left
        return isinstance(value, cst.Call) and self.ctx.qualified_name(value.func) == "torch.cuda.device_count"

    def _has_one_device(self, node: cst.Call) -> bool:
        devices = self.ctx.argument(node, "device_ids", 1)
        if devices is None and self.ctx.has_unpacked_arguments(node):
            return True  # for all that is known
        devices = self.ctx.names.single_value(devices) or devices if devices is not None else None
        return isinstance(devices, cst.List) and len(devices.elements) == 1

    def _is_unwrapped(self, node: cst.Call) -> bool:
        """``model = model.module`` follows: nobody calls the wrapper, and only a call replicates."""
        around = self.ctx.tree.parent(node)
        if isinstance(around, cst.Attribute):
            return around.attr.value == "module"
        line = self.ctx.tree.enclosing(node, cst.SimpleStatementLine)
        block = self.ctx.tree.parent(line) if line is not None else None
        lines = block.body if isinstance(block, cst.IndentedBlock | cst.Module) else ()
        # Statements may share a line.
        body = [s for each in lines for s in (each.body if isinstance(each, cst.SimpleStatementLine) else (each,))]
        at = next((at for at, statement in enumerate(body) if statement is around), len(body))
        taken = body[at + 1] if at + 1 < len(body) else None
        given = self._assigned(around)
        if not given or not isinstance(taken, cst.Assign) or self._assigned(taken) != given:
            return False
        inner = taken.value
        return isinstance(inner, cst.Attribute) and inner.attr.value == "module" and self.ctx.text(inner.value) == given

    def _assigned(self, node: cst.CSTNode | None) -> str:
        """The one target of an assignment, as it is written."""
        return self.ctx.text(node.targets[0].target) if isinstance(node, cst.Assign) and len(node.targets) == 1 else ""

    def _report(self, node: cst.Call, join: cst.Call) -> None:
        self.report(
            node,
            "`DataParallel` replicates the model on all visible GPUs in every rank of the job: N processes make N"
            " replicas on each of them",
            hint="Remove it: `DistributedDataParallel`, DeepSpeed or accelerate wrap the model once a rank",
            related=(self.ctx.location(join, "the process is a rank of a job"),),
        )
