"""A module is trained beside a wrapped model, and no wrapper averages its gradients.

**What.** An optimizer holds the parameters of the model inside `DistributedDataParallel` (or FSDP, or what
`accelerator.prepare` gives) and those of a second module that nothing wraps: a loss with class weights, a projection
head, a discriminator, the other parts of a bare model of which one part is wrapped.

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
from collections.abc import Iterator, Mapping

from dslint.core.finding import Finding, Severity
from dslint.python import attributes
from dslint.python.events import Call, Event, Loop, walk
from dslint.python.places import ordered
from dslint.python.queries.skipped import is_frozen
from dslint.python.values import ClassAtom, Function, Instance, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.besidescripts import (
    ADAPTER,
    BACKBONE,
    BOTH,
    CHAIN,
    DDP,
    GAN,
    GROUPS,
    HEAD,
    LIST,
    MODULE,
    PARTS,
    REDUCED,
    SUM,
    TOP,
    TRAIN,
    YIELDS,
)
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
_FREEZES = re.compile(r"\brequires_grad|\bfreeze|\bfrozen|parallelize_module|tensor_parallel|expert_parallel")
_HOOKS = re.compile(r"\bregister_(?:post_accumulate_grad_)?hook\(")

# The modules in each model whose parameters are asked for, as they were then.
_Inside = Mapping[Instance, frozenset[Instance]]


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
    inside = {atom: found for h in run.occurrences("parameters") for atom, found in h.event.inside.items()}
    seen: set[ast.AST] = set()
    for made in run.occurrences("makes-optimizer"):
        held = list(dict.fromkeys(models_given(made.event, asked)))
        wrap = next((found for found in wraps if found.entry is made.entry), None)
        left = {part: atom for atom in held for part in _parts_left(run, atom, inside, known)}
        fresh = [atom for atom in (*held, *left) if atom.node not in known | seen]
        outside = [atom for atom in fresh if _is_trained_alone(run, atom, inside, known)]
        is_joint = bool(left) or any(atom.node in known for atom in held)
        if wrap is None or not outside or not _steps_beside(run, made, is_joint):
            continue
        seen |= {atom.node for atom in outside}
        at: dict[ast.AST, list[Instance]] = {}
        for atom in outside:
            whole = left.get(atom, atom)
            place = next((node for node, owners in asked.items() if owners == [whole]), made.event.node)
            at.setdefault(place, []).append(atom)
        yield from (_finding(run, made.event, place, atoms, wrap.event) for place, atoms in at.items())


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


def _is_trained_alone(run: RunQuery, atom: Instance, inside: _Inside, known: set[ast.AST]) -> bool:
    """Return whether a module certainly has parameters, and nothing in it is wrapped."""
    nodes = {atom.node, *(inner.node for inner in inside.get(atom, ()))}
    nodes |= set(ast.walk(atom.cls.node if isinstance(atom.cls, ClassAtom) else atom.node))
    is_lightning = attributes.is_instance_of(run.machine, atom.cls, "lightning.LightningModule")
    is_alone = not is_lightning and not nodes & known
    return is_alone and _has_parameters(run, atom, inside) and _runs(run, atom)


def _parts_left(run: RunQuery, atom: Instance, inside: _Inside, known: set[ast.AST]) -> list[Instance]:
    """Return the parts of a bare model of which another part is inside `DistributedDataParallel`."""
    m, parts = run.machine, inside.get(atom, frozenset())
    is_bare = atom.node not in known and isinstance(atom.cls, ClassAtom)
    if not is_bare or not any(isinstance(p.cls, str) and m.libraries.is_class(p.cls, "ddp") for p in parts):
        return []
    if any(module.search(_FREEZES) for module in m.program.modules()):
        return []
    return [part for part in ordered(parts - {atom}) if isinstance(part, Instance)]


def _has_parameters(run: RunQuery, atom: Instance, inside: _Inside) -> bool:
    if isinstance(atom.cls, ClassAtom):
        return _PARAMETERS.search(atom.cls.module.text(atom.cls.node)) is not None
    made, libraries = run.makers.get(atom), run.machine.libraries
    if libraries.is_class(atom.cls, "container"):
        held = inside.get(atom, frozenset()) - {atom}
        is_written = any(_PARAMETERS.search(ast.unparse(code)) for code in _code_of(run, atom))
        return is_written or any(_has_parameters(run, inner, inside) for inner in held)
    # A function of a library that gives a module gives a whole model: `resnet50()`.
    is_given = isinstance(atom.node, ast.Call) and made is not None and libraries.class_(made.api) is None
    is_model = is_given and atom.cls == "torch.nn.Module"
    return libraries.is_class(atom.cls, "layer") or is_model or (made is not None and "loads" in made.tags)


def _code_of(run: RunQuery, atom: Instance) -> Iterator[ast.AST]:
    """Yield the code of a container, and of what the list gets that it is made of: `Sequential(*layers)`."""
    yield atom.node
    home = run.machine.program.home_of(atom.node)
    maker = parted.function_around(home, atom.node) if home is not None else None
    arguments = atom.node.args if isinstance(atom.node, ast.Call) else []
    lists = {a.value.id for a in arguments if isinstance(a, ast.Starred) and isinstance(a.value, ast.Name)}
    for node in ast.walk(maker) if maker is not None and lists else ():
        func = node.func if isinstance(node, ast.Call) else None
        grown = func.value if isinstance(func, ast.Attribute) and func.attr in ("append", "extend", "insert") else None
        given = [*node.targets] if isinstance(node, ast.Assign) else [getattr(node, "target", grown)]
        if any(isinstance(target, ast.Name) and target.id in lists for target in given):
            yield node


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


def _finding(run: RunQuery, made: Event, place: ast.AST, atoms: list[Instance], wrap: Event) -> Finding:
    module = next((f.event.module for f in run.occurrences("parameters") if f.event.node is place), made.module)
    func = place.func if isinstance(place, ast.Call) else None
    owner = run.text(module, func.value, 40) if isinstance(func, ast.Attribute) and place is not made.node else ""
    is_whole = owner and all(atom in parameter_owners(run)[place] for atom in atoms)
    name = f"`{owner}`" if is_whole else f"a part of `{owner}`" if owner else "a module"
    homes = ((run.machine.program.home_of(atom.node), atom.node) for atom in atoms if not is_whole)
    return run.finding(
        META,
        module,
        place,
        f"{name} is trained outside of the wrapped model: nothing averages its gradients over the ranks",
        hint=f"Wrap {name} as well, or make it part of the wrapped model",
        related=(
            run.location(wrap.module, wrap.node, "only what is wrapped here is averaged"),
            run.location(made.module, made.node, "this optimizer steps both"),
            *dict.fromkeys(run.location(home, node, "it is made here") for home, node in homes if home is not None),
        ),
    )


EXAMPLES = (
    bad("a margin head", {"head.py": HEAD, "train.py": TRAIN % (DDP, GROUPS)}, "train.py:19 warning"),
    bad("in one chain", {"head.py": HEAD, "train.py": TRAIN % (DDP, CHAIN)}, "train.py:19 warning"),
    bad(
        "wrapped in some runs only",
        {"head.py": HEAD, "train.py": TRAIN % ("model = DDP(net) if distributed else net", SUM)},
        "train.py:19 warning",
    ),
    bad(
        "beside a sharded model",
        {"head.py": HEAD, "train.py": TRAIN % ("model = net; fully_shard(model)", SUM)},
        "train.py:19 warning",
    ),
    bad("an optimizer of its own", {"train.py": GAN % "nn.Linear(8, 1).to(rank)"}, "train.py:11 warning"),
    bad(
        "beside what accelerate prepared",
        {"train.py": ADAPTER % (("unet, optimizer, loader",) * 2)},
        "train.py:10 warning",
    ),
    bad(
        "a model of a library, under a head that is wrapped",
        {"train.py": BACKBONE.replace("Margin(8, 10)", "resnet18(num_classes=8)")},
        "train.py:19 warning",
    ),
    bad(
        "a model of timm, with a head of its own in groups",
        {
            "train.py": (BACKBONE.replace("from torchvision.models import resnet18", "import timm"))
            .replace("Margin(8, 10)", 'timm.create_model("vit_tiny_patch16_224", num_classes=0)')
            .replace(SUM, GROUPS)
        },
        "train.py:19 warning",
    ),
    bad(
        "parts of an object that yields their parameters",
        {"train.py": PARTS % ("", "", "__call__", YIELDS, "")},
        "train.py:34 warning",
    ),
    bad(
        "parts of an object that lists their parameters",
        {"train.py": PARTS % ("", "", "__call__", LIST, "")},
        "train.py:36 warning",
    ),
    bad("one part of a bare model is wrapped", {"train.py": PARTS % (*MODULE, "", "")}, "train.py:31 warning"),
    good("each part is wrapped", {"train.py": PARTS % ("", "", "__call__", YIELDS, TOP)}),
    good("each part of a bare model is wrapped", {"train.py": PARTS % (*MODULE, "", TOP)}),
    good(
        "the other part is frozen",
        {"train.py": PARTS % (*MODULE, "", "model.top.requires_grad_(False)")},
    ),
    good(
        "a model of a library whose gradients the script averages",
        {
            "train.py": REDUCED.replace(
                "from head import Margin, Plain", "from torchvision.models import resnet18"
            ).replace("Margin(8, 10)", "resnet18()")
        },
    ),
    good(
        "parts of the wrapped model by name",
        {
            "head.py": HEAD + BOTH,
            "train.py": (
                TRAIN
                % ('model = DDP(Both({"net": net, "head": criterion}))', "[*net.parameters(), *criterion.parameters()]")
            )
            .replace("criterion(model(images), labels)", "model(images, labels)")
            .replace("import Margin", "import Both, Margin"),
        },
    ),
    good("prepared, too", {"train.py": ADAPTER % (("unet, project, optimizer, loader",) * 2)}),
    good(
        "wrapped, too",
        {"head.py": HEAD, "train.py": TRAIN % (f"{DDP}; criterion = DDP(criterion)", GROUPS)},
    ),
    good(
        "wrapped in a run of several processes",
        {
            "head.py": HEAD,
            "train.py": TRAIN % (f"{DDP}; criterion = DDP(criterion) if distributed else criterion", GROUPS),
        },
    ),
    good(
        "nothing to train in it",
        {"head.py": HEAD, "train.py": (TRAIN % (DDP, SUM)).replace("Margin(8, 10)", "Plain()")},
    ),
    good("gradients that the script averages", {"head.py": HEAD, "train.py": REDUCED}),
    good("both wrapped", {"train.py": GAN % "DistributedDataParallel(nn.Linear(8, 1).to(rank), device_ids=[rank])"}),
)
