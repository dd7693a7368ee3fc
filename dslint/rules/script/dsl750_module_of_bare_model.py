"""`.module` of what `accelerator.prepare` has returned: with one process that is the bare model, which has none.

**What.** `model.module.state_dict()` at a save, or `model.module.head` in an evaluation, where `model` is what
`accelerator.prepare` has returned.

**Why it hurts.** `prepare` wraps a model where there are several processes, and returns it as it is where there is one.
A run on one GPU trains some thousand steps and stops at its first save: `AttributeError: ... object has no attribute
'module'`.

**Fix.** Call `accelerator.unwrap_model(model)`, which is right with any number of processes.

**When it stays quiet.** A test around the line that asks for the wrapper or the number of processes; a name that gets
another value in between; a file that speaks of DeepSpeed, whose engine always has a `module`. A note where all commands
of the project start several processes.

**Evidence.** accelerate 1.15: `Accelerator().prepare(torch.nn.Linear(1, 1))` in one process is that `Linear`, and
`.module` of it raises.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.source import Module
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.preparednames import reads_of_prepared

META = RuleMeta(
    code="DSL750",
    name="module-of-bare-model",
    kind="script",
    severity=Severity.WARNING,
    summary="`.module` of what `accelerator.prepare` has returned: with one process the bare model, which has none",
    markers=(r"\.module\b", r"\.prepare\(", r"accelerate"),
    references=("https://huggingface.co/docs/accelerate/package_reference/accelerator",),
    depends_on_run=True,
    no_experiment="one process shows what is missing",
)
# Tests that know of the wrapper, of the job or of a mode.
_ASKS = re.compile(
    r"(?i)hasattr|isinstance|getattr|\bmodule\b|unwrap|distribut|ddp|parallel|world|\bn_?proc|num_?proc|n_?gpu|gpus"
    r"|rank *[!=]= *-1|device_count|launcher|multi"
)
_DEEPSPEED = re.compile(r"(?i)deepspeed|hasattr\([^)]*[\"']module[\"']|suppress\(|assert\b[^\n]*num_processes")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first read of `.module` of each model."""
    if run.stage is not None or not run.context.zero_stage.is_absent:
        return
    told: set[tuple[str, str]] = set()
    for event in (found.event for found in run.happenings("prepares")):
        module = event.module
        if not event.api.startswith("accelerate.") or module.search(_DEEPSPEED) is not None:
            continue
        for node in reads_of_prepared(event, "module"):
            name = run.text(module, node.value, 30)
            if (module.path, name) in told or _is_asked_beside(module, node):
                continue
            told.add((module.path, name))
            yield run.finding(
                META,
                module,
                node,
                f"With one process `prepare` returns `{name}` itself, and the bare model has no `module`: "
                "`AttributeError` here",
                hint=f"Use `accelerator.unwrap_model({name})`",
                related=(run.location(module, event.node, "returns the bare model where there is one process"),),
                severity=Severity.INFO if run.context.world_size.get_or(1) > 1 else None,
            )


def _is_asked_beside(module: Module, node: ast.AST) -> bool:
    """Return whether a test or a `try` of the function around a node may know what it does."""
    inner, around = node, module.parents.get(node)
    while around is not None and not isinstance(around, _FUNCTIONS):
        if isinstance(around, ast.Try) and inner in around.body and around.handlers:
            return True
        test = getattr(around, "test", None)
        if test is not None and inner is not test and _ASKS.search(ast.unparse(test)):
            return True
        if isinstance(around, ast.BoolOp) and _ASKS.search(ast.unparse(around).replace(ast.unparse(node), "")):
            return True
        inner, around = around, module.parents.get(around)
    return False


_ACCELERATE = """\
import torch
from accelerate import Accelerator


def main(batches):
    accelerator = Accelerator()
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(batches))
    for batch in loader:
        optimizer.zero_grad()
        accelerator.backward(model(batch).mean())
        optimizer.step()
    if accelerator.is_main_process:
        %s


main([torch.rand(4)] * 8)
"""

_SAVE = 'torch.save(model.module.state_dict(), "last.pt")'

EXAMPLES = (
    bad("at a save", {"train.py": _ACCELERATE % _SAVE}, "train.py:15 warning"),
    bad("a part of it", {"train.py": _ACCELERATE % "print(model.module.weight.norm())"}, "train.py:15 warning"),
    bad("in a module", {"train.py": (_ACCELERATE % _SAVE).replace("def main(batches):", "if True:").replace(
        "main([torch.rand(4)] * 8)", "").replace("(batches)", "([torch.rand(4)] * 8)")}, "train.py:15 warning"),
    good("unwrapped by accelerate", {"train.py": _ACCELERATE % (
        'torch.save(accelerator.unwrap_model(model).state_dict(), "last.pt")')}),
    good("asked by their number", {"train.py": _ACCELERATE % (
        "inner = model.module if accelerator.num_processes > 1 else model\n        print(inner.weight)")}),
    good("asked for", {"train.py": _ACCELERATE % (
        'inner = model.module if hasattr(model, "module") else model\n        print(inner.weight)')}),
    good("another value before", {"train.py": _ACCELERATE % (
        "model = accelerator.unwrap_model(model)\n        print(model)")}),
)  # fmt: skip
