"""`.module` of a model that a run of one process does not wrap: the mode for one GPU stops with an `AttributeError`.

**What.** `model.module.state_dict()` at a save or an evaluation, where `model` is a `DistributedDataParallel` in some
modes only (`if args.distributed: model = DDP(model)`), or is what `accelerator.prepare` has returned, which is the
bare model where there is one process.

**Why it hurts.** Only the wrapper has `module`. A run on one GPU, with `--debug`, or without the launcher trains an
epoch or some thousand steps and stops at its first save: `AttributeError: ... object has no attribute 'module'`.

**Fix.** Keep the model itself before it is wrapped (`model_without_ddp = model`), ask with `hasattr(model, "module")`,
or call `accelerator.unwrap_model(model)`.

**When it stays quiet.** A test around the line that asks for the wrapper, the job, the number of processes, or for what
the test around the wrapping asks; models that have a `module` of their own; a project that works with DeepSpeed, whose
engine always has one. A note where all commands of the project start several processes.

**Evidence.** accelerate 1.15: `Accelerator().prepare(torch.nn.Linear(1, 1))` in one process is that `Linear`, and
`.module` of it raises. torch 2.13: `Module.__getattr__` raises.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Alt, Event, Try
from dslint.python.several import BARE
from dslint.python.source import Module
from dslint.python.values import ClassAtom
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.preparednames import reads_of_prepared

META = RuleMeta(
    code="DSL750",
    name="module-of-bare-model",
    kind="script",
    severity=Severity.WARNING,
    summary="`.module` of a model that a run of one process does not wrap: `AttributeError`, at a save as a rule",
    markers=(r"\.module\b", r"DataParallel|DDP\(|\.prepare\("),
    references=("https://huggingface.co/docs/accelerate/package_reference/accelerator",),
    depends_on_run=True,
    no_experiment="one process shows what is missing",
)
# Tests that know of the wrapper, of the job or of a mode.
_ASKS = re.compile(
    r"(?i)hasattr|isinstance|getattr|\bmodule\b|unwrap|distribut|ddp|parallel|world|\bn_?proc|num_?proc|n_?gpu|gpus"
    r"|rank *[!=]= *-1|device_count|launcher|multi"
)
_OF_MACHINE = re.compile(r"is_available|device|cuda")  # a mode that is meant for nobody
_DEEPSPEED = re.compile(r"(?i)deepspeed")
_WORD = re.compile(r"[A-Za-z_]\w*")
# A read of `.module`, what is wrong with it, and the other place of it.
_Read = tuple[Module, ast.Attribute, str, Location]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first read of `.module` of each model."""
    if run.stage is not None or not run.context.zero_stage.is_absent:
        return
    told: set[tuple[str, str]] = set()
    for module, node, what, where in [*_in_some_modes(run), *_of_prepared(run)]:
        name = run.text(module, node.value, 30)
        if (module.path, name) in told:
            continue
        told.add((module.path, name))
        yield run.finding(
            META,
            module,
            node,
            f"{what.format(name)}, and the bare model has no `module`: `AttributeError` here",
            hint=f"Keep the model before it is wrapped, or ask with `hasattr({name}, 'module')`",
            related=(where,),
            severity=Severity.INFO if run.context.world_size.get_or(1) > 1 else None,
        )


def _in_some_modes(run: RunQuery) -> Iterator[_Read]:
    """Yield reads of `.module` of what a test has wrapped on one of its sides."""
    for found in run.happenings(BARE):
        event = found.event
        choice = run.machine.chosen.get(event.receiver.number) if event.receiver is not None else None
        if choice is None or not isinstance(event.node, ast.Attribute):
            continue
        test = getattr(choice.node, "test", choice.node)
        wraps = ast.unparse(test)
        if not _OF_MACHINE.search(wraps) and not _is_asked(found, wraps) and not _has_module(event):
            place = choice.module.location(test, "it is wrapped on one side only")
            yield event.module, event.node, f"`{{}}` is wrapped in some modes only (`{_cut(wraps)}`)", place


def _of_prepared(run: RunQuery) -> Iterator[_Read]:
    """Yield reads of `.module` of what accelerate has prepared."""
    for found in run.happenings("prepares"):
        event = found.event
        if event.api.startswith("accelerate.") and event.module.search(_DEEPSPEED) is None:
            place = run.location(event.module, event.node, "returns the bare model where there is one process")
            for node in reads_of_prepared(event, "module"):
                if not _is_asked_beside(event.module, node):
                    yield event.module, node, "With one process `prepare` returns `{}` itself", place


def _cut(text: str) -> str:
    return (text if len(text) <= 34 else f"{text[:31]}...").replace("{", "(").replace("}", ")")


def _is_asked(found: Happening, wraps: str) -> bool:
    """Return whether a test around asks for the mode, or for one of the things that the wrapping asks for."""
    words = set(_WORD.findall(wraps)) - {"args", "self", "cfg", "config", "opt", "not", "and", "or", "is", "None"}
    for node in found.around:
        if isinstance(node, Try) and node.handlers:
            return True
        test: ast.AST | None = None
        if isinstance(node, Alt):
            test = node.asks if node.asks is not None else getattr(node.node, "test", node.node)
        text = ast.unparse(test) if test is not None else ""
        if text and (_ASKS.search(text) or words & set(_WORD.findall(text))):
            return True
    return _is_asked_beside(found.event.module, found.event.node)


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


def _has_module(event: Event) -> bool:
    """Return whether a class that the bare model may be has something of that name."""
    classes = [atom.cls for atom in instances(event.receiver) if isinstance(atom.cls, ClassAtom)]
    return any(re.search(r"\bself\.module\b|\bdef module\b", cls.module.text(cls.node)) for cls in classes)


_TRAIN = """\
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).mean()


def save(model, path):
    %s


def main(args):
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local_rank)
    args.distributed = "RANK" in os.environ
    if args.distributed:
        dist.init_process_group("nccl")
    model = Net().cuda()
    if %s:
        model = DDP(model, device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for step in range(10):
        optimizer.zero_grad()
        model(torch.rand(4, 4).cuda()).backward()
        optimizer.step()
    if int(os.environ.get("RANK", 0)) == 0:
        save(model, "last.pt")
    if args.distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    main(parser.parse_args())
"""
_SAVE = "torch.save(model.module.state_dict(), path)"
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

EXAMPLES = (
    bad("wrapped where there is a launcher", {"train.py": _TRAIN % (_SAVE, "args.distributed")}, "train.py:19 warning"),
    bad("wrapped unless a flag is given", {"train.py": _TRAIN % (_SAVE, "args.distributed and args.lr > 0")},
        "train.py:19 warning"),
    bad("by a number", {"train.py": (_TRAIN % (_SAVE, "args.gpus > 1")).replace(
        "    main(", '    parser.add_argument("--gpus", type=int, default=1)\n    main(')}, "train.py:19 warning"),
    bad("what accelerate has prepared", {"train.py": _ACCELERATE % (
        'torch.save(model.module.state_dict(), "last.pt")')}, "train.py:15 warning"),
    bad("a part of it", {"train.py": _ACCELERATE % "print(model.module.weight.norm())"}, "train.py:15 warning"),
    good("asked for", {"train.py": _TRAIN % (
        'inner = model.module if hasattr(model, "module") else model\n    torch.save(inner.state_dict(), path)',
        "args.distributed")}),
    good("the model itself", {"train.py": (_TRAIN % (
        "torch.save(model.state_dict(), path)", "args.distributed")).replace(
        'save(model, "last.pt")', 'save(bare, "last.pt")').replace("Net().cuda()\n", "bare = Net().cuda()\n")}),
    good("wrapped on every GPU", {"train.py": _TRAIN % (_SAVE, "torch.cuda.is_available()")}),
    good("under the same test", {"train.py": (_TRAIN % (_SAVE, "args.distributed")).replace(
        'if int(os.environ.get("RANK", 0)) == 0:', "if args.distributed and dist.get_rank() == 0:")}),
    good("always wrapped", {"train.py": (_TRAIN % (_SAVE, "True")).replace("if args.distributed:", "if True:")}),
    good("unwrapped by accelerate", {"train.py": _ACCELERATE % (
        'torch.save(accelerator.unwrap_model(model).state_dict(), "last.pt")')}),
    good("asked by their number", {"train.py": _ACCELERATE % (
        "inner = model.module if accelerator.num_processes > 1 else model\n        print(inner.weight)")}),
)  # fmt: skip
