"""**What.** A process chooses its GPU by its rank in the whole job: `torch.cuda.set_device(dist.get_rank())`,
`f"cuda:{rank}"`, `device_ids=[rank]`.

**Why it hurts.** On one machine the rank in the job is the rank on the machine, and the script works. On the second
machine of eight GPUs the ranks are 8 to 15, and there is no GPU 8: `CUDA error: invalid device ordinal`. The job has
queued for two machines and fails at its start, while the first machine waits.

**Fix.** `int(os.environ["LOCAL_RANK"])`, which torchrun, deepspeed and accelerate set, or
`rank % torch.cuda.device_count()`.

**When it stays quiet.** With `% torch.cuda.device_count()`; when the rank comes from a parameter, as in the worker of
`mp.spawn`; when the launch commands start a single machine, or the file starts them and
makes `MASTER_ADDR` this machine; in tests. A module that starts no job and asks whether there is one has a note.

**Evidence.** PyTorch documentation of `torchrun`: `RANK` is "the rank of the worker within a worker group",
`LOCAL_RANK` the one within the machine; `torch.cuda.set_device` takes the index of a GPU of the machine.
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from dslint.core.finding import Severity
from dslint.model.script.quick import call_name, flat
from dslint.model.script.ranks.rankset import number_of
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL237",
    name="set-device-global-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="The GPU is chosen by the rank in the whole job, which a second machine has no GPU for",
    markers=(
        r"get_rank|get_dist_info|RANK|SLURM_PROCID|process_index",
        r"set_device|cuda|device_id|device_map",
        r"get_rank\(\)|get_dist_info|\.process_index|[\"'](?:RANK|SLURM_PROCID|OMPI_COMM_WORLD_RANK)[\"']",
        r"set_device\(|[\"']cuda:\{|[\"']cuda[\"'],|\.cuda\(\w|device_ids?\s*=|\{[\"']{2}:",
    ),
    references=("https://pytorch.org/docs/stable/elastic/run.html#environment-variables",),
    depends_on_run=True,
    no_experiment="a process needs a CUDA device to be refused one that is not there",
)

_HEAD = "import os\n\nimport torch\nimport torch.distributed as dist\n\ndist.init_process_group('nccl')\n"

EXAMPLES = (
    bad(
        "the rank of the group",
        {"train.py": _HEAD + "torch.cuda.set_device(dist.get_rank())\n"},
        at="train.py:7 warning",
    ),
    bad(
        "through a variable, in the name of the device",
        {
            "train.py": _HEAD + "rank = int(os.environ['RANK'])\n"
            "model = torch.nn.Linear(8, 8).to(f'cuda:{rank}')\n"
            "model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])\n"
        },
        at="train.py:8",
    ),
    bad(
        "through the arguments",
        {"train.py": _HEAD + "args = parse()\nargs.rank = int(os.environ['RANK'])\ntorch.cuda.set_device(args.rank)\n"},
        at="train.py:9",
    ),
    good(
        "arguments that hold the rest of a division",
        {
            "train.py": _HEAD + "args = parse()\nargs.rank = int(os.environ['RANK']) % torch.cuda.device_count()\n"
            "torch.cuda.set_device(args.rank)\n"
        },
    ),
    bad(
        "the pair of mmengine",
        {
            "test.py": "import torch\nfrom mmengine.dist import get_dist_info, init_dist\n\n"
            "init_dist('pytorch')\nrank, world_size = get_dist_info()\ntorch.cuda.set_device(rank)\n"
        },
        at="test.py:6",
    ),
    bad(
        "two machines are started",
        {
            "train.py": _HEAD + "torch.cuda.set_device(dist.get_rank())\n",
            "run.sh": "torchrun --nnodes 2 --nproc_per_node 8 --node_rank $R --master_addr $M train.py\n",
        },
        at="train.py:7 warning",
    ),
    bad(
        "a quantised model in one piece",
        {
            "train.py": "from accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\n\n"
            "device_map = {'': Accelerator().process_index}\n"
            "model = AutoModelForCausalLM.from_pretrained('x', load_in_8bit=True, device_map=device_map)\n"
        },
        at="train.py:4",
    ),
    good(
        "the index on the machine, of accelerate",
        {
            "train.py": "from accelerate import PartialState\nfrom transformers import AutoModelForCausalLM\n\n"
            "device_map = {'': PartialState().local_process_index}\n"
            "model = AutoModelForCausalLM.from_pretrained('x', load_in_8bit=True, device_map=device_map)\n"
        },
    ),
    good(
        "the rank on the machine",
        {"train.py": _HEAD + "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"},
    ),
    good(
        "the rank within the GPUs of the machine",
        {
            "train.py": _HEAD + "rank = dist.get_rank()\nlocal = rank % torch.cuda.device_count()\n"
            "torch.cuda.set_device(local)\ntorch.cuda.set_device(rank % torch.cuda.device_count())\n"
        },
    ),
    good(
        "the index that `mp.spawn` hands over",
        {
            "train.py": "import torch\nimport torch.distributed as dist\nimport torch.multiprocessing as mp\n\n\n"
            "def worker(rank):\n    dist.init_process_group('nccl', rank=rank, world_size=4)\n"
            "    torch.cuda.set_device(rank)\n\n\nif __name__ == '__main__':\n    mp.spawn(worker, nprocs=4)\n"
        },
    ),
    good(
        "one machine",
        {
            "train.py": _HEAD + "torch.cuda.set_device(dist.get_rank())\n",
            "run.sh": "torchrun --nproc_per_node 8 train.py\n",
        },
    ),
    good(
        "one machine with as many processes as somebody says",
        {
            "train.py": _HEAD + "torch.cuda.set_device(dist.get_rank())\n",
            "run.sh": "torchrun --standalone --nnodes=1 --nproc-per-node=${GPUS} train.py\n",
        },
        select="DSL237",
    ),
    bad(
        "a part of a library, which asks whether there is a job",
        {
            "pipeline.py": "import torch\nimport torch.distributed as dist\n\n\ndef run(self):\n"
            "    device = torch.device(f'cuda:{dist.get_rank()}') if dist.is_initialized() else self.device\n"
            "    return torch.ones(1, device=device)\n"
        },
        at="pipeline.py:6 info",
    ),
    good(
        "the ranks meet on this machine",
        {
            "train.py": "import os\n\nimport torch\nimport torch.distributed as dist\n"
            "import torch.multiprocessing as mp\n\n\ndef worker(rank):\n"
            "    dist.init_process_group('nccl', rank=rank, world_size=4)\n"
            "    torch.cuda.set_device(dist.get_rank())\n\n\nif __name__ == '__main__':\n"
            "    os.environ['MASTER_ADDR'] = 'localhost'\n    mp.spawn(worker, nprocs=4)\n"
        },
    ),
    bad(
        "an address of this machine for a run of one process only",
        {
            "train.py": "import os\n\nimport torch\nimport torch.distributed as dist\n\n"
            "if 'MASTER_ADDR' not in os.environ:\n    os.environ['MASTER_ADDR'] = 'localhost'\n"
            "dist.init_process_group('nccl')\ntorch.cuda.set_device(dist.get_rank())\n"
        },
        at="train.py:9",
    ),
    good(
        "the number that stands for the rank without distribution",
        {
            "train.py": "import os\n\nimport torch\nimport torch.distributed as dist\n\n"
            "if 'LOCAL_RANK' in os.environ:\n    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
            "    dist.init_process_group('nccl')\n    rank = dist.get_rank()\nelse:\n"
            "    rank = 0\n    torch.cuda.set_device(rank)\n"
        },
    ),
    good(
        "a test of one machine",
        {
            "tests/test_groups.py": "import torch\nimport torch.distributed as dist\n\n\ndef test_groups():\n"
            "    torch.cuda.set_device(dist.get_rank())\n"
        },
    ),
)

_TEST = re.compile(r"(?:^|/)(?:tests?|unit_tests)/|(?:^|/)test_[^/]*$|_test\.py$|conftest\.py$")
_CHOOSERS = frozenset({"set_device", "device", "cuda"})
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1"})


def applies(path: str, _context: object) -> bool:
    """Tests run on one machine."""
    return _TEST.search(path) is None


def precheck(tree: ast.Module) -> bool:
    """Some call or text chooses a device by something that is no literal and no arithmetic."""
    nodes = flat(tree)
    for call in nodes.nodes(ast.Call):
        given = [*call.args[-1:], *(k.value for k in call.keywords)] if call_name(call) in _CHOOSERS else []
        if any(map(_may_be_rank, given)):
            return True
        if any(_listed(k) for k in call.keywords):
            return True
    if any(_is_map(d) for d in nodes.nodes(ast.Dict)):
        return True
    return any(
        isinstance(value, ast.FormattedValue) and _may_be_rank(value.value)
        for text in nodes.nodes(ast.JoinedStr)
        for value in text.values[1:2]
        if isinstance(text.values[0], ast.Constant) and str(text.values[0].value).endswith(":")
    )


def _listed(keyword: ast.keyword) -> bool:
    value = keyword.value
    if keyword.arg == "device_ids" and isinstance(value, ast.List) and len(value.elts) == 1:
        return _may_be_rank(value.elts[0])
    return keyword.arg == "device_id" and _may_be_rank(value)


def _is_map(node: ast.Dict) -> bool:
    """``{"": x}``, a map of the whole model."""
    return len(node.keys) == 1 and isinstance(node.keys[0], ast.Constant) and node.keys[0].value == ""


def _may_be_rank(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript)


class Check(ScriptCheck):
    """Looks at the places that choose a GPU, once for a file."""

    def finish(self) -> None:
        """Fire on the first choice by the rank in the job."""
        run = self.ctx.run
        if run.world_size.is_known and run.world_size.value == run.processes_per_node.get_or(None):
            return
        if run.nodes.get_or(0) == 1:
            return
        startup = self.ctx.startup
        met = [w.text for w in startup.environment_writes if w.name == "MASTER_ADDR"]
        if met and _THIS_MACHINE.issuperset(met) and startup.starts_processes:
            return
        for choice in self.ctx.startup.devices.choices:
            if startup.devices.is_global_rank(choice.index) and not self._is_number(choice.index):
                self._report(choice.index)
                return

    def _is_group_optional(self, index: cst.BaseExpression) -> bool:
        """Whether there is a job at all is asked around the choice, and this module starts none."""
        if self.ctx.startup.group_makers or self.ctx.startup.is_entry:
            return False
        tests = [n.test for n in self.ctx.tree.parents(index) if isinstance(n, cst.IfExp | cst.If)]
        inner = (n for test in tests for n in self.ctx.tree.descendants(test) if isinstance(n, cst.Call))
        return any(self.ctx.called(call) == "is_initialized" for call in inner)

    def _is_number(self, index: cst.BaseExpression) -> bool:
        """``rank = 0`` is what was assigned last, in the arm without distribution."""
        if not isinstance(index, cst.Name):
            return False
        found = self.ctx.objects.reaching.of_bindings(self.ctx.names.bindings(index.value, index), index)
        return bool(found) and all(b.value is not None and number_of(b.value) is not None for b in found)

    def _hint(self, text: str) -> str:
        if text.endswith(".process_index"):
            return f"Use `{text.replace('process_index', 'local_process_index')}`"
        return f'Use `int(os.environ["LOCAL_RANK"])`, or `{text} % torch.cuda.device_count()`'

    def _report(self, index: cst.BaseExpression) -> None:
        devices = self.ctx.startup.devices
        within = [value for value in devices.returned(index) if devices.is_global_rank(value)]
        text = self.ctx.text(within[0] if within else index)
        self.report(
            index,
            f"the GPU is chosen by `{text}`, the rank in the whole job: on the second machine it is larger than the"
            " index of any GPU there, and the process stops with `invalid device ordinal`",
            hint=self._hint(text),
            related=tuple(self.ctx.location(value, "the rank comes from here") for value in within),
            severity=Severity.INFO if self._is_group_optional(index) else None,
        )
