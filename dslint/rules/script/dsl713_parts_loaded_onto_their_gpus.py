"""One rank loads the parts of all ranks without `map_location`: each onto the GPU of the rank that has saved it.

**What.** At the end of an evaluation each rank saves what its model gave for its share, as GPU tensors, in a file with
its rank in the name. One rank then goes through the files and loads each by `torch.load(path)`.

**Why it hurts.** `torch.load` puts a tensor on the device from which it was saved. The rank that merges starts CUDA on
every GPU of its machine and fills the memory beside the processes that work there: out of memory, after the whole
evaluation. Where another machine has more GPUs, the device does not exist, and it raises.

**Fix.** `torch.load(path, map_location="cpu")`, or save `tensor.cpu()`.

**When it stays quiet.** `map_location` is given; what is saved goes through the CPU, becomes numbers or lists, or
nobody can see that it comes from a model on a GPU; each rank loads its own file; each process sees one GPU only.

**Evidence.** torch 2.13, `default_restore_location` in torch/serialization.py: a tensor of `cuda:1` is put on `cuda:1`,
and `validate_cuda_device` raises where there is none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event, Loop
from dslint.python.source import Module
from dslint.python.varies import RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL713",
    name="parts-loaded-onto-their-gpus",
    kind="script",
    severity=Severity.WARNING,
    summary="one rank loads the GPU tensors of all ranks without `map_location`: it takes memory on every GPU",
    markers=(r"torch", r"\bload\(", r"cuda|\.to\("),
    references=("https://pytorch.org/docs/stable/generated/torch.load.html",),
    depends_on_run=True,
    no_experiment="takes two GPUs; DSL278 shows where `torch.load` puts tensors",
)
_ON_GPU = re.compile(r"\.cuda\(|\.to\([^()]*(?:device|cuda|rank|gpu)")
_LEAVES = re.compile(r"\bcpu\b|numpy|tolist|\.item\(|\bint\(|\bfloat\(|\bstr\(|decode")
_MODEL = re.compile(r"\b(?:model|net|network|engine|encoder)(?:\.\w+)*\(")
_HOLES = re.compile(r"%[-\d.]*[a-z]|\{[^{}]*\}")
_GROWS = ("append", "extend", "update")
# Where each process sees one GPU, all of them are `cuda:0`.
_SEES_ONE = re.compile("CUDA_VISIBLE_DEVICES")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each load, by one rank and in a loop, of what every rank saves from its GPU."""
    if run.context.is_one_process:
        return
    saves = [h.event for h in run.happenings("saves") if h.event.api == "torch.save" and _is_own_file(run, h.event)]
    if not saves or any(module.search(_SEES_ONE) for module in run.machine.program.modules()):
        return
    parts: dict[str, Event] = {}
    for save in saves:
        parts.setdefault(_shape(save), save)
    for found in run.happenings("loads"):
        event = found.event
        if event.lanes == run.machine.worlds.full or not any(isinstance(node, Loop) for node in found.around):
            continue
        given = event.arguments.get("map_location")
        if event.api != "torch.load" or event.open or (given is not None and given.constants != (None,)):
            continue
        shape = _shape(event)
        part = parts.get(shape) if shape else None
        if part is not None and _is_of_gpu(run, part):
            yield run.finding(
                META,
                event.module,
                event.node,
                "Each part is put on the GPU of the rank that saved it: this rank takes memory on every GPU",
                hint='Pass `map_location="cpu"`',
                related=(run.location(part.module, part.node, "every rank saves its part, from its GPU"),),
            )


def _is_own_file(run: RunQuery, save: Event) -> bool:
    return save.lanes == run.machine.worlds.full and bool(save.snapshot.get("f", (0,))[0] & RANKED)


def _is_of_gpu(run: RunQuery, save: Event) -> bool:
    """Return whether something in what is saved certainly comes from a model and stays on its device."""
    for atom in instances(save.arguments.get("obj")):
        module = run.machine.program.home_of(atom.node)
        scope = module.function(atom.node) if module is not None else None
        if module is not None and scope is not None and _ON_GPU.search(module.text(scope)):
            return any(_is_tensor(module, scope, value) for value in _kept(module, scope, atom.node))
    return False


def _shape(event: Event) -> str:
    """Return the last part of a path as the code writes it, with a star for what is filled in."""
    node = event.nodes.get("f")
    scope = event.module.function(event.node) or event.module.tree
    given = [n.value for n in ast.walk(scope) if isinstance(n, ast.Assign) and _names(n) & _read(node)]
    for part in (inner for piece in (*given, node) if piece is not None for inner in ast.walk(piece)):
        text = ""
        if isinstance(part, ast.JoinedStr):
            text = "".join(str(v.value) if isinstance(v, ast.Constant) else "*" for v in part.values)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            text = _HOLES.sub("*", part.value)
        if "*" in text.rpartition("/")[2]:
            return text.rpartition("/")[2]
    return ""


def _names(node: ast.Assign) -> set[str]:
    return {target.id for target in node.targets if isinstance(target, ast.Name)}


def _read(node: ast.AST | None) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node is not None else set()


def _kept(module: Module, scope: ast.AST, made: ast.AST) -> Iterator[ast.expr]:
    """Yield what a function puts into the list or dictionary that it makes here."""
    statement = module.parents.get(made)
    names = {ast.unparse(target) for target in statement.targets} if isinstance(statement, ast.Assign) else set()
    for node in ast.walk(scope):
        given: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS:
            given = node.args if ast.unparse(node.func.value) in names else []
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            given = [node.value] if ast.unparse(node.targets[0].value) in names else []
        for argument in given:
            yield from argument.values if isinstance(argument, ast.Dict) else getattr(argument, "elts", [argument])


def _is_tensor(module: Module, scope: ast.AST, value: ast.expr) -> bool:
    """Return whether a value comes from a model by names of a function, and no step takes it elsewhere."""
    texts: list[str] = []
    seen: set[str] = set()
    pending = [value]
    while pending:
        piece = pending.pop()
        texts.append(module.text(piece))
        fresh = _read(piece) - seen
        seen |= fresh
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and any(fresh & _read(target) for target in node.targets):
                pending.append(node.value)
            elif isinstance(node, ast.For) and fresh & _read(node.target):
                pending.append(node.iter)
    code = "\n".join(texts)
    return _MODEL.search(code) is not None and _LEAVES.search(code) is None


_EVALUATE = """\
import os

import torch
import torch.distributed as dist


@torch.no_grad()
def predict(model, loader, device):
    result = []
    for ids, images in loader:
        maps = model(images.to(device)).sigmoid()
        for number, each in zip(ids, maps):
            result.append({"id": number.item(), "map": each%s})
    return result


def merge(result, folder):
    torch.save(result, os.path.join(folder, "part_%%d.pth" %% dist.get_rank()))
    dist.barrier()
    found = []
    if dist.get_rank() == 0:
        for rank in range(dist.get_world_size()):
            found += torch.load(os.path.join(folder, "part_%%d.pth" %% rank)%s)
    return found


def main(args, net, loader):
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    found = merge(predict(net.to(device), loader, device), args.folder)
    print(len(found))
    dist.destroy_process_group()
"""

EXAMPLES = (
    bad("maps that a model has made on each GPU", {"evaluate.py": _EVALUATE % ("", "")}, "evaluate.py:23"),
    bad("a f-string, and tuples", {"evaluate.py": (_EVALUATE % ("", "")).replace(
        '{"id": number.item(), "map": each}', "(number, each)").replace('"part_%d.pth" % rank', 'f"part_{rank}.pth"')},
        "evaluate.py:23"),
    bad("a dictionary", {"evaluate.py": (_EVALUATE % ("", "")).replace("result = []", "result = {}").replace(
        'result.append({"id": number.item(), "map": each})', "result[number.item()] = each").replace(
        "found = []", "found = {}").replace("found += ", "found |= ")}, "evaluate.py:23"),
    good("numbers beside losses that nobody saves", {"evaluate.py": (_EVALUATE % (".mean().item()", "")).replace(
        "            result.append(", "            print([].append(maps))\n            result.append(")}),
    good("onto the CPU", {"evaluate.py": _EVALUATE % ("", ', map_location="cpu"')}),
    good("saved from the CPU", {"evaluate.py": _EVALUATE % (".cpu()", "")}),
    good("numbers", {"evaluate.py": _EVALUATE % (".mean().item()", "")}),
    good("each its own", {"evaluate.py": (_EVALUATE % ("", "")).replace(
        "    if dist.get_rank() == 0:\n", "    if True:\n").replace(
        "for rank in range(dist.get_world_size()):", "for rank in (dist.get_rank(),):")}),
)  # fmt: skip
