"""A collective that was started with `async_op=True`, and nobody keeps what one waits on.

**What.** `dist.all_reduce(buffer, async_op=True)` is a statement, or its result gets a name that nothing reads: the
`Work` that says when the call is done is gone.

**Why it hurts.** The call returns at once. What follows reads or divides the tensor while other ranks have not sent
their part: with gloo it holds this rank's own numbers, with NCCL the default stream does not wait for the stream of
the collective. Ranks continue with numbers of their own, sometimes, and nothing fails.

**Fix.** Keep the work and call `work.wait()` before the tensor is used again; or leave `async_op` out.

**When it stays quiet.** The result is kept, returned or passed on; something in the rest of the function waits for the
device or for all ranks (`torch.cuda.synchronize()`, `dist.barrier()`, `.wait()`); a coalescing manager around; whether
the call is asynchronous is not known.

**Evidence.** Two gloo ranks, torch 2.13, one of them late: the other reads its own numbers after an asynchronous
`all_reduce`; with `wait()` it reads the sum.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.names import spelled
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL661",
    name="async-work-dropped",
    kind="script",
    severity=Severity.WARNING,
    summary="nobody can wait for an asynchronous collective, and its tensor is used",
    markers=(r"async_op", r"distributed"),
    references=(
        "https://pytorch.org/docs/stable/distributed.html#synchronous-and-asynchronous-collective-operations",
        "torch/distributed/distributed_c10d.py",
    ),
)
_WAITS = re.compile(r"synchronize\(|barrier\(|\.wait\(|wait_stream\(|wait_all")
_COALESCES = re.compile(r"coalesc", re.I)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each asynchronous call whose work is thrown away."""
    seen: set[int] = set()
    for found in run.occurrences("collective"):
        event = found.event
        flag = event.arguments.get("async_op")
        if flag is None or flag.constants != (True,) or event.may or id(event.node) in seen:
            continue
        seen.add(id(event.node))
        if _is_dropped(event) and not _is_waited_for(event):
            yield run.finding(
                META,
                event.module,
                event.node,
                f"nobody keeps the work of `{_name(run, event)}`: the code below may use the tensor before it is"
                " reduced",
                hint="Keep the work and call `wait()` on it before the tensor is used, or leave `async_op` out",
                facts={"operation": event.api.rpartition(".")[2]},
            )


def _name(run: RunQuery, event: Event) -> str:
    return run.text(event.module, getattr(event.node, "func", event.node))


def _is_dropped(event: Event) -> bool:
    """Return whether a call is a statement of its own, or gets a name that its function never reads."""
    for statement in event.module.nodes:
        if isinstance(statement, ast.Expr) and statement.value is event.node:
            return True
        if isinstance(statement, ast.Assign) and statement.value is event.node:
            names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
            return len(names) == len(statement.targets) and not names & _read(event.module, statement)
    return False


def _read(module: Module, statement: ast.AST) -> set[str]:
    """Return the names that are read in the function around a statement."""
    scope = function_around(module, statement) or module.tree
    return {node.id for node in ast.walk(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _is_waited_for(event: Event) -> bool:
    """Return whether something after the call waits in another way, or a context around it keeps the work."""
    tree = event.module.tree
    scope = function_around(event.module, event.node) or tree
    calls = (node for node in ast.walk(scope) if isinstance(node, ast.Call) and _at(node) > _at(event.node))
    blocks = (node for node in ast.walk(scope) if isinstance(node, ast.With) and _at(node) < _at(event.node))
    return any(_WAITS.search(spelled(tree, call)) for call in calls) or any(
        _COALESCES.search(ast.unparse(item)) for block in blocks for item in block.items
    )


def _at(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


_AVERAGE = """\
import torch.distributed as dist


def average(buffer, size):
    %s
    buffer.div_(size)
    return buffer


def main(model):
    dist.init_process_group("nccl")
    for parameter in model.parameters():
        average(parameter.grad, dist.get_world_size())
"""

EXAMPLES = (
    bad(
        "gradients are divided while they are summed",
        {"train.py": _AVERAGE % "dist.all_reduce(buffer, async_op=True)"},
        at="train.py:5 warning",
    ),
    bad(
        "the work has a name that nothing reads",
        {"train.py": _AVERAGE % "work = dist.all_reduce(buffer, async_op=True)"},
        at="train.py:5 warning",
    ),
    good("the work is waited for", {"train.py": _AVERAGE % "dist.all_reduce(buffer, async_op=True).wait()"}),
    good(
        "it is waited for later",
        {"train.py": _AVERAGE % "work = dist.all_reduce(buffer, async_op=True)\n    print(size)\n    work.wait()"},
    ),
    good("the call itself waits", {"train.py": _AVERAGE % "dist.all_reduce(buffer, async_op=False)"}),
    good(
        "works are collected",
        {
            "train.py": "import torch.distributed as dist\n\n\ndef start(buffers):\n    works = []\n"
            "    for buffer in buffers:\n        works.append(dist.all_reduce(buffer, async_op=True))\n"
            "    return works\n\n\n"
            'dist.init_process_group("nccl")\n'
        },
    ),
    good(
        "the device is waited for",
        {
            "train.py": _AVERAGE.replace("import torch.d", "import torch\nimport torch.d")
            % "dist.all_reduce(buffer, async_op=True)\n    torch.cuda.synchronize()"
        },
    ),
)
