"""The workers of the loaders are switched off as soon as several processes train.

**What.** A test asks whether there are several processes (`world_size > 1`, `args.distributed`, `is_initialized()`),
and `num_workers` becomes 0 where there are: `self.num_workers = 0`, `0 if distributed else args.workers`.

**Why it hurts.** Without workers each rank reads, decodes and augments its batches in the training process, between two
steps: its GPU waits all that time, and all ranks wait for the slowest of them in every backward. A run on several GPUs
is as slow as its data, whatever number of workers the user asks for. Nothing tells him.

**Fix.** Leave `num_workers` as it is; it counts for each process, so divide it by the processes of a machine where
processors are few. Loaders that hang with workers mostly fork after CUDA or threads have begun:
`multiprocessing_context="spawn"`.

**When it stays quiet.** Tests of the platform, of a debugger or of TPUs; no loader takes a number of workers; all data
sets are tensors in memory; another number than 0; one process.

**Evidence.** torch 2.13: with `num_workers=0` `_SingleProcessDataLoaderIter` fetches each batch in `__next__`, in the
process that asks for it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.training import last_name

META = RuleMeta(
    code="DSL781",
    name="workers-off-when-distributed",
    kind="script",
    severity=Severity.WARNING,
    summary="the loaders get no workers where several processes train: each rank reads its data between two steps",
    markers=(r"workers", r"Loader\b", r"world_size|distributed|ddp|initialized|num_processes|gpus|rank|devices"),
    references=(
        "https://pytorch.org/docs/stable/data.html#single-process-data-loading",
        "https://github.com/DIVA-DIA/DIVA-DAF/pull/19",
    ),
    depends_on_run=True,
    no_experiment="how long a batch takes follows from the data: two ranks on toy data show nothing",
)
_WORKERS = re.compile(r"(?i)(?:\w+_)?(?:n|num|number_of|nb)?_?workers")
_COUNT = re.compile(
    r"(?i)(?:\w+_)?(?:world_size|num_processes|n_?procs?|nprocs?|n_?gpus?|num_gpus?|gpus|num_devices|devices)"
)
_RANK = re.compile(r"(?i)(?:\w+_)?rank")
_FLAG = re.compile(
    r"(?i)_*(?:is_|use_|in_|if_|run_)?(?:dist|distributed|ddp|multi_?gpu|multiprocessing_distributed|distributed_run"
    r"|distributed_training)|(?:is_)?(?:dist_)?(?:avail_and_)?initialized|is_dist_avail_and_initialized|is_dist_initialized"
)
_OTHER_REASON = re.compile(
    r"(?i)platform|\bnt\b|win32|windows|darwin|debug|\bmps\b|xla|tpu|notebook|spawn|stream|iterable"
)
_TURNED = {ast.Gt: ast.Lt, ast.Lt: ast.Gt, ast.GtE: ast.LtE, ast.LtE: ast.GtE}


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where a number of workers becomes 0 because there are several processes."""
    if run.context.is_one_process:
        return
    loaders = [found.event for found in run.happenings("makes-loader")]
    if not any("num_workers" in event.arguments or event.open for event in loaders) or all(map(_in_memory, loaders)):
        return
    for module in run.machine.program.modules():
        for node, test in _switched_off(module):
            yield run.finding(
                META,
                module,
                node,
                "No workers where several processes train: each rank reads its batches between steps, its GPU waits",
                hint="Leave `num_workers` as it was asked for: it counts for each process",
                related=(run.location(module, test, "asks for several processes"),),
            )


def _in_memory(event: Event) -> bool:
    return bool(event.sources) and all(s.path == "torch.utils.data.TensorDataset" for s in event.sources)


def _switched_off(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yield what sets a number of workers to 0 under a test for several processes, with the test."""
    for node in module.nodes_of(ast.Assign):
        if not any(map(_is_workers, node.targets)):
            continue
        test = _around(module, node) if _is_zero(node.value) else _in_value(node.value)
        if test is not None:
            yield node, test
    for call in module.nodes_of(ast.Call):
        for keyword in call.keywords:
            test = _in_value(keyword.value) if keyword.arg and _WORKERS.fullmatch(keyword.arg) else None
            if test is not None:
                yield keyword.value, test


def _is_workers(target: ast.expr) -> bool:
    name = target.slice.value if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) else ""
    return _WORKERS.fullmatch(str(name) or last_name(target)) is not None


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 0


def _in_value(value: ast.expr) -> ast.expr | None:
    """Return the test of `0 if distributed else n`, also the other way round and as a default: `default(n, ...)`."""
    if isinstance(value, ast.Call | ast.BoolOp):
        parts = value.args if isinstance(value, ast.Call) else value.values
        return next((test for part in parts if (test := _in_value(part)) is not None), None)
    if not isinstance(value, ast.IfExp) or _is_zero(value.body) == _is_zero(value.orelse):
        return None
    return value.test if asks_for_several(value.test) is _is_zero(value.body) else None


def _around(module: Module, node: ast.stmt) -> ast.expr | None:
    """Return the nearest test around a statement, where the statement runs for several processes only."""
    outer = module.parents.get(node)
    if not isinstance(outer, ast.If):
        return None
    return outer.test if asks_for_several(outer.test) is (node in outer.body) else None


def asks_for_several(test: ast.expr) -> bool | None:
    """Return which answer to a test several processes give for certain; `None` where it asks for something else."""
    if _OTHER_REASON.search(ast.unparse(test)):
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        found = asks_for_several(test.operand)
        return None if found is None else not found
    if isinstance(test, ast.BoolOp):
        answers = {asks_for_several(part) for part in test.values}
        sure = isinstance(test.op, ast.And)
        return sure if sure in answers else (not sure if answers == {not sure} else None)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compared(test.left, test.ops[0], test.comparators[0])
    name = last_name(test.func if isinstance(test, ast.Call) else test)
    return True if _FLAG.fullmatch(name) else None


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool | None:
    """Return the same of `world_size > 1`, `local_rank != -1`, `1 < num_gpus`."""
    kind: type[ast.cmpop] = type(op)
    number = _number(right)
    if number is None and _number(left) is not None:
        left, number, kind = right, _number(left), _TURNED.get(kind, kind)
    name = last_name(left.func if isinstance(left, ast.Call) else left)
    if _RANK.fullmatch(name):
        pairs = {(ast.NotEq, -1): True, (ast.Gt, -1): True, (ast.GtE, 0): True, (ast.Eq, -1): False, (ast.Lt, 0): False}
    elif _COUNT.fullmatch(name) or name == "get_world_size":
        pairs = {(ast.NotEq, 1): True, (ast.Gt, 1): True, (ast.GtE, 2): True, (ast.Eq, 1): False, (ast.LtE, 1): False}
        pairs |= {(ast.Lt, 2): False}
    else:
        return None
    return pairs.get((kind, number)) if number is not None else None


def _number(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found = _number(node.operand)
        return -found if found is not None else None
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


_MODULE = """\
import lightning as L
from torch.utils.data import DataLoader


class Pages(L.LightningDataModule):
    def __init__(self, pages, num_workers=4):
        super().__init__()
        self.pages, self.num_workers = pages, num_workers

    def setup(self, stage=None):
        %s:
            self.num_workers = %s

    def train_dataloader(self):
        return DataLoader(self.pages, batch_size=8, num_workers=self.num_workers)


def main(net, pages):
    L.Trainer(devices=4, strategy="ddp").fit(net, datamodule=Pages(pages, 8))
"""
_LOADER = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def loader(args, data):
    sampler = DistributedSampler(data) if args.distributed else None
    %s
    return DataLoader(data, 8, sampler=sampler, num_workers=workers)
"""


def _module(test: str, number: str = "0") -> dict[str, str]:
    return {"train.py": _MODULE % (test, number)}


def _loader(line: str) -> dict[str, str]:
    return {"data.py": _LOADER % line}


EXAMPLES = (
    bad(
        "a data module of Lightning", _module("if self.trainer.world_size > 1 and self.num_workers > 0"), "train.py:12"
    ),
    bad("the other way round", _loader("workers = args.workers if not args.distributed else 0"), "data.py:7 warning"),
    bad("by the process group", _loader("workers = 0 if dist.is_initialized() else 8"), "data.py:7"),
    bad("by the rank that a launcher gives", _loader("workers = 0 if args.local_rank != -1 else 8"), "data.py:7"),
    bad("a default", _loader("workers = default(args.workers, 8 if not args.is_ddp else 0)"), "data.py:7"),
    good("one process", _module("if self.trainer.world_size == 1")),
    good("another number", _module("if self.trainer.world_size > 1", "2")),
    good("by the platform", _module("if self.trainer.world_size > 1 and __import__('os').name == 'nt'")),
    good("several processes get workers", _loader("workers = args.workers if args.distributed else 0")),
    good("in a debugger", _loader("workers = 0 if args.debug or args.distributed else 8")),
)
