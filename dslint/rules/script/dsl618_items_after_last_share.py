"""Each rank takes `len(items) // world_size` items, and the rest of that division belongs to nobody.

**What.** A script that evaluates or answers with several processes cuts the items into blocks of equal size,
`items[rank * n : (rank + 1) * n]` with `n = len(items) // world_size`, and takes no care of what is left over.

**Why it hurts.** With 1319 problems and 8 ranks three are never answered. Nothing fails: the score is that of a smaller
test set, and it changes with the number of GPUs. Files with an answer for each item lack some.

**Fix.** Stride over the items, `items[rank::world_size]`, or let the last rank go to the end; where every rank must
take the same number of steps, fill up and drop the copies after the gather.

**When it stays quiet.** Scripts that train, where a batch more or less does not count; a division that is rounded up; a
last rank that goes further; items that were filled up or cut to a multiple of the number of ranks; functions
that no script calls, whose items may have been filled up.

**Evidence.** Of five items two ranks take `5 // 2` each, which makes four; with a stride, five.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from dslint.core.finding import Finding, Severity
from dslint.python.events import Call, walk
from dslint.python.source import Module
from dslint.python.values import Function
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL618",
    name="items-after-last-share",
    kind="script",
    severity=Severity.WARNING,
    summary="each rank takes `len(items) // world_size` items of a test set, and the rest is never looked at",
    markers=(r"//", r"rank|process_index|proc_id|gpu_id", r"torch|accelerat|deepspeed|vllm"),
    references=("https://github.com/pytorch/pytorch/issues/25162",),
    depends_on_run=True,
    no_experiment="what a division leaves over can be counted without a run",
)
_TRAINS = ("backward", "engine-backward", "optimizer-step", "engine-step", "trainer-train")
_RANK = r"[\w.]*(?:rank|process_index|proc_id|gpu_id|process_id|shard_id|local_process_index)(?:\(\))?"
_WORLD = r"[\w.]*(?:world_?size|num_processes|n_?gpus?|num_gpus|n_?procs?|num_shards|nranks|num_ranks)(?:\(\))?"
_SIZE = rf"\(?len\([\w.\[\]'\"]+\) // {_WORLD}\)?"
_LOW = re.compile(rf"(?:{_RANK} \* {_SIZE}|{_SIZE} \* {_RANK})")
_HIGH = re.compile(rf"(?:\({_RANK} \+ 1\) \* {_SIZE}|{_SIZE} \* \({_RANK} \+ 1\)|{_RANK} \* {_SIZE} \+ {_SIZE})")
# What takes care of the rest: a remainder, a last rank, items that were filled up, the size of a batch.
_CARES = re.compile(r"%(?!\()|ceil|remain|leftover|\brest\b|drop_last|- 1\b|divmod|array_split|extra|\[:|:\]|pad")
_MOST_STEPS = 3


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each block of equal size that a rank of an evaluation takes."""
    if run.context.is_one_process or run.has(*_TRAINS):
        return
    for module, function in _code(run):
        names = _definitions(function)
        text = module.text(function) if isinstance(function, ast.FunctionDef) else module.source.text
        for node, low, high in _blocks(function):
            bounds = [_written(part, names) for part in (low, high)]
            if not (_LOW.fullmatch(bounds[0]) and _HIGH.fullmatch(bounds[1])):
                continue
            if _CARES.search(text.replace(module.text(node), "")):
                continue
            yield run.finding(
                META,
                module,
                node,
                "each rank takes the same number of items, and the remainder of the division belongs to no rank",
                hint="Take `items[rank::world_size]`, or let the last rank go to the end; up to `world_size - 1`"
                " are skipped",
            )


def _code(run: RunQuery) -> Iterator[tuple[Module, ast.AST]]:
    """Yield the functions that the script enters, and its own code, each once."""
    seen: set[ast.AST] = set()
    for entry, tree in run.trees():
        if entry.kind != "script":
            continue  # who calls it may have filled up the items
        found = [(entry.module, entry.node)]
        for node in walk(tree):
            if isinstance(node, Call) and isinstance(node.function, Function):
                found.append((node.function.module, node.function.node))
        for module, code in found:
            if code not in seen:
                seen.add(code)
                yield module, code


def _own(code: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function or module without those of functions inside."""
    pending = list(ast.iter_child_nodes(code))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))


def _definitions(code: ast.AST) -> dict[str, ast.expr]:
    """Return what names hold that are assigned once."""
    found: dict[str, list[ast.expr]] = {}
    for node in _own(code):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).extend((node.value, node.value))
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _blocks(code: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    """Yield slices and ranges with both bounds: `items[a:b]`, `range(a, b)`."""
    for node in _own(code):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            low, high = node.slice.lower, node.slice.upper
            if low is not None and high is not None and node.slice.step is None:
                yield node, low, high
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "range" and len(node.args) == 2:
            yield node, node.args[0], node.args[1]


def _written(node: ast.expr, names: Mapping[str, ast.expr]) -> str:
    """Return an expression as text, with what its names hold where that is a sum."""

    class Inline(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            held = names.get(name.id)
            return held if isinstance(held, ast.BinOp) else name

    for _ in range(_MOST_STEPS):
        node = Inline().visit(ast.parse(ast.unparse(node), mode="eval").body)
    return ast.unparse(node)


_EVALUATE = """\
import json
import sys

import torch.distributed as dist

from model import answer


def share(problems, rank, world_size):
    %s


def main():
    dist.init_process_group("gloo")
    problems = json.load(open(sys.argv[1]))
    mine = share(problems, dist.get_rank(), dist.get_world_size())
    answers = [answer(problem) for problem in mine]
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, answers)
    dist.destroy_process_group()


main()
"""

EXAMPLES = (
    bad(
        "blocks of equal size",
        {
            "eval.py": _EVALUATE
            % "size = len(problems) // world_size\n    return problems[rank * size : (rank + 1) * size]"
        },
        at="eval.py:11 warning",
    ),
    bad(
        "bounds with names of their own",
        {
            "eval.py": _EVALUATE % "size = len(problems) // world_size\n    start = rank * size\n"
            "    end = start + size\n    return [problems[i] for i in range(start, end)]"
        },
        at="eval.py:13 warning",
    ),
    good("a stride", {"eval.py": _EVALUATE % "return problems[rank::world_size]"}),
    good(
        "the last rank goes to the end",
        {
            "eval.py": _EVALUATE % "size = len(problems) // world_size\n    if rank == world_size - 1:\n"
            "        return problems[rank * size :]\n    return problems[rank * size : (rank + 1) * size]"
        },
    ),
    good(
        "rounded up",
        {
            "eval.py": _EVALUATE % "size = -(-len(problems) // world_size)\n"
            "    return problems[rank * size : (rank + 1) * size]"
        },
    ),
)
