"""A module is trained beside a wrapped model, and no wrapper averages its gradients.

**What.** An optimizer holds the parameters of the model inside `DistributedDataParallel` (or FSDP, or what
`accelerator.prepare` gives) and those of a second module that nothing wraps: a loss with class weights, a projection
head, a discriminator.

**Why it hurts.** The backward pass averages the gradients of wrapped parameters only. Each rank steps the second module
with the gradients of its own batch: its copies drift apart from the first step on, the wrapped model gets an average
of gradients that belong to different heads, and the head of rank 0 is saved. Nothing fails.

**Fix.** Wrap the second module as well, or make both parts of one module and wrap that.

**When it stays quiet.** A module without parameters; one that is inside a wrapped one, or is wrapped in some runs;
gradients that the script reduces itself; an optimizer that averages (Horovod), or that an engine takes; modules of
which nobody knows what they are; one process.

**Evidence.** Two gloo ranks, torch 2.13: after three steps the weights of the head differ between the ranks; wrapped,
they are equal.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.events import Call, Event, Loop, walk
from dslint.python.parts import modules_in
from dslint.python.queries.skipped import is_frozen
from dslint.python.values import ClassAtom, Function, Instance, Value, one
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks import parted
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import models_given, parameter_owners
from dslint.rules.wrapping.ddps import averages_by_hand, reduces_gradients, wraps_to_average

META = RuleMeta(
    code="DSL665",
    name="module-outside-wrapper",
    kind="script",
    severity=Severity.WARNING,
    summary="a module is trained beside a wrapped model, and nothing averages its gradients",
    markers=(r"parameters\(", r"backward", r"DistributedDataParallel|DDP|FullyShardedDataParallel|fully_shard|prepare"),
    references=(
        "https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        "https://github.com/KevinMusgrave/pytorch-metric-learning/issues/710",
    ),
    depends_on_run=True,
)
# What a class of the project writes that has parameters of its own.
_PARAMETERS = re.compile(
    r"\bParameter\(|\b(?:Lazy)?(?:Bi)?[lL]inear\(|\b(?:Conv\w*\dd|ConvTranspose\dd|Embedding|LayerNorm|GroupNorm"
    r"|BatchNorm\dd|LSTM|GRU|MultiheadAttention|Transformer\w*Layer|from_pretrained)\("
)
_ADDS = re.compile(r"\bModuleDict\b[\s\S]*\.update\(|\bsetattr\(self\b|\bself\.(?:add_module|register_module)\(")
_HOOKS = re.compile(r"\bregister_(?:post_accumulate_grad_)?hook\(")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each module that an optimizer trains and no wrapper knows, beside a wrapped model."""
    if run.context.is_one_process or run.context.zero_stage.is_known or run.has("makes-engine", "wraps-optimizer"):
        return
    wraps = [found for found in run.occurrences("wraps-model", "prepares") if wraps_to_average(run, found)]
    if not wraps or not run.has("backward") or _averages_itself(run):
        return
    every = list(run.occurrences("wraps-model", "prepares"))
    if any(_is_open(found.event) for found in every):
        return
    known = {atom.node for found in every for atom in _taken(found.event)}
    asked = parameter_owners(run)
    seen: set[ast.AST] = set()
    for made in run.occurrences("makes-optimizer"):
        held = list(dict.fromkeys(models_given(made.event, asked)))
        wrap = next((found for found in wraps if found.entry is made.entry), None)
        outside = [atom for atom in held if atom.node not in known | seen and _is_trained_alone(run, atom, known)]
        if wrap is None or not outside or not _steps_beside(run, made, any(atom.node in known for atom in held)):
            continue
        seen |= {atom.node for atom in outside}
        yield from (_finding(run, made.event, atom, wrap.event, asked) for atom in outside)


def _averages_itself(run: RunQuery) -> bool:
    """Return whether the script reduces gradients itself."""
    if any(reduces_gradients(found.event) for found in run.occurrences("collective")):
        return True
    return any(averages_by_hand(module) or module.search(_HOOKS) for module in run.machine.program.modules())


def _is_open(event: Event) -> bool:
    """Return whether a call may wrap a module that nobody knows."""
    module = event.arguments.get("module")
    taken = [atom for value in event.arguments.values() for atom in instances(value)]
    if any(isinstance(a.cls, ClassAtom) and _ADDS.search(a.cls.module.text(a.cls.node)) for a in taken):
        return True  # which parts a module gets by name, nobody knows
    return event.open or (module is not None and len(instances(module)) != len(module.atoms))


def _taken(event: Event) -> Iterator[Instance]:
    """Yield all that a call wraps, with what stands inside, and what it gives."""
    yield from event.modules
    values: list[Value | None] = [*event.arguments.values(), event.result]
    for value in values:
        for atom in value.atoms if value is not None else ():
            if isinstance(atom, Instance):
                yield atom
            for item in getattr(atom, "items", ()):
                yield from instances(item)


def _is_trained_alone(run: RunQuery, atom: Instance, known: set[ast.AST]) -> bool:
    """Return whether a module certainly has parameters, and nothing in it is wrapped."""
    inside = {inner.node for inner in modules_in(run.machine, (one(atom),))}
    inside |= set(ast.walk(atom.cls.node if isinstance(atom.cls, ClassAtom) else atom.node))
    is_lightning = attributes.is_instance_of(run.machine, atom.cls, "lightning.LightningModule")
    is_alone = not is_lightning and not inside & known
    return is_alone and _has_parameters(run, atom) and _runs(run, atom)


def _has_parameters(run: RunQuery, atom: Instance) -> bool:
    if isinstance(atom.cls, ClassAtom):
        return _PARAMETERS.search(atom.cls.module.text(atom.cls.node)) is not None
    made, libraries = run.makers.get(atom), run.machine.libraries
    if libraries.is_class(atom.cls, "container"):
        return _PARAMETERS.search(ast.unparse(atom.node)) is not None
    # A function of a library that gives a module gives a whole model: `resnet50()`.
    is_given = isinstance(atom.node, ast.Call) and made is not None and libraries.class_(made.api) is None
    is_model = is_given and atom.cls == "torch.nn.Module"
    return libraries.is_class(atom.cls, "layer") or is_model or (made is not None and "loads" in made.tags)


def _runs(run: RunQuery, atom: Instance) -> bool:
    """Return whether something runs a module, in whatever way."""
    if not isinstance(atom.cls, ClassAtom):
        return any(atom in instances(found.event.receiver) for found in run.occurrences("forward"))
    calls = (node.function for _, tree in run.trees() for node in walk(tree) if isinstance(node, Call))
    owners = [f.owner for f in calls if isinstance(f, Function) and f.name != "__init__"]
    return any(isinstance(owner, ClassAtom) and owner.node is atom.cls.node for owner in owners)


def _steps_beside(run: RunQuery, made: Happening, is_joint: bool) -> bool:
    """Return whether all ranks step an optimizer, which holds a wrapped model, too, or steps beside one."""
    mine = set(instances(made.event.result))
    steps = [found for found in run.occurrences("optimizer-step") if mine & set(instances(found.event.receiver))]
    if any(parted.are_some(run, found.event.lanes) for found in steps):
        return False
    loops = {id(node) for found in steps for node in found.around if isinstance(node, Loop)}
    wrapped = (
        found for found in run.occurrences("ddp-forward", "fsdp-forward") if not any(map(is_frozen, found.around))
    )
    return is_joint or any(id(node) in loops for found in wrapped for node in found.around)


def _finding(run: RunQuery, made: Event, atom: Instance, wrap: Event, asked: dict[ast.AST, list[Instance]]) -> Finding:
    place = next((node for node, owners in asked.items() if owners == [atom]), made.node)
    module = next((f.event.module for f in run.occurrences("parameters") if f.event.node is place), made.module)
    func = place.func if isinstance(place, ast.Call) else None
    name = run.text(module, func.value, 40) if isinstance(func, ast.Attribute) else "the module"
    return run.finding(
        META,
        module,
        place,
        f"`{name}` is trained outside of the wrapped model: nothing averages its gradients over the ranks",
        hint=f"Wrap `{name}` as well, or make it part of the wrapped model",
        related=(
            run.location(wrap.module, wrap.node, "only what is wrapped here is averaged"),
            run.location(made.module, made.node, "this optimizer steps both"),
        ),
    )


_HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F


class Margin(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, dim))

    def forward(self, x, labels):
        return F.cross_entropy(F.linear(x, self.weight), labels)


class Plain(nn.Module):
    def forward(self, x, labels):
        return F.cross_entropy(x, labels)
"""
_TRAIN = """\
import itertools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from head import Margin, Plain


def main(loader, distributed):
    dist.init_process_group("nccl")
    device = int(os.environ["LOCAL_RANK"])
    net = nn.Linear(8, 8).to(device)
    criterion = Margin(8, 10).to(device)
    %s
    optimizer = torch.optim.SGD(%s, lr=0.1)
    for images, labels in loader:
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_DDP = "model = DDP(net, device_ids=[device])"
_GROUPS = '[{"params": model.parameters()}, {"params": criterion.parameters(), "weight_decay": 0.0}]'
_CHAIN = "itertools.chain(model.parameters(), criterion.parameters())"
_SUM = "list(model.parameters()) + list(criterion.parameters())"
_GAN = """\
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, rank):
        self.gen = DistributedDataParallel(nn.Linear(8, 8).to(rank), device_ids=[rank])
        self.judge = %s
        self.opt_gen = torch.optim.Adam(self.gen.parameters())
        self.opt_judge = torch.optim.Adam(self.judge.parameters())

    def fit(self, loader):
        for batch in loader:
            fake = self.gen(batch)
            self.judge(fake.detach()).mean().backward()
            self.opt_judge.step()
            (-self.judge(fake).mean()).backward()
            self.opt_gen.step()


def main(rank, loader):
    Trainer(rank).fit(loader)
"""
_ADAPTER = """\
import torch
from accelerate import Accelerator
from torch import nn


def main(unet_dim, loader):
    accelerator = Accelerator()
    unet = nn.Linear(unet_dim, unet_dim)
    project = nn.Sequential(nn.Linear(8, unet_dim), nn.LayerNorm(unet_dim)).to(accelerator.device)
    optimizer = torch.optim.AdamW(list(unet.parameters()) + list(project.parameters()))
    %s = accelerator.prepare(%s)
    for batch in loader:
        loss = unet(project(batch)).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""
_REDUCED = (_TRAIN % (_DDP, _SUM)).replace(
    "        optimizer.step()\n",
    "        for p in criterion.parameters():\n            dist.all_reduce(p.grad)\n        optimizer.step()\n",
)
_BACKBONE = (_TRAIN % ("model = DDP(net, device_ids=[device])", _SUM)).replace(
    "from head import Margin, Plain", "from torchvision.models import resnet18"
)
_BOTH = """

class Both(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleDict()
        self.parts.update(parts)

    def forward(self, x, labels):
        return self.parts["head"](self.parts["net"](x), labels)
"""

EXAMPLES = (
    bad("a margin head", {"head.py": _HEAD, "train.py": _TRAIN % (_DDP, _GROUPS)}, "train.py:19 warning"),
    bad("in one chain", {"head.py": _HEAD, "train.py": _TRAIN % (_DDP, _CHAIN)}, "train.py:19 warning"),
    bad(
        "wrapped in some runs only",
        {"head.py": _HEAD, "train.py": _TRAIN % ("model = DDP(net) if distributed else net", _SUM)},
        "train.py:19 warning",
    ),
    bad(
        "beside a sharded model",
        {"head.py": _HEAD, "train.py": _TRAIN % ("model = net; fully_shard(model)", _SUM)},
        "train.py:19 warning",
    ),
    bad("an optimizer of its own", {"train.py": _GAN % "nn.Linear(8, 1).to(rank)"}, "train.py:11 warning"),
    bad(
        "beside what accelerate prepared",
        {"train.py": _ADAPTER % (("unet, optimizer, loader",) * 2)},
        "train.py:10 warning",
    ),
    bad(
        "a model of a library, under a head that is wrapped",
        {"train.py": _BACKBONE.replace("Margin(8, 10)", "resnet18(num_classes=8)")},
        "train.py:19 warning",
    ),
    bad(
        "a model of timm, with a head of its own in groups",
        {
            "train.py": (_BACKBONE.replace("from torchvision.models import resnet18", "import timm"))
            .replace("Margin(8, 10)", 'timm.create_model("vit_tiny_patch16_224", num_classes=0)')
            .replace(_SUM, _GROUPS)
        },
        "train.py:19 warning",
    ),
    good(
        "a model of a library whose gradients the script averages",
        {
            "train.py": _REDUCED.replace(
                "from head import Margin, Plain", "from torchvision.models import resnet18"
            ).replace("Margin(8, 10)", "resnet18()")
        },
    ),
    good(
        "parts of the wrapped model by name",
        {
            "head.py": _HEAD + _BOTH,
            "train.py": (
                _TRAIN
                % ('model = DDP(Both({"net": net, "head": criterion}))', "[*net.parameters(), *criterion.parameters()]")
            )
            .replace("criterion(model(images), labels)", "model(images, labels)")
            .replace("import Margin", "import Both, Margin"),
        },
    ),
    good("prepared, too", {"train.py": _ADAPTER % (("unet, project, optimizer, loader",) * 2)}),
    good(
        "wrapped, too",
        {"head.py": _HEAD, "train.py": _TRAIN % (f"{_DDP}; criterion = DDP(criterion)", _GROUPS)},
    ),
    good(
        "wrapped in a run of several processes",
        {
            "head.py": _HEAD,
            "train.py": _TRAIN % (f"{_DDP}; criterion = DDP(criterion) if distributed else criterion", _GROUPS),
        },
    ),
    good(
        "nothing to train in it",
        {"head.py": _HEAD, "train.py": (_TRAIN % (_DDP, _SUM)).replace("Margin(8, 10)", "Plain()")},
    ),
    good("gradients that the script averages", {"head.py": _HEAD, "train.py": _REDUCED}),
    good("both wrapped", {"train.py": _GAN % "DistributedDataParallel(nn.Linear(8, 1).to(rank), device_ids=[rank])"}),
)
