"""**What.** A script makes an NCCL process group and puts its model on `"cuda"`, but no line gives the process a GPU of
its own.

The same of objects (`all_gather_object`, `broadcast_object_list`) that NCCL sends, whose bytes go through the current
device, and of tensors made on `"cuda"` that ranks exchange, wherever the model is.

**Why it hurts.** The current device is GPU 0 until somebody chooses another one. All ranks of a machine put their model
there: NCCL refuses with `Duplicate GPU detected`, or the first GPU runs out of memory while the others stay empty.

**Fix.** `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before the model is made.

**When it stays quiet.** In modules without `if __name__ == "__main__":` and without a command line, since their caller
may have chosen; when anything in the file chooses: `set_device`, `device_id=` of `init_process_group`,
`f"cuda:{local_rank}"`, `.cuda(local_rank)`, `.to(rank)`, `device_ids=`, `CUDA_VISIBLE_DEVICES`; with DeepSpeed,
accelerate, transformers, Lightning and mmengine, which choose by themselves; for objects and tensors that are sent
only what sets the current device counts (a model on `f"cuda:{local_rank}"` does not); for other backends, and for what
mpi4py sends; for one process (`world_size=1`).

**Evidence.** NCCL `init.cc`: `Duplicate GPU detected : rank 0 and rank 1 both on CUDA device`; PyTorch documentation of
`DistributedDataParallel`: "ensure that each process exclusively works on a single GPU". Reports:
https://github.com/NVIDIA/nccl/issues/541.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Call, Event, Seq, events, walk
from dslint.python.values import Const, Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.devices import DEVICE_NAMING, choices, device_words, is_dtype, is_on_current
from dslint.rules.runs import RunQuery

if TYPE_CHECKING:
    from dslint.python.source import Module

META = RuleMeta(
    code="DSL236",
    name="set-device-missing",
    kind="script",
    severity=Severity.WARNING,
    summary="An NCCL job puts every rank on GPU 0, since no line chooses a device",
    markers=(r"init_process_group", r"nccl"),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.cuda.set_device.html",
        "https://github.com/NVIDIA/nccl/issues/541",
    ),
    depends_on_run=True,
    no_experiment="NCCL needs GPUs, and gloo does not ask which device a process uses",
)

# A name in the files of a run by which something may choose the device.
_CHOICE = re.compile(
    r"set_device|device_ids?\s*=\s*(?!\[)|CUDA_VISIBLE_DEVICES|cuda\.device\(|init_device_mesh|HIP_VISIBLE|[\"']cuda:"
)
# What sets the current device, and libraries that do.
_SETS = re.compile(
    r"set_device|device_id\s*=|VISIBLE_DEVICES|cuda\.device\(|init_device_mesh|set_default_device|horovod"
)
_TRAINS = re.compile(
    r"\b(?:\w*Trainer|\w*TrainingArguments|Accelerator|PartialState|deepspeed|lightning|mmengine|mmcv|ray)\b"
)
_MEMBER = re.compile(r"\.(?:\w*Trainer|\w*TrainingArguments)\b")
_OWNERS = frozenset({"makes-engine", "prepares", "trainer", "sets-device"})
# Libraries that choose the device of a process by themselves.
_CHOOSING = re.compile(
    r"(?m)^\s*(?:from|import)\s+(?:deepspeed|accelerate|transformers|lightning|pytorch_lightning|mmengine|mmcv|ray|trl)\b"
)
# Functions that nobody can read and that may choose one, by their names.
_MAY_CHOOSE = re.compile(r"device|setup|dist|init|gpu", re.I)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first thing that goes to the current device of an NCCL job, which nothing has chosen."""
    if (run.context.is_one_process and not run.has("spawns")) or run.has(*_OWNERS):
        return
    for entry, tree in run.trees():
        found = list(events(tree))
        made = next((event for event in found if _makes_nccl(event)), None)
        if made is None:
            continue
        put = next((event for event in found if _is_put(run, event)), None) if entry.kind == "script" else None
        sent = next((event for event in found if _sends_objects(run, event)), None)
        if put is not None and not _chooses(run, tree, found):
            yield _finding(run, made, put, _PUT)
            return
        texts = [module.code for module in run.machine.program.modules()]
        if any(map(_SETS.search, texts)) or any(_may_train(run, module) for module in run.machine.program.modules()):
            continue
        if sent is not None and not _has_gloo(made):
            name = sent.api.rpartition(".")[2]
            yield _finding(run, made, sent, f"`{name}` sends objects through {_SENT}")
            return
        tensor = next(_sent_from_current(run, found), None)
        if tensor is not None:
            name = tensor.api.rpartition(".")[2]
            yield _finding(run, made, tensor, f"`{name}` sends a tensor that was made on {_SENT}")
            return


_PUT = (
    "no line chooses a GPU: every rank works on GPU 0, and NCCL stops with `Duplicate GPU detected` or runs out"
    " of memory"
)
_SENT = "the current device, GPU 0 on every rank: NCCL fails or hangs"


def _finding(run: RunQuery, made: Event, event: Event, message: str) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        message,
        hint='Call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before the process group is made',
        related=(run.location(made.module, made.node, "the process group of NCCL"),),
    )


def _makes_nccl(event: Event) -> bool:
    backend, device = event.arguments.get("backend"), event.arguments.get("device_id")
    processes = event.arguments.get("world_size")
    names = [atom.value for atom in backend.atoms if isinstance(atom, Const)] if backend is not None else []
    is_chosen = event.open or (device is not None and device.constants != (None,))
    is_alone = processes is not None and processes.constants == (1,)
    return "starts-group" in event.tags and not (is_chosen or is_alone) and any("nccl" in str(name) for name in names)


def _has_gloo(made: Event) -> bool:
    """`cpu:gloo,cuda:nccl`: objects go over the host."""
    backend = made.arguments.get("backend")
    names = [str(atom.value) for atom in (backend.atoms if backend else ()) if isinstance(atom, Const)]
    return any("gloo" in name and "nccl" in name for name in names)


def _sends_objects(run: RunQuery, event: Event) -> bool:
    group = event.arguments.get("group")
    is_default = group is None or group.constants == (None,)
    is_nccl = not event.api.startswith("mpi4py.")  # which talks over the host, whatever the backend of torch
    return "object-collective" in event.tags and event.lanes == run.machine.worlds.full and is_default and is_nccl


def _sent_from_current(run: RunQuery, found: list[Event]) -> Iterator[Event]:
    """Yield what all ranks exchange of tensors that were made on the current device."""
    puts = (event.result.atoms for event in found if event.result is not None and _is_put(run, event))
    moved = frozenset(atom for atoms in puts for atom in atoms if isinstance(atom, Instance))
    for event in found:
        is_exchange = "collective" in event.tags and event.api.startswith("torch.distributed.") and not event.may
        atoms = [atom for value in event.arguments.values() for atom in value.atoms if isinstance(atom, Instance)]
        is_all = event.lanes == run.machine.worlds.full
        placed = [run.machine.devices[atom].constants for atom in atoms if atom in run.machine.devices]
        if is_exchange and is_all and (any(atom in moved for atom in atoms) or ("cuda",) in placed):
            yield event


def _is_put(run: RunQuery, event: Event) -> bool:
    """Return whether every rank puts something on the current GPU."""
    return event.lanes == run.machine.worlds.full and not event.may and is_on_current(run, event)


def _chooses(run: RunQuery, tree: Seq, found: list[Event]) -> bool:
    """Return whether something in the run, or a function that nobody can read, may choose the device."""
    if any(_is_choice(run, event) for event in found):
        return True
    modules = {id(node.module): node.module for node in walk(tree) if isinstance(node, Event | Call | Alt)}
    texts = [module.code for module in modules.values()]
    if any(_CHOICE.search(text) or _CHOOSING.search(text) for text in texts):
        return True
    return any(_calls_stranger(run, module) for module in modules.values())


def _is_choice(run: RunQuery, event: Event) -> bool:
    """Return whether a call takes a device that is not the name of the current one, or none that can be read."""
    if not event.tags & DEVICE_NAMING:
        return False
    known = [device_words(run, value) for value, _ in choices(event) if not is_dtype(value)]
    return any(words is None or any(":" in word for word in words) for words in known)


def _may_train(run: RunQuery, module: Module) -> bool:
    """Return whether a module names a trainer that the project does not define, which chooses the device itself."""
    program = run.machine.program
    for name, origins in module.imported.items():
        strange = [(home, original) for home, original in origins if program.named(module, home) is None]
        if any(_TRAINS.search(f"{home} {original} {name}") for home, original in strange):
            return True
    return _MEMBER.search(module.code) is not None


def _calls_stranger(run: RunQuery, module: Module, only: frozenset[str] | None = None) -> bool:
    """Return whether a module imports a function of such a name that is not there to be read; `only`: of these names.

    A module of the project may hand on what it imports itself.
    """
    libraries, program = run.machine.libraries, run.machine.program
    for name, origins in module.imported.items():
        for home, original in origins if only is None or name in only else ():
            root = home.partition(".")[0]
            if root == "torch" or root in sys.stdlib_module_names:
                continue
            before = r"\b" if original == "*" else rf"\b{re.escape(name)}\."
            is_name = original not in ("", "*")
            called = [original] if is_name else re.findall(rf"{before}(\w+)\(", module.source.text)
            inner = program.named(module, home)
            if inner is not None:
                if only is None and _calls_stranger(run, inner, frozenset(called)):
                    return True
                continue
            for word in called:
                if _MAY_CHOOSE.search(word) and libraries.function(f"{home}.{word}") is None:
                    return True
    return False


_HEAD = "import torch\nimport torch.distributed as dist\n\n\ndef main():\n    dist.init_process_group('nccl')\n"
_MODEL = "    model = torch.nn.Linear(8, 8).cuda()\n    return torch.nn.parallel.DistributedDataParallel(model)\n"
_OBJECTS = (
    "    device = torch.device('cuda', dist.get_node_local_rank())\n    model = torch.nn.Linear(8, 8).to(device)\n"
    "    names = [None] * dist.get_world_size()\n    dist.all_gather_object(names, str(model))\n"
)
_SUM = (
    "    device = torch.device('cuda', dist.get_node_local_rank())\n    model = torch.nn.Linear(8, 8).to(device)\n"
    "    total = torch.tensor([1.0], device='cuda')\n    dist.all_reduce(total)\n    return model, total\n"
)
_MAIN = "\n\nif __name__ == '__main__':\n    main()\n"

EXAMPLES = (
    bad("every rank on GPU 0", {"train.py": _HEAD + _MODEL + _MAIN}, at="train.py:7 warning"),
    bad(
        "by the name of the device",
        {"train.py": _HEAD + _MODEL.replace(".cuda()", ".to('cuda')") + _MAIN},
        at="train.py:7",
    ),
    bad(
        "NCCL where there is CUDA, and the device through a variable",
        {
            "train.py": _HEAD.replace("'nccl'", "'nccl' if torch.cuda.is_available() else 'gloo'")
            + "    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
            + _MODEL.replace(".cuda()", ".to(device)")
            + _MAIN
        },
        at="train.py:8",
    ),
    bad(
        "a sum goes through GPU 0, the model does not",
        {"train.py": _HEAD + _SUM + _MAIN},
        at="train.py:10 warning",
    ),
    bad(
        "objects go through GPU 0, the model does not",
        {"train.py": _HEAD + _OBJECTS + _MAIN},
        at="train.py:10 warning",
    ),
    bad(
        "in helpers of another file, which put it there",
        {
            "train.py": "from torch.nn.parallel import DistributedDataParallel\n\nfrom setting import begin, build\n\n"
            "if __name__ == '__main__':\n    begin()\n    DistributedDataParallel(build())\n",
            "setting.py": "import torch\nfrom torch.distributed import init_process_group as init\n\n\n"
            "def begin():\n    init(backend='nccl')\n\n\n"
            "def build():\n    where = 'cuda'\n    return torch.nn.Linear(8, 8).to(device=where)\n",
        },
        at="setting.py:11 warning",
    ),
    good(
        "objects over the host",
        {"train.py": _HEAD.replace("'nccl'", "'cpu:gloo,cuda:nccl'") + _OBJECTS + _MAIN},
    ),
    bad(
        "a class of the project is called a trainer",
        {"train.py": _HEAD + _OBJECTS + "\n\nclass Trainer:\n    pass\n" + _MAIN},
        at="train.py:10 warning",
    ),
    good("objects of MPI", {"train.py": "from mpi4py import MPI\n" + _HEAD + _OBJECTS.replace(
        "dist.all_gather_object(names, str(model))", "names = MPI.COMM_WORLD.allgather(str(model))") + _MAIN}),
    good("objects over gloo", {"train.py": _HEAD.replace("nccl", "gloo") + _OBJECTS + _MAIN}),
    good(
        "objects after the choice",
        {"train.py": _HEAD + "    torch.cuda.set_device(dist.get_node_local_rank())\n" + _OBJECTS + _MAIN},
    ),
    good(
        "chosen before",
        {
            "train.py": _HEAD.replace("import torch\n", "import os\n\nimport torch\n", 1)
            + "    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
            + _MODEL
            + _MAIN
        },
    ),
    good(
        "chosen where the group is made",
        {"train.py": _HEAD.replace("'nccl')", "'nccl', device_id=pick())") + _MODEL + _MAIN},
    ),
    good("a module that a script calls", {"train.py": _HEAD + _MODEL}),
    good("another backend", {"train.py": _HEAD.replace("nccl", "gloo") + _MODEL + _MAIN}),
    good(
        "the engine chooses",
        {
            "train.py": "import deepspeed\nimport torch\nimport torch.distributed as dist\n\n\ndef main(model):\n"
            "    dist.init_process_group('nccl')\n    deepspeed.initialize(model=model, config='ds.json')\n"
            "    x = torch.ones(1).cuda()\n" + _MAIN.replace("main()", "main(torch.nn.Linear(4, 4))")
        },
    ),
    good(
        "one visible GPU for each process",
        {
            "train.py": "import os\n\n" + _HEAD.replace(
                "    dist", "    os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\n    dist"
            ) + _MODEL + _MAIN
        },
    ),
    good(
        "a helper of another module may choose",
        {"train.py": "from utils import setup_device\n\n" + _HEAD + "    setup_device()\n" + _MODEL + _MAIN},
    ),
    good(
        "a group of one process, for a wrapper that needs one",
        {"fold.py": _HEAD.replace("'nccl')", "'nccl', rank=0, world_size=1)") + _MODEL + _MAIN},
    ),
    good(
        "one process",
        {"train.py": _HEAD + _MODEL + _MAIN, "run.sh": "torchrun --nproc_per_node 1 train.py\n"},
    ),
)  # fmt: skip
