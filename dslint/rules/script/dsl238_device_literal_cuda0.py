"""**What.** A distributed script names GPU 0: `"cuda:0"`, `.cuda(0)`, `torch.cuda.set_device(0)`,
`map_location="cuda:0"`, `device_map={"": 0}`, `device_ids=[0]`. Or it gives safetensors the device `"cuda"`
(`load_file(path, device="cuda")`, `accelerator.device.type`), which takes it for GPU 0 and asks for no current device.

**Why it hurts.** All ranks of the machine put the model, or the weights that they load, on the same GPU. It runs out of
memory at eight processes, NCCL refuses two ranks on one device, and the other GPUs stay empty.

**Fix.** The device of the process: `torch.device("cuda", int(os.environ["LOCAL_RANK"]))`, `accelerator.device`,
`map_location="cpu"`, `device_map={"": local_rank}`, `load_file(path, device=str(accelerator.device))`.

**When it stays quiet.** In modules that are no program; in files that join no job; on rank 0 only, and in the arm that
runs without distribution; where each process sees one GPU (`CUDA_VISIBLE_DEVICES`, `--gpus-per-task=1`); in servers and
demos (gradio, fastapi); with `set_per_process_memory_fraction`, for processes that share a GPU; for one process, also
by `world_size=1`, or one on each machine; for an `Accelerator` that prepares nothing; in tests. Where no launch command
tells how many processes a machine runs, and the script wraps no model for several ranks that talk by NCCL, it is an
information.

**Evidence.** PyTorch documentation of `DistributedDataParallel`: "make sure that `map_location` is configured properly
for every process". accelerate 1.15 `Accelerator.prepare_model` stops on rank 1 after `device_map={"": 0}`: "You can't
train a model that has been loaded in 8-bit or 4-bit precision on a different device than the one you're training on".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.environment import SET
from dslint.python.events import Event
from dslint.python.values import Value
from dslint.python.varies import CLOCK, DATA, LOCAL, LOST, RANDOM, RANK
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.firstgpuscripts import HEAD, INIT, MAIN, MORE
from dslint.rules.ranks.devices import DEVICE_TAGS, choices, device_words, is_bare_gpu
from dslint.rules.ranks.visible import VARIABLE
from dslint.rules.ranks.ways import Decided, ways_to
from dslint.rules.runs import Happening, RunQuery

META = RuleMeta(
    code="DSL238",
    name="device-literal-cuda0",
    kind="script",
    severity=Severity.WARNING,
    summary="A distributed script puts every rank on GPU 0 by its name",
    markers=(
        r"init_process_group|init_distributed|deepspeed|Accelerator|PartialState|Trainer|Fabric",
        r"cuda|device",
        r"safetensors|[\"']cuda:0[\"']|\.(?:cuda|to|set_device)\(0\)|"
        r"device\([\"']cuda[\"'], *0\)|device_map=\{[\"']{2}: *0",
    ),
    references=("https://pytorch.org/tutorials/intermediate/ddp_tutorial.html",),
    depends_on_run=True,
    no_experiment="the ranks share a device only where there is one",
)

# What makes a process a rank of a job. An `Accelerator` that prepares nothing may be there for its device alone.
_JOINING = ("starts-group", "makes-engine", "wraps-model", "prepares", "shards-data")
_ALONE = ("accelerate.Accelerator", "accelerate.PartialState")
_SERVERS = re.compile(r"\b(?:gradio|fastapi|flask|uvicorn|streamlit|vllm|sglang)\b")
_TEST = re.compile(r"(?:^|/)tests?/|(?:^|/)test_[^/]*$|_test\.py$|conftest\.py$")
# Where the machine has no GPU.
_WITHOUT = frozenset({"cpu", "mps"})
_FIRST = frozenset({"cuda:0"})


def applies(path: str, _context: object) -> bool:
    """Tests put small things where they like."""
    return _TEST.search(path) is None


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first place that names GPU 0 for every rank of the job."""
    context = run.context
    is_alone = context.is_one_process or 1 in (context.processes_per_node.get_or(0), context.gpus_of_task.get_or(0))
    if (is_alone and not run.has("spawns", "runs-command")) or run.has("limits-memory") or _hides_gpus(run):
        return
    places = [(found, value, node) for found in run.happenings(*DEVICE_TAGS) for value, node in _named(run, found)]
    joins = _joins(run) if places else []
    for found, value, node in places:
        if found.event.module.search(_SERVERS) or found.entry.module.search(_SERVERS):
            return  # a demo, which uses one GPU
        if _is_of_every_rank(run, found, joins):
            yield _finding(run, found.event, value, node)
            return


def _hides_gpus(run: RunQuery) -> bool:
    """Return whether the script says which GPUs a process sees."""
    return any(
        found.event.api == SET and VARIABLE in (found.event.arguments["name"].constants or ())
        for found in run.happenings("sets-environment")
    )


def _named(run: RunQuery, found: Happening) -> Iterator[tuple[Value, ast.AST]]:
    """Yield what an event takes for a device and certainly is GPU 0, with the place where it is written."""
    event = found.event
    if found.entry.kind != "script" or event.may or event.open:
        return
    for value, node in choices(event):
        words = device_words(run, value) if value.atoms else None
        held = [other for items in event.items.values() for other in items]
        if any(value is moved for moved in event.items.get("map_location", ())):
            continue  # it moves what lay on one device to another
        is_first = words is not None and _FIRST <= words <= _FIRST | _WITHOUT and not (value in held and len(held) > 1)
        if is_first or ("takes-first-gpu" in event.tags and is_bare_gpu(run, value)):
            yield value, node


def _joins(run: RunQuery) -> list[tuple[Happening, frozenset[Decided]]]:
    """Return where a process becomes a rank of a job, with what decides over it: the question whether there is one."""
    found = [join for join in run.happenings(*_JOINING) if join.entry.kind == "script" and not join.event.may]
    known = [(join, ways_to(run, join)) for join in found if not _is_of_one(join.event)]
    several = run.context.world_size.get_or(1) > 1
    return [(join, ways) for join, ways in known if several or any(way.asks_only_for_job for way in ways)]


def _is_of_one(event: Event) -> bool:
    size = event.arguments.get("world_size")
    is_asked = event.api in _ALONE or "training-arguments" in event.tags or "trainer" in event.tags
    return is_asked or (size is not None and size.constants == (1,))


def _is_of_every_rank(run: RunQuery, found: Happening, joins: list[tuple[Happening, frozenset[Decided]]]) -> bool:
    """Return whether the ranks of a job all come to an event."""
    event, several = found.event, run.context.world_size.get_or(1) > 1
    if event.varies & (LOCAL | RANK | DATA | CLOCK | RANDOM | LOST):
        return False
    ways = ways_to(run, found)
    if several and not joins:
        return event.lanes == run.machine.worlds.full and any(not way.job for way in ways)
    return any(
        event.lanes & join.event.lanes == join.event.lanes and any(way.is_on(other) for way in ways for other in others)
        for join, others in joins
    )


def _replicates(run: RunQuery) -> bool:
    """Return whether the script wraps a model for several ranks that talk by NCCL: one process alone needs neither."""
    if run.context.processes_per_node.is_known or run.context.world_size.is_known:
        return False
    wraps = any(found.entry.kind == "script" and not found.event.may for found in run.happenings("wraps-model"))
    groups = (found.event.arguments.get("backend") for found in run.happenings("default-group"))
    return wraps and any("nccl" in (backend.constants or ()) for backend in groups if backend is not None)


def _finding(run: RunQuery, event: Event, value: Value, node: ast.AST) -> Finding:
    text = run.text(event.module, node)
    share = "they share its memory"
    is_bare = "takes-first-gpu" in event.tags and is_bare_gpu(run, value)
    first = "GPU 0, whichever is the current one," if is_bare else "GPU 0"
    several = run.context.processes_per_node.get_or(run.context.world_size.get_or(1)) > 1 or _replicates(run)
    return run.finding(
        META,
        event.module,
        node,
        f"`{text}` is {first} for every rank of a machine: {share if several else f'with several, {share}'}",
        severity=None if several else Severity.INFO,
        hint='Use the device of the process, such as `torch.device("cuda", local_rank)` or `accelerator.device`',
        same=(value,),
    )


_SLURM = (
    "import os\n\nimport torch\nimport torch.distributed as dist\n\ntorch.cuda.set_device(0)\n"
    "dist.init_process_group('nccl', "
    "rank=int(os.environ['SLURM_PROCID']), world_size=int(os.environ['SLURM_NTASKS']))\n"
)
_JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n"
_TENSORS = """\
import argparse
import os

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import load_file, load_model
from torch.nn.parallel import DistributedDataParallel as DDP


def warm_start(net, path, device):
    net.load_state_dict(load_file(path, device=device))


def parts(path, device):
    with safe_open(path, framework="pt", device=device) as file:
        return {key: file.get_tensor(key) for key in file.keys()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    net = torch.nn.Linear(8, 8).cuda()
    %s
    return DDP(net, device_ids=[local_rank])


if __name__ == "__main__":
    main()
"""
_WORD = '"cuda" if torch.cuda.is_available() else "cpu"'
_PREPARED = """\
from accelerate import Accelerator
from safetensors.torch import load_file
from torch import nn


def main():
    accelerator = Accelerator()
    net = nn.Linear(8, 8)
    net.load_state_dict(load_file("net.safetensors", device=%s))
    return accelerator.prepare(net)


if __name__ == "__main__":
    main()
"""
_EIGHT = "accelerate launch --multi_gpu --num_processes 8 train.py\n"

EXAMPLES = (
    bad(
        "safetensors takes the type of a device for GPU 0",
        {"train.py": _PREPARED % "accelerator.device.type", "run.sh": _EIGHT},
        at="train.py:9 warning",
    ),
    good(
        "safetensors gets the device of the process",
        {"train.py": _PREPARED % "str(accelerator.device)", "run.sh": _EIGHT},
    ),
    bad(
        "safetensors, through a helper",
        {"train.py": _TENSORS % f'warm_start(net, "net.safetensors", {_WORD})'},
        at="train.py:12 warning",
    ),
    bad(
        "a file of safetensors is opened",
        {"train.py": _TENSORS % 'net.load_state_dict(parts("net.safetensors", "cuda"))'},
        at="train.py:16 warning",
    ),
    bad(
        "safetensors, by an option",
        {
            "train.py": _TENSORS % 'load_model(net, "net.safetensors", device=args.device)',
            "run.sh": "torchrun --nproc_per_node 8 train.py\n",
        },
        at="train.py:28 warning",
    ),
    good(
        "torch takes the word for the current device, and safetensors loads to the host or to a GPU by its number",
        {
            "torch.py": _TENSORS % 'net.load_state_dict(torch.load("net.pt", map_location="cuda"))',
            "host.py": _TENSORS % 'warm_start(net, "net.safetensors", "cpu")',
            "number.py": _TENSORS % 'warm_start(net, "net.safetensors", f"cuda:{local_rank}")',
            "place.py": _TENSORS % 'warm_start(net, "net.safetensors", local_rank)',
        },
    ),
    good(
        "rank 0 alone loads by safetensors",
        {"train.py": _TENSORS % 'if dist.get_rank() == 0:\n        warm_start(net, "net.safetensors", "cuda")'},
    ),
    bad(
        "the model on GPU 0",
        {"train.py": HEAD.format(INIT) + "    model = torch.nn.Linear(8, 8).to('cuda:0')\n" + MAIN},
        at="train.py:9 info",
    ),
    bad(
        "the group is made where a launcher has started the script",
        {
            "train.py": "import os\n\nimport torch\nimport torch.distributed as dist\n\n\ndef main():\n"
            "    if 'RANK' in os.environ:\n        dist.init_process_group('nccl')\n"
            "    device = torch.device('cuda:0')\n    return torch.nn.Linear(8, 8).to(device)\n" + MAIN
        },
        at="train.py:10",
    ),
    good(
        "the group is made where an option asks for it",
        {
            "train.py": "import torch\nimport torch.distributed as dist\n\n\ndef main(args):\n"
            "    if args.export:\n        dist.init_process_group('nccl')\n"
            "    return torch.nn.Linear(8, 8).to('cuda:0')\n" + MAIN.replace("main()", "main(parse())")
        },
    ),
    bad(
        "through a variable, with a choice for machines without a GPU",
        {
            "train.py": HEAD.format(INIT)
            + "    device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\n"
            + "    model = torch.nn.Linear(8, 8).to(device)\n"
            + MAIN
        },
        at="train.py:9",
    ),
    bad(
        "a helper of another file, whose default names the device",
        {
            "train.py": "import torch.distributed as dist\n\nfrom models import place\n\n"
            "if __name__ == '__main__':\n    dist.init_process_group('nccl')\n    place()\n",
            "models.py": "import torch\n\n\ndef place(device='cuda:0'):\n    return torch.nn.Linear(8, 8).to(device)\n",
        },
        at="models.py:5",
    ),
    bad(
        "the device of `DistributedDataParallel`",
        {
            "train.py": HEAD.format(INIT) + "    model = torch.nn.Linear(8, 8).cuda()\n"
            "    return torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])\n" + MAIN
        },
        at="train.py:10",
    ),
    bad(
        "the weights that every rank loads",
        {"train.py": HEAD.format(INIT) + "    return torch.load('x.pt', map_location='cuda:0')\n" + MAIN},
        at="train.py:9",
    ),
    bad(
        "a quantised model under accelerate",
        {
            "train.py": "from accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\n\n\n"
            "def main():\n    accelerator = Accelerator()\n"
            "    model = AutoModelForCausalLM.from_pretrained('x', load_in_8bit=True, device_map={'': 0})\n"
            "    return accelerator.prepare(model)\n" + MAIN
        },
        at="train.py:7",
    ),
    bad(
        "a Trainer that is started on several processes",
        {
            "train.py": "from transformers import AutoModelForCausalLM, Trainer\n\n\ndef main():\n"
            "    model = AutoModelForCausalLM.from_pretrained('x', load_in_4bit=True, device_map={'': 0})\n"
            "    Trainer(model=model).train()\n" + MAIN,
            "run.sh": "torchrun --nproc_per_node 4 train.py\n",
        },
        at="train.py:5 warning",
    ),
    good(
        "one process on each of four machines",
        {
            "train.py": HEAD.format(INIT) + "    model = torch.nn.Linear(8, 8).to('cuda:0')\n" + MAIN,
            "run.sh": "torchrun --nnodes 4 --nproc_per_node 1 --node_rank $R --master_addr $M train.py\n",
        },
        select="DSL238",
    ),
    good(
        "Slurm shows each task one GPU",
        {
            "train.py": _SLURM,
            "job.sh": _JOB + "#SBATCH --gpus-per-task=1\nsrun python train.py\n",
        },
        select="DSL238",
    ),
    bad(
        "Slurm shows all tasks of a node its GPUs",
        {
            "train.py": _SLURM,
            "job.sh": _JOB + "#SBATCH --gpus-per-node=4\nsrun python train.py\n",
        },
        at="train.py:6 warning",
    ),
    good(
        "a Trainer that nobody starts on several processes",
        {
            "train.py": "from transformers import AutoModelForCausalLM, Trainer\n\n\ndef main():\n"
            "    model = AutoModelForCausalLM.from_pretrained('x', load_in_4bit=True, device_map={'': 0})\n"
            "    Trainer(model=model).train()\n" + MAIN,
        },
    ),
    good(
        "rank 0 alone",
        {
            "train.py": HEAD.format(INIT)
            + "    if dist.get_rank() == 0:\n        print(torch.ones(1, device='cuda:0'))\n"
            + MAIN
        },
    ),
    *MORE,
)
