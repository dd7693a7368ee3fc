"""A checkpoint of GPU tensors is loaded on every rank without `map_location`.

**What.** A script that runs one process a GPU saves a checkpoint of its model or optimizer with `torch.save` on one
rank, and loads it on every rank by `torch.load(path)` without `map_location`.

**Why it hurts.** `torch.load` puts each tensor on the device from which it was saved, whatever device the process has
chosen. Rank 0 has saved, so every process puts a copy of the model and of the optimizer on `cuda:0`, and starts CUDA
there. With 8 ranks one GPU holds 8 copies while the run resumes, and 7 CUDA contexts as long as it runs. A run that
fitted before is out of memory after it was resumed.

**Fix.** `torch.load(path, map_location="cpu")`, or `map_location=device` with the device of the rank: `load_state_dict`
copies the numbers to where the parameters are.

**When it stays quiet.** `map_location` is given; only some ranks load; nothing shows that the script itself has written
the file: it saves no dictionary with the same keys, and nothing under the same path; what is saved goes through the CPU
first; a script without CUDA; each process sees one GPU only (`CUDA_VISIBLE_DEVICES`).

**Evidence.** torch 2.13, `default_restore_location` in torch/serialization.py. Two ranks load a file with tensors of
`cuda:0`: both put them there; with `map_location` each rank puts them on its own device.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.source import Module
from dslint.python.values import Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import arrivals
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL278",
    name="checkpoint-loaded-without-map-location",
    kind="script",
    severity=Severity.WARNING,
    summary="every rank loads the checkpoint onto the GPU that saved it: one GPU holds a copy for each rank",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine",),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.load.html",
        "https://pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints",
    ),
    depends_on_run=True,
)

# Where something else is loaded says nothing of what is saved.
_ELSEWHERE = re.compile(r"map_location\s*=\s*(?:torch\.device\()?[\"']cpu[\"']")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each load of what the same run saves from GPUs."""
    if run.context.is_one_process or not _has_cuda(run):
        return
    written = [found.event for found in run.happenings("saves") if "obj" in found.event.arguments]
    saves = [event for event in written if _is_of_gpu(event)]
    for found in arrivals(run, "loads"):
        event = found.event
        given = event.arguments.get("map_location")
        if event.api != "torch.load" or event.open or (given is not None and given.constants != (None,)):
            continue
        save = next((save for save in saves if _is_written_by(event, save)), None)
        if save is not None:
            yield run.finding(
                META,
                event.module,
                event.node,
                "`torch.load` without `map_location`: every rank puts its copy on the GPU that saved it, as `cuda:0`",
                hint='Pass `map_location="cpu"`: `load_state_dict` copies to the device of the parameters',
                related=(run.location(save.module, save.node, "written here"),),
            )


def _has_cuda(run: RunQuery) -> bool:
    """The script uses GPUs, and each process sees all of its machine."""
    modules = {found.event.module for found in run.happenings("starts-group", "wraps-model", "makes-engine", "loads")}
    texts = [module.code for module in modules]
    return any("cuda" in text for text in texts) and not any("CUDA_VISIBLE_DEVICES" in text for text in texts)


def _is_of_gpu(save: Event) -> bool:
    """State is saved, and nothing around says that it goes through the CPU."""
    around = save.module.text(_function_of(save.module, save.node)).lower()
    return "state_dict" in around and "cpu" not in _ELSEWHERE.sub("", around)


def _is_written_by(load: Event, save: Event) -> bool:
    """The path is the same, or the keys that are read are those of the dictionary that is written."""
    paths = load.arguments.get("f"), save.arguments.get("f")
    if paths[0] is not None and paths[1] is not None and _is_same(paths[0], paths[1]):
        return True
    written, read = _keys_of(save), _keys_read(load)
    return len(read) > 1 and read <= written


def _is_same(first: Value, second: Value) -> bool:
    if first.constants is not None and len(first.atoms) == 1:
        return first.constants == second.constants
    return first.number is not None and first.number == second.number


def _keys_of(save: Event) -> set[object]:
    """Return the keys of the dictionary that is saved: of its display, and those that its variable got."""
    value = save.arguments.get("obj")
    atom = value.single if value is not None else None
    if not isinstance(atom, Instance):
        return set()
    name = save.nodes.get("obj")
    variable = ast.unparse(name) if isinstance(name, ast.Name | ast.Attribute) else ""
    stored = {
        node.slice.value
        for node in (ast.walk(_function_of(save.module, save.node)) if variable else ())
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        if isinstance(node.slice, ast.Constant) and ast.unparse(node.value) == variable
    }
    if isinstance(atom.node, ast.Dict):
        return stored | {key.value for key in atom.node.keys if isinstance(key, ast.Constant)}
    is_dict = isinstance(atom.node, ast.Call) and atom.cls == "builtins.dict"
    return {key.arg for key in atom.node.keywords} | stored if is_dict and isinstance(atom.node, ast.Call) else set()


def _keys_read(load: Event) -> set[object]:
    """Return the keys by which a function reads the variable, or field, that holds what was loaded."""
    function = _function_of(load.module, load.node)
    held = _held(function, load.node)
    return {
        node.slice.value
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and ast.unparse(node.value) in held
    }


def _held(function: ast.AST, made: ast.AST) -> set[str]:
    """Return the variables of a function that hold what a call has made, also by way of each other."""
    held: set[str] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) or node.value is None:
            continue
        if node.value is made or ast.unparse(node.value) in held:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            held |= {ast.unparse(target) for target in targets if isinstance(target, ast.Name | ast.Attribute)}
    return held


def _function_of(module: Module, node: ast.AST) -> ast.AST:
    """Return the innermost function around a node, else the module."""
    line = getattr(node, "lineno", 0)
    found: ast.AST = module.tree
    functions = module.functions
    for function in functions:  # from outside to inside
        if function.lineno <= line <= (function.end_lineno or 0):
            found = function
    return found


_MAIN = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(args, net, loader):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = DDP(net.cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.resume:
        checkpoint = torch.load(args.resume%s)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(%s, args.output)
    dist.destroy_process_group()
"""
_FILES = """\
import torch
import torch.distributed as dist

PATH = "out/last.pt"


def save(model):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), PATH)
    dist.barrier()


def load(model):
    model.load_state_dict(torch.load(PATH%s))
"""
_RUN = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from files import load, save

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = DDP(torch.nn.Linear(4, 4).cuda())
save(model)
load(model)
"""

EXAMPLES = (
    bad("a run that continues", {"train.py": _MAIN % ("", "state")}, "train.py:14"),
    bad(
        "the weights that a helper in another file has written",
        {"files.py": _FILES % "", "train.py": _RUN},
        "files.py:14",
    ),
    good("onto the CPU", {
        "train.py": _MAIN % (', map_location="cpu"', "state"),
        "files.py": _FILES % ', map_location="cpu"', "run.py": _RUN}),
    good("written from the CPU", {
        "train.py": _MAIN % ("", '{name: {k: v.cpu() for k, v in part.items()} for name, part in state.items()}')}),
    good("a file of which nobody knows who wrote it", {
        "train.py": (_MAIN % ("", "state")).replace('checkpoint["model"]', 'checkpoint["weights"]')}),
    good("each process sees one GPU", {
        "train.py": (_MAIN % ("", "state")).replace(
            "def main(args, net, loader):\n",
            'def main(args, net, loader):\n    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]\n')}),
    good("one process", {"train.py": _MAIN % ("", "state")}, world_size=1),
)  # fmt: skip
