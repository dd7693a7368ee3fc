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
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.devices import DEVICE_TAGS, choices, is_rank_of_job
from dslint.rules.runs import Happening, RunQuery

if TYPE_CHECKING:
    from dslint.python.source import Module

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

_TEST = re.compile(r"(?:^|/)(?:tests?|unit_tests)/|(?:^|/)test_[^/]*$|_test\.py$|conftest\.py$")
_THIS_MACHINE = re.compile(r"[\"']MASTER_ADDR[\"']\]? *[=,][ (]*[\"'](?:localhost|127\.0\.0\.1)[\"']")
# Where nothing starts a job, its state is unknown: only the rank itself counts.
_ASKED = re.compile(r"get_rank\(|process_index|RANK")
_RANK = re.compile(r"rank|process_index", re.I)


def applies(path: str, _context: object) -> bool:
    """Tests run on one machine."""
    return _TEST.search(path) is None


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first choice of a device by the rank in the job."""
    if run.context.is_one_machine:
        return
    starts = run.has("starts-group", "spawns")
    for found in run.happenings(*DEVICE_TAGS):
        event = found.event
        if _TEST.search(event.module.path) or _meets_here(run, event):
            continue
        for value, node in choices(event):
            if is_rank_of_job(run, event, value) and (starts or _ASKED.search(run.text(event.module, node))):
                yield _finding(run, found, node)
                return


def _meets_here(run: RunQuery, event: Event) -> bool:
    """Return whether the script starts the processes, and makes them meet on this machine."""
    modules = {id(m): m for m in (event.module, *(found.event.module for found in run.happenings("spawns")))}
    return run.has("spawns") and any(module.search(_THIS_MACHINE) for module in modules.values())


def _is_group_optional(run: RunQuery, found: Happening) -> bool:
    """Return whether the code asks if there is a job at all, and nothing here starts one."""
    if run.has("starts-group", "spawns") or found.entry.kind != "function":
        return False
    tests = [node for node in found.around if isinstance(node, Alt)]
    return any("is_initialized" in ast.unparse(getattr(alt.node, "test", alt.node)) for alt in tests)


def _hint(text: str) -> str:
    if text.endswith(".process_index"):
        return f"Use `{text.replace('process_index', 'local_process_index')}`"
    return f'Use `int(os.environ["LOCAL_RANK"])`, or `{text} % torch.cuda.device_count()`'


def _returned(module: Module, node: ast.AST) -> list[ast.expr]:
    """Return what a function of the same file returns that speaks of the rank."""
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    made = [n for n in module.tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    values = [n.value for function in made for n in ast.walk(function) if isinstance(n, ast.Return) and n.value]
    return [v.body if isinstance(v, ast.IfExp) else v for v in values if _RANK.search(module.text(v))]


def _finding(run: RunQuery, found: Happening, node: ast.AST) -> Finding:
    event = found.event
    within = _returned(event.module, node)
    source: ast.AST = within[0] if within else node
    parts = source.values if isinstance(source, ast.JoinedStr) else []
    named = [part.value for part in parts if isinstance(part, ast.FormattedValue)]
    text = ast.unparse(named[0]) if len(named) == 1 else run.text(event.module, source)
    return run.finding(
        META,
        event.module,
        node,
        f"the GPU is chosen by the global rank `{text}`: on a second machine no GPU has that index"
        " (`invalid device ordinal`)",
        hint=_hint(text),
        related=tuple(run.location(event.module, value, "the rank comes from here") for value in within),
        severity=Severity.INFO if _is_group_optional(run, found) else None,
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
    bad(
        "a field, which a helper has filled",
        {
            "train.py": _HEAD + "\ndef rank_of():\n    return dist.get_rank()\n\n\nclass Setup:\n"
            "    def __init__(self):\n        self.number = rank_of()\n\n\n"
            "setup = Setup()\ntorch.cuda.set_device(setup.number)\n"
        },
        at="train.py:18",
    ),
    bad(
        "in another file",
        {
            "train.py": "import torch.distributed as dist\nfrom devices import choose\n\n"
            "dist.init_process_group('nccl')\nchoose(dist.get_rank())\n",
            "devices.py": "import torch\n\n\ndef choose(number):\n    torch.cuda.set_device(number)\n",
        },
        at="devices.py:5",
    ),
    good(
        "a field, which holds the rest of a division by what one machine has",
        {
            "train.py": _HEAD
            + "\nclass Setup:\n    def __init__(self):\n        self.number = dist.get_rank() % 8\n\n\n"
            "setup = Setup()\ntorch.cuda.set_device(setup.number)\n"
        },
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
        "the number that represents the rank without distribution",
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
