"""A model is copied before DDP makes its replicas equal: the copies begin with other weights on each rank.

**What.** Each rank draws the first weights of a model, and nothing seeds the ranks alike. The model is copied
(`copy.deepcopy(encoder)`, `AveragedModel(model)`, `key.load_state_dict(query.state_dict())`), and after that the model
is wrapped in `DistributedDataParallel`, and the copy is not. The training runs the copy: a key encoder, a teacher, a
target network.

**Why it hurts.** DDP sends the weights of rank 0 to the model that it wraps, and to no copy. On all ranks but the first
the copy is that of another model: its outputs have nothing to do with those of the model beside it, and what is
gathered from the ranks comes from different embedding spaces. A frozen copy stays so, a moving average does for
thousands of steps. Nothing fails.

**Fix.** Make the copy of `model.module` after the model is wrapped, or seed all ranks alike before the model is made.

**When it stays quiet.** Anything that seeds, or may by its name; weights that are loaded; a copy that is wrapped, too,
or inside of what is wrapped; a copy that rank 0 alone runs, whose is right; any `broadcast` of the project; copies that
nothing runs; models made on a GPU, whose generator begins alike everywhere; one process.

**Evidence.** Two gloo ranks, torch 2.13: the weights of the copies differ; made after the wrapper, they are equal.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.events import Call, Event, Loop, events, walk
from dslint.python.values import ClassAtom, Function, Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data.ownsplits import draws_own
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import parameter_owners
from dslint.rules.wrapping.afterwrap import wrapper_of

META = RuleMeta(
    code="DSL757",
    name="copy-before-replicas-equal",
    kind="script",
    severity=Severity.WARNING,
    summary="a model is copied before DDP makes its replicas equal: each rank's copy begins with other weights",
    markers=(r"DistributedDataParallel|DDP", r"deepcopy|AveragedModel|load_state_dict", r"backward"),
    references=(
        "https://github.com/bl0/moco/issues/4",
        "DistributedDataParallel.__init__ in torch/nn/parallel/distributed.py: _sync_module_states",
    ),
    depends_on_run=True,
)
_MADE_EQUAL = re.compile(
    r"\bbroadcast(?!_buffers)|sync_(?:param|module|weight|model)|from_pretrained|torch\.load|load_file|load_checkpoint"
    r"|pretrained=(?!False)|weights=(?!None)|hvd|horovod|share_memory|device=[\"']cuda|set_default_device"
    r"|nn\.init\.(?:zeros|ones|constant)_|all_reduce\([^)\n]*(?:param|weight|\bp\b)"
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each such copy."""
    if run.context.is_one_process or run.stage is not None or not run.has("backward") or run.has("makes-engine"):
        return
    wraps = [found for found in run.occurrences("wraps-model") if wrapper_of(run, found.event) is not None]
    modules = run.machine.program.modules()
    if not wraps or any(module.search(_MADE_EQUAL) for module in modules) or not draws_own(run, modules):
        return
    wrapped = {atom.node for found in wraps for atom in found.event.modules}
    seen: set[ast.AST] = set()
    for found, original, copied in _copies(run):
        wrap = next((w for w in wraps if w.entry is found.entry and w.event.modules & original), None)
        if wrap is None or found.event.node in seen or not _comes_before(found, wrap):
            continue
        if {atom.node for atom in copied} & wrapped or not any(_runs(run, atom, _names(found)) for atom in copied):
            continue
        seen.add(found.event.node)
        yield _finding(run, found.event, wrap.event)


def _copies(run: RunQuery) -> Iterator[tuple[Happening, frozenset[Instance], frozenset[Instance]]]:
    """Yield the calls that copy a model, with the model and the copy."""
    for found in run.occurrences("copies"):
        given = found.event.arguments.get("x") or found.event.arguments.get("model")
        yield found, _models(run, instances(given)), _models(run, instances(found.event.result))
    asked = {found.event.node: found.event for found in run.occurrences("state-dict")}
    for found in run.occurrences("loads-state-dict"):
        source = asked.get(found.event.nodes.get("state_dict", found.event.node))
        if source is not None:
            yield found, _models(run, instances(source.receiver)), _models(run, instances(found.event.receiver))
    owners = parameter_owners(run)
    for found in run.occurrences("writes-tensor"):
        sides = _sides(found) if found.event.api.endswith(".copy_") else None
        if sides is not None and all(side in owners for side in sides):
            copied, original = (_models(run, owners[side]) for side in sides)
            yield found, original, copied


def _sides(found: Happening) -> tuple[ast.AST, ast.AST] | None:
    """Return the two calls of `for k, q in zip(key.parameters(), query.parameters()): k.data.copy_(q.data)`."""
    loops = [node.node for node in found.around if isinstance(node, Loop)]
    loop, call = loops[-1] if loops else None, found.event.node
    if not isinstance(loop, ast.For | ast.comprehension) or not isinstance(call, ast.Call) or not call.args:
        return None
    pairs, names = loop.iter, [ast.unparse(name) for name in getattr(loop.target, "elts", ())]
    if (
        not isinstance(pairs, ast.Call)
        or len(pairs.args) != 2
        or len(names) != 2
        or not names[0]
        or names[0] == names[1]
    ):
        return None
    roots = [ast.unparse(part).split(".")[0] for part in (call.func, call.args[0])]
    if sorted(roots) != sorted(names):
        return None
    first, second = pairs.args
    return (first, second) if roots == names else (second, first)


def _models(run: RunQuery, atoms: list[Instance]) -> frozenset[Instance]:
    return frozenset(a for a in atoms if attributes.is_instance_of(run.machine, a.cls, "torch.nn.Module"))


def _comes_before(found: Happening, wrap: Happening) -> bool:
    order = [id(event) for event in events(found.entry.tree)]
    return found.entry.kind == "script" and order.index(id(found.event)) < order.index(id(wrap.event))


def _names(found: Happening) -> frozenset[str]:
    """Return the names of the copy where it is made; none where nobody sees them."""
    module, node = found.event.module, found.event.node
    parent = module.parents.get(node)
    targets: list[ast.expr] = parent.targets if isinstance(parent, ast.Assign) else []
    if "loads-state-dict" in found.event.tags and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        targets = [node.func.value]
    return frozenset(ast.unparse(target).rpartition(".")[2] for target in targets)


def _runs(run: RunQuery, atom: Instance, names: frozenset[str]) -> bool:
    """Return whether a step of the training runs a model past the wrapper, on all ranks: that of rank 0 is right."""
    full = run.machine.worlds.full
    backwards = [[node for node in found.around if isinstance(node, Loop)] for found in run.occurrences("backward")]
    wrapped = {found.event.node for found in run.occurrences("ddp-forward")}
    for node in (node for loops in backwards if loops for node in walk(loops[-1])):
        if (
            isinstance(node, Event)
            and "forward" in node.tags
            and node.lanes == full
            and atom in instances(node.receiver)
        ):
            return True
        function = node.function if isinstance(node, Call) and node.node not in wrapped else None
        owner = function.owner if isinstance(function, Function) and function.name == "forward" else None
        called = node.node.func if isinstance(node, Call) and isinstance(node.node, ast.Call) else None
        if names and called is not None and ast.unparse(called).rpartition(".")[2] not in names:
            continue  # another model of the class, as the one that was copied
        if isinstance(node, Call) and any(event.lanes != full for event in events(node.body)):
            continue
        if isinstance(atom.cls, ClassAtom) and owner is not None and owner.node is atom.cls.node:
            return True
    return False


def _finding(run: RunQuery, event: Event, wrap: Event) -> Finding:
    return run.finding(
        META,
        event.module,
        event.node,
        "the model is copied before DDP makes the ranks' weights equal, and nothing seeds: each rank has another copy",
        hint="Make the copy after the model is wrapped, or seed all ranks alike before it is made",
        related=(run.location(wrap.module, wrap.node, "only this model gets the weights of rank 0"),),
    )


_SCRIPT = """\
import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x)


def copied(student):
%s

def main(rows):
    dist.init_process_group("nccl")
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
%s    net = Net().to(device)
%s    model = DDP(net, device_ids=[device])
%s    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(rows, batch_size=8, sampler=DistributedSampler(rows)):
        x = x.to(device)
        with torch.no_grad():
            goal = %s(x)
        optimizer.zero_grad()
        (model(x) - goal).square().mean().backward()
        optimizer.step()


main([torch.ones(8)] * 64)
"""
_DEEP = "    return copy.deepcopy(student)\n"
_LOADS = """\
    teacher = Net().to(student.layer.weight.device)
    teacher.load_state_dict(student.state_dict())
    return teacher.eval()
"""
_LOOP = """\
    teacher = Net().to(student.layer.weight.device)
    for k, q in zip(teacher.parameters(), student.parameters()):
        k.data.copy_(q.data)
        k.requires_grad = False
    return teacher
"""
_HOLDER = """\
    return Key(student)


class Key(nn.Module):
    def __init__(self, query):
        super().__init__()
        self.net = copy.deepcopy(query)

    def forward(self, x):
        return self.net(x)
"""
_COPY = "    teacher = copied(net)\n"
_SEEDED = "    torch.manual_seed(3)\n"


def _script(made: str, seed: str = "", *, is_late: bool = False, runs: str = "teacher") -> dict[str, str]:
    return {"train.py": _SCRIPT % (made, seed, *(("", _COPY) if is_late else (_COPY, "")), runs)}


EXAMPLES = (
    bad("a deep copy", _script(_DEEP), at="train.py:21"),
    bad("weights that are loaded from the other", _script(_LOADS), at="train.py:22"),
    bad("parameter by parameter", _script(_LOOP), at="train.py:23"),
    bad("inside of a module", _script(_HOLDER), at="train.py:27"),
    bad("the seed holds the rank", _script(_DEEP, "    torch.manual_seed(3 + dist.get_rank())\n"), at="train.py:21"),
    good("made after the wrapper", _script(_DEEP, is_late=True)),
    good("the same seed", _script(_LOADS, _SEEDED)),
    good("a copy that no step runs", _script(_DEEP, runs="torch.ones_like")),
    good(
        "the weights are loaded",
        _script(_DEEP.replace("    return", '    student.load_state_dict(torch.load("net.pt"))\n    return')),
    ),
    good("one process", _script(_DEEP), world_size=1),
)
