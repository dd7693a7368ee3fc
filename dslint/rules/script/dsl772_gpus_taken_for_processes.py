"""The batch of a rank, or the learning rate, is computed with the GPUs of this machine and not with the processes.

**What.** In a job of several processes the loader of a `DistributedSampler` gets `batch_size // n_gpu`, or the learning
rate is multiplied by `n_gpu`, and `n_gpu` is `torch.cuda.device_count()`: what this machine shows to the process.

The same for the number of micro batches of a step that is divided by it.

**Why it hurts.** The number is right on one machine with a process for each GPU. On two machines each rank still takes
an eighth of the batch, and there are sixteen of them: the batch of the job is twice what was asked for, with the
rate and the schedule of the smaller one. With fewer processes than GPUs it is too small. Where each task sees its own
GPU only (Slurm's `--gpus-per-task=1`) the number is 1. Nothing fails.

**Fix.** `dist.get_world_size()`, or `WORLD_SIZE` of the launcher.

**When it stays quiet.** A number in which the world size, a launcher's variable or another count takes part; scripts
that start a process for each GPU themselves, or that use `DataParallel`; code that compares the two numbers; loaders
without a `DistributedSampler`; one process.

**Evidence.** `torch.cuda.device_count()` counts the devices that `CUDA_VISIBLE_DEVICES` shows to one process; torchrun
with `--nnodes 2 --nproc_per_node 8` gives a world of 16 and a count of 8.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.queries.derived import Derived
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import last_name

META = RuleMeta(
    code="DSL772",
    name="gpus-taken-for-processes",
    kind="script",
    severity=Severity.WARNING,
    summary="a batch or a rate is computed with the GPUs of one machine, where the number of processes is meant",
    markers=(r"device_count\(", r"DistributedSampler|accelerat|TrainingArguments|init_process_group", r"[*/]"),
    references=("https://github.com/ArrowLuo/CLIP4Clip/blob/master/dataloaders/data_dataloaders.py",),
    depends_on_run=True,
    no_experiment="needs several machines, or more GPUs than processes",
)
_COUNT = re.compile(r"\bdevice_count\(\)")
# Another count takes part, or a test that may choose one.
_OTHER = re.compile(
    r"(?i)world|rank|process|replica|environ|nproc|nodes?\b|machines|get_size|slurm|\.size\(|hvd|\bif\b"
)
# Who starts a process for each GPU, splits a batch over GPUs, or compares the two numbers.
_KNOWS = re.compile(
    r"\bspawn\(|Process\(|Popen\(|notebook_launcher|(?<!Distributed)DataParallel\("
    r"|device_count\(\)\s*[!=]=(?!\s*\d)|[!=]=\s*torch\.cuda\.device_count|gpus?\s*[!=]=\s*\S*world|world\w*\s*[!=]=\s*\S*gpu"
)
# Objects whose fields are asked for one by one.
_WHOLE = r"^(?:args|opts?|options|cfg|config|conf|self|params|hparams|torch|FLAGS)$"
_RATE = re.compile(r"(?i)^(?:\w+_)?(?:lr|learning_rate)$")
_BATCH = re.compile(r"(?i)batch|\bbs\b|\blr\b|rate")
# A number of micro batches, and not the state of one.
_ACCUMULATES = re.compile(
    r"(?i)^(?:\w+_)?(?:grad\w*_)?(?:acc|accum|accumulate|accumulation)(?:_\w*)?(?:steps?|iters?|batches)$"
    r"|^grad_?acc(?:um)?$|^gas$"
)

# The place where a number is computed, and where GPUs are counted.
_Counted = tuple[Module, ast.BinOp | ast.AugAssign, tuple[Module, ast.AST]]


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each batch of a divided loader, and on each rate, that the GPUs of a machine decide."""
    modules = run.machine.program.modules()
    if run.context.is_one_process or not any(module.search(_COUNT) for module in modules):
        return
    if any(module.search(_KNOWS) for module in modules):
        return
    trees = (tree for _, tree in run.trees())
    derived = Derived(modules, trees, _WHOLE, by_field=True)
    told: set[int] = set()
    numbers = [
        *((_counted(derived, m, v, ast.Div | ast.FloorDiv), "batch") for m, v in _batches(run)),
        *((_counted(derived, m, v, ast.Mult), "rate") for m, v in _rates(run, modules)),
        *((found, "accumulation") for found in _accumulations(run, derived, modules)),
    ]
    for found, what in numbers:
        if found is None or id(found[1]) in told:
            continue
        told.add(id(found[1]))
        name = run.text(found[0], found[1], 40)
        yield run.finding(
            META,
            found[0],
            found[1],
            f"`{name}` counts the GPUs of this machine and not the processes: another {what} on several machines",
            hint="Take `dist.get_world_size()`, or `WORLD_SIZE` of the launcher",
            related=(run.location(found[2][0], found[2][1], "counts the GPUs that this process sees"),),
        )


def _batches(run: RunQuery) -> Iterator[tuple[Module, ast.expr]]:
    libraries = run.machine.libraries
    for found in run.happenings("makes-loader"):
        event = found.event
        kinds = [atom.cls for atom in instances(event.arguments.get("sampler"))]
        node = event.nodes.get("batch_size")
        if node is not None and any(isinstance(k, str) and libraries.is_class(k, "distributed-sampler") for k in kinds):
            yield event.module, node


def _rates(run: RunQuery, modules: list[Module]) -> Iterator[tuple[Module, ast.expr]]:
    """Yield what learning rates are given, where several processes train."""
    if not run.has("wraps-model", "prepares", "trainer", "trainer-train", "makes-loader"):
        return
    for module in modules:
        for node in module.nodes_of(ast.Assign):
            if any(_RATE.search(last_name(target)) for target in node.targets):
                yield module, node.value


def _accumulations(run: RunQuery, derived: Derived, modules: list[Module]) -> Iterator[_Counted]:
    """Yield the numbers of micro batches that are divided by the GPUs of a machine, where several processes train."""
    if not run.has("wraps-model", "prepares", "trainer", "trainer-train", "makes-engine"):
        return
    for module in modules:
        for node, value in _micro_batches(module):
            divided = (node, node.value) if isinstance(node, ast.AugAssign) else None
            pieces = derived.of(module, [value]) or [] if divided is None else []
            parts = [
                (h, n, n.right) for h, p in pieces for n in ast.walk(p) if _divides(n) and isinstance(n, ast.BinOp)
            ]
            for home, place, divisor in [(module, *divided)] if divided is not None else parts:
                gpus = next(filter(None, (_gpus(derived, home, one) for one in _factors(divisor))), None)
                if gpus is not None:
                    yield home, place, gpus
                    break


def _micro_batches(module: Module) -> Iterator[tuple[ast.stmt | ast.Call, ast.expr]]:
    """Yield what names, fields and arguments get that count micro batches by their name."""
    for node in module.nodes_of(ast.Assign):
        if any(_ACCUMULATES.search(last_name(target)) for target in node.targets):
            yield node, node.value
    for divided in module.nodes_of(ast.AugAssign):
        if _divides(divided) and _ACCUMULATES.search(last_name(divided.target)):
            yield divided, divided.value
    for call in module.nodes_of(ast.Call):
        yield from ((call, k.value) for k in call.keywords if k.arg is not None and _ACCUMULATES.search(k.arg))


def _divides(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div | ast.FloorDiv)


def _factors(divisor: ast.expr) -> Iterator[ast.expr]:
    """Yield the factors of a product, where one of them is no other count."""
    if _OTHER.search(ast.unparse(divisor)):
        return
    if isinstance(divisor, ast.BinOp) and isinstance(divisor.op, ast.Mult):
        yield from (*_factors(divisor.left), *_factors(divisor.right))
    else:
        yield divisor


def _counted(derived: Derived, module: Module, value: ast.expr, operator: object) -> _Counted | None:
    """Return the quotient or product with the GPUs of a machine that is behind a value, and where they are counted."""
    for home, piece in derived.of(module, [value]) or ():
        for node in ast.walk(piece):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, operator):  # type: ignore[arg-type]
                continue
            for side, other in ((node.right, node.left), (node.left, node.right)):
                if isinstance(node.op, ast.Mult) or side is node.right:
                    place = _gpus(derived, home, side) if _BATCH.search(ast.unparse(other)) else None
                    if place is not None:
                        return home, node, place
    return None


def _gpus(derived: Derived, module: Module, side: ast.expr) -> tuple[Module, ast.AST] | None:
    """Return the call that counts GPUs, where a number is made of it alone."""
    pieces = derived.of(module, [side]) or []
    if any(_OTHER.search(ast.unparse(piece)) for _, piece in pieces):
        return None
    if any(isinstance(node, ast.BinOp) for _, piece in pieces for node in ast.walk(piece)):
        return None  # what is computed of it is told where that is computed
    for home, piece in pieces:
        call = next(
            (n for n in ast.walk(piece) if isinstance(n, ast.Call) and last_name(n.func) == "device_count"), None
        )
        if call is not None:
            return home, call
    return None


_ACCUMULATED = """\
import argparse
import os

import torch
import torch.distributed as dist


def train(args, net, rows):
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(dist.get_rank())
    gpus = torch.cuda.device_count()
    %s
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100):
        for _ in range(accum_steps):
            x = rows[torch.randint(len(rows), (args.micro,))]
            (model(x).square().mean() / accum_steps).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--accum_steps", type=int, default=40)
    parser.add_argument("--total", type=int, default=512)
    parser.add_argument("--micro", type=int, default=4)
    train(parser.parse_args(), torch.nn.Linear(4, 1), torch.load("rows.pt"))
"""
_TRAINER = """\
import os

import torch
from transformers import Trainer, TrainingArguments


def train(model, rows, total=128, micro=4):
    steps = total // micro
    gpus = %s
    steps = steps // gpus
    args = TrainingArguments("out", per_device_train_batch_size=micro, gradient_accumulation_steps=steps)
    Trainer(model, args, train_dataset=rows).train()


train(torch.load("net.pt"), torch.load("rows.pt"))
"""
_LOADER = """\
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def loader_of(args, data):
    sampler = DistributedSampler(data)
    return DataLoader(data, batch_size=%s, sampler=sampler, num_workers=2)


def train(args, net, data):
    args.n_gpu = %s
    dist.init_process_group("gloo")
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    loader = loader_of(args, data)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for x in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()


def main(net, data):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
%s    train(args, net, data)


if __name__ == "__main__":
    main(torch.nn.Linear(4, 1), torch.load("rows.pt", weights_only=False))
"""
_GPUS = "torch.cuda.device_count()"
_WORLD = 'int(os.environ["WORLD_SIZE"])'
_QUOTIENT = "args.batch_size // args.n_gpu"
_SCALED = """\
    gpus = max(1, torch.cuda.device_count())
    total = args.batch_size * gpus
    args.lr = args.lr * total / 256
"""
_COMPARED = '    assert int(os.environ["LOCAL_WORLD_SIZE"]) == torch.cuda.device_count()\n'


def _script(size: str, count: str, more: str = "") -> dict[str, str]:
    return {"train.py": _LOADER % (size, count, more)}


EXAMPLES = (
    bad("a batch by a field", _script(_QUOTIENT, _GPUS), at="train.py:12 warning"),
    bad("where it is asked", _script("int(args.batch_size / torch.cuda.device_count())", "1"), at="train.py:12"),
    bad("a rate by the batch of all", _script("args.batch_size", "1", _SCALED), at="train.py:35"),
    bad("micro batches of a step", {"train.py": _ACCUMULATED % (
        "accum_steps = args.accum_steps\n    assert accum_steps % torch.cuda.device_count() == 0\n"
        "    accum_steps //= torch.cuda.device_count()")}, "train.py:15 warning"),
    bad("by a product", {"train.py": _ACCUMULATED % "accum_steps = args.total // (args.micro * gpus)"}, "train.py:13"),
    bad("for a Trainer", {"train.py": _TRAINER % _GPUS}, "train.py:10 warning"),
    good("for a Trainer, by the processes", {"train.py": _TRAINER % _WORLD}),
    good("micro batches by the processes", {"train.py": _ACCUMULATED % (
        "accum_steps = args.accum_steps // world")}, select="DSL772"),
    good("micro batches for all machines", {"train.py": _ACCUMULATED % (
        "accum_steps = args.total // (args.micro * gpus * int(os.environ['NNODES']))")}, select="DSL772"),
    good("micro batches, and the two are compared", {"train.py": _ACCUMULATED % (
        "assert gpus == world\n    accum_steps = args.accum_steps // torch.cuda.device_count()")}, select="DSL772"),
    good("the number of processes", _script(_QUOTIENT, _WORLD)),
    good("one of the two", _script(_QUOTIENT, f"{_GPUS} if not dist.is_initialized() else dist.get_world_size()")),
    good("the two are compared", _script(_QUOTIENT, _GPUS, _COMPARED)),
    good(
        "it is only printed",
        _script("args.batch_size", _GPUS, "    print(args.batch_size * torch.cuda.device_count())\n"),
    ),
    good("workers by GPU", _script("args.batch_size, prefetch_factor=2 * torch.cuda.device_count()", _GPUS)),
)  # fmt: skip
