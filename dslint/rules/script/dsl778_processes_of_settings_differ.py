"""A batch, the accumulation or a rate is computed with a number of processes that the launch command contradicts.

**What.** `effective_batch // (per_device * cfg["nproc_per_node"] * cfg["nnodes"])` with `nproc_per_node: 1` in the file
of settings, or an option `--n_gpus` that is 1 by default, and `torchrun --nproc_per_node=8`.

**Why it hurts.** The launcher starts the processes and passes its numbers on to nobody. The accumulation is worked out
for one process and is eight times too large: each step takes eight times the batch that was asked for, and eight times
as long, with the learning rate of the small one. The other way round the batch is too small. Nothing fails.

**Fix.** `int(os.environ["WORLD_SIZE"])` or `dist.get_world_size()`; the launcher says what it has started.

**When it stays quiet.** One of the numbers is not known; the code gives the setting another value itself, or starts
processes with it; the setting takes no part in a product or quotient with a batch, an accumulation or a rate. For
`n_gpus` and its like also the number of processes on each machine is right.

**Evidence.** torchrun 2.13 sets `WORLD_SIZE` and `LOCAL_WORLD_SIZE` and adds nothing to the words of the script.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.names.statednumbers import Stated, stated_number
from dslint.rules.runs import RunQuery
from dslint.rules.training.training import last_name

META = RuleMeta(
    code="DSL778",
    name="processes-of-settings-differ",
    kind="script",
    severity=Severity.WARNING,
    summary="a batch or a rate is computed with a number of processes that the launch command contradicts",
    markers=(r"(?i)nproc|gpus?|nodes|world_?size|num_proc", r"(?i)batch|bsz|accum|lr|learning_rate", r"[*/]"),
    references=("https://github.com/stanford-crfm/mistral/issues/141",),
    depends_on_run=True,
    no_experiment="two numbers that people wrote differ: there is nothing to run",
)
_EACH = re.compile(r"(?i)n?_?(?:num_)?(?:nprocs?|procs|processes|gpus?)_per_(?:node|machine)|nproc")
_NODES = re.compile(r"nnodes|num_nodes|n_nodes|num_machines")
_ALL = re.compile(r"(?i)world_?size|num_processes|n_procs")
_GPUS = re.compile(r"(?i)n_?gpus?|num_?gpus?|gpu_num|gpus")
_OF_STEP = re.compile(r"(?i)batch|bsz|accum|(?:^|\W|_)lr\b|learning_rate|\bbs\b")
_STARTS = re.compile(
    r"\bspawn\(|\bProcess\(|Popen\(|notebook_launcher|start_processes\(|(?<!Distributed)DataParallel\("
)
_LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "srun", "mpirun")
_PRODUCTS = ast.Mult | ast.Div | ast.FloorDiv


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first use of each number of processes that is not the one of the command."""
    modules = list(run.machine.program.modules())
    if run.context.launcher.get_or("") not in _LAUNCHERS or any(_STARTS.search(m.code) for m in modules):
        return
    # Where the code gives it a value itself, nobody knows what is read later.
    written = {last_name(node) for module in modules for node in _places(module, ast.Store)}
    seen: set[str] = set()
    for module in modules:
        for node in _places(module, ast.Load):
            name = last_name(node)
            if name in seen or name in written or not _decides(module, node):
                continue
            actual = _started(run, name)
            stated = stated_number(run, name) if actual else None
            if stated is not None and stated.number > 0 and stated.number not in [number for number, _ in actual]:
                seen.add(name)
                yield _finding(run, module, node, stated, actual[0])


def _places(module: Module, kind: type[ast.expr_context]) -> Iterator[ast.Attribute | ast.Subscript]:
    """Yield the fields and items that a module reads or gives a value."""
    yield from (node for node in module.nodes_of(ast.Attribute) if isinstance(node.ctx, kind))
    yield from (node for node in module.nodes_of(ast.Subscript) if isinstance(node.ctx, kind))


def _started(run: RunQuery, name: str) -> list[tuple[int, tuple[Location, ...]]]:
    """Return what the command starts of what a name counts, the number that is meant first."""
    context = run.context
    facts = {_EACH: [context.processes_per_node], _NODES: [context.nodes], _ALL: [context.world_size],
             _GPUS: [context.world_size, context.processes_per_node]}  # fmt: skip
    found = next((facts[pattern] for pattern in facts if pattern.fullmatch(name)), [])
    return [(fact.get(), fact.origins) for fact in found] if all(fact.is_known for fact in found) else []


def _decides(module: Module, node: ast.expr) -> bool:
    """Return whether an expression is a factor or divisor in a statement about a batch, an accumulation or a rate."""
    is_product = False
    at: ast.AST = module.parents.get(node, module.tree)
    while isinstance(at, ast.expr):
        is_product |= isinstance(at, ast.BinOp) and isinstance(at.op, _PRODUCTS)
        if isinstance(at, ast.Compare | ast.JoinedStr):
            return False
        at = module.parents.get(at, module.tree)
    is_stored = isinstance(at, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.keyword | ast.Return)
    if isinstance(at, ast.AugAssign) and isinstance(at.op, _PRODUCTS):
        is_product = True
    return is_product and is_stored and _OF_STEP.search(module.text(at)) is not None


def _finding(
    run: RunQuery, module: Module, node: ast.expr, stated: Stated, actual: tuple[int, tuple[Location, ...]]
) -> Finding:
    number, places = actual
    text = run.text(module, node)
    return run.finding(
        META,
        module,
        node,
        f"`{text}` is {stated.number}, but the command starts {number}: this number is worked out for another job",
        hint='Ask the launcher: `int(os.environ["WORLD_SIZE"])` or `dist.get_world_size()`',
        related=(*(place.labelled(f"says {stated.number}") for place in stated.places), *places),
        facts={"stated": stated.number, "started": number},
    )


_TRAIN = """\
import argparse

import torch
import torch.distributed as dist
import yaml
from transformers import TrainingArguments


def arguments(cfg):
    step = cfg["per_device"] * cfg["nproc_per_node"] * cfg["nnodes"]%s
    return TrainingArguments("out", gradient_accumulation_steps=cfg["batch"] // step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--n_gpus", type=int, default=1)
    args = parser.parse_args()
    with open(args.config) as f:
        cfg = yaml.safe_load(f)
    dist.init_process_group("nccl")
    %s
    return arguments(cfg)


if __name__ == "__main__":
    main()
"""
_FILE = "batch: 512\nper_device: 16\nnnodes: 1\nnproc_per_node: %d\n"


def _files(each: int = 1, after: str = "", body: str = "pass", words: str = "", start: str = "8") -> dict[str, str]:
    run = f"torchrun --nproc_per_node={start} train.py --config conf/run.yaml{words}\n"
    return {"train.py": _TRAIN % (after, body), "conf/run.yaml": _FILE % each, "run.sh": run}


_SCALED = "args.lr = args.lr * args.n_gpus"
_KNOWN = _files(8)

EXAMPLES = (
    bad("a file of settings", {**_files(), "train.py": (_TRAIN % ("", "pass")).replace("    step =", "    a_batch =")},
        at="train.py:10 warning"),
    bad("an option that the command leaves alone", _files(8, body=_SCALED), at="train.py:23 warning"),
    bad("an option that the command passes", _files(8, body="rate = args.lr * args.n_gpus", words=" --n_gpus 4"),
        at="train.py:23 info".replace("info", "warning")),
    good("the number of the command", _KNOWN, select="DSL778"),
    good("an option that says what the command says", _files(8, body=_SCALED, words=" --n_gpus 8"), select="DSL778"),
    good("nobody knows the command", _files(start="$GPUS"), select="DSL778"),
    good("the code says how many there are", _files(
        8, body="args.n_gpus = dist.get_world_size()\n    args.lr = args.lr * args.n_gpus"), select="DSL778"),
    good("a number for a message", _files(8, body='print("batch", args.n_gpus * 4)'), select="DSL778"),
    good("the script starts the processes", _files(
        8, body="torch.multiprocessing.spawn(print, nprocs=8)\n    " + _SCALED), select="DSL778"),
)  # fmt: skip
