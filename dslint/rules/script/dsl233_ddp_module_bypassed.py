"""Training runs the model inside `DistributedDataParallel` instead of the wrapper.

**What.** The loss of a training step comes from `model.module(batch)`, from a method of `model.module` where nothing
ever calls the wrapper, from the model kept from before it was wrapped,
or from `accelerator.unwrap_model(model)(batch)`, or from a part or a method of a model that `fabric.setup` has wrapped
(`model.encoder(batch)`), and runs its backward.

**Why it hurts.** The forward of the wrapper prepares the averaging of the gradients. Without it every rank steps with
its own gradients: nothing fails, and the ranks train different models. What is saved is the model of rank 0, trained
on its part of the data only.

**Fix.** Call the wrapper. The fix takes `.module` out of `model.module(...)`.

**When it stays quiet.** Evaluation and generation through `.module` (no backward follows, or `eval()` comes before);
steps in which the wrapper's forward takes part too; scripts that reduce gradients themselves; DeepSpeed engines, whose
hooks sit in the parameters; a model that is wrapped in some arms only.

**Evidence.** Two gloo ranks, torch 2.13: after three steps through `.module`, or through the model from before, the
weights of the ranks differ; through the wrapper they are equal.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.python.events import Call, Event, Loop, walk
from dslint.python.models import INSIDE
from dslint.python.queries.arms import other_arms
from dslint.python.queries.skipped import is_frozen
from dslint.python.source import Module
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.bypassscripts import FABRIC, GETTER, MAPS, PARTS, REFERENCE, SAMPLED, TARGET, TRAIN
from dslint.rules.examples.snippets import PREPARED_ENCODER
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances
from dslint.rules.wrapping.ddps import (
    averages_by_hand,
    is_wrapper,
    made_wrappers,
    reduces_gradients,
    taken_out,
    wrap_of,
)
from dslint.rules.wrapping.fabrics import averages_in_wrapper

META = RuleMeta(
    code="DSL233",
    name="ddp-module-bypassed",
    kind="script",
    severity=Severity.ERROR,
    summary="a training step runs the model inside DDP, so that no gradient is averaged",
    fix="safe",
    markers=(r"\.backward\(", r"DistributedDataParallel|unwrap_model\(|Fabric"),
    references=("https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",),
    depends_on_run=True,
)

_MODES = re.compile(r"([\w.]*)\.(train|eval)\(")
_INSIDE = re.compile(r"module|unwrap|\(")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire when all that a loss is made of passes over the wrapper."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    calls: list[Happening] = []
    if run.has(INSIDE) and any(reduces_gradients(found.event) for found in run.occurrences("collective")):
        return
    for found in run.occurrences(INSIDE, "backward"):
        event = found.event
        if INSIDE in event.tags:
            calls.append(found)
            continue
        for call in _behind(run, found, calls):
            if id(call.event.node) not in seen and not _is_excused(call, found):
                seen.add(id(call.event.node))
                told = _finding(run, call, event)
                if told is not None:
                    yield told


def _behind(run: RunQuery, backward: Happening, calls: list[Happening]) -> list[Happening]:
    """Return the calls past a wrapper from which a loss comes, when that wrapper takes no part in it."""
    made_by = {atom for _, _, models in backward.event.snapshot.values() for atom in models}
    is_joint = any(is_wrapper(run, atom) for atom in made_by)
    loop = next((node for node in reversed(backward.around) if isinstance(node, Loop)), None)
    here = [c for c in calls if c.entry is backward.entry and set(instances(c.event.receiver)) <= made_by]
    here = [c for c in here if not any(is_frozen(node) for node in c.around) and not _is_without_gradient(c)]
    here = [c for c in here if loop is None or loop in c.around]
    found = []
    for call in here:
        wrap = wrap_of(run, call.event)
        made = made_wrappers(run, wrap) if wrap is not None else set()
        if wrap is not None and _is_choice(wrap) and _runs_there(run, call, made):
            continue  # wrapped or not as the module is: here each of them runs as it was made
        wrappers = made - taken_out(run, made)
        # Beside another wrapper, and where the wrapper never runs, nothing else can have been meant.
        is_method = not call.event.api.endswith(".forward")
        # A wrapper of a Trainer runs where nobody sees it.
        runs_too = is_method and not made
        runs_too |= (is_joint or is_method) and any(_is_run(run, wrapper) for wrapper in wrappers)
        if not wrappers & made_by and not runs_too:
            found.append(call)
    return found


def _is_without_gradient(call: Happening) -> bool:
    """Return whether the method that runs is decorated with `@torch.no_grad()`."""
    made = [node for node in walk(call.entry.tree) if isinstance(node, Call) and node.node is call.event.node]
    return bool(made) and all(map(is_frozen, made))


def _is_run(run: RunQuery, wrapper: Instance) -> bool:
    """Return whether the forward of a wrapper runs with gradients: perhaps it prepares those of this step."""
    return any(
        wrapper in instances(found.event.receiver) and not any(map(is_frozen, found.around))
        for found in run.occurrences("ddp-forward")
    )


def _runs_there(run: RunQuery, call: Happening, wrappers: set[Instance]) -> bool:
    """Return whether the same call may run the wrapper instead."""
    runs = (found.event for found in run.occurrences("ddp-forward") if found.event.node is call.event.node)
    return any(wrappers & set(instances(event.receiver)) for event in runs)


def _is_excused(call: Happening, backward: Happening) -> bool:
    """Return whether the script averages by hand, or evaluates here."""
    modules = {id(m): m for m in (call.event.module, backward.event.module, call.entry.module)}
    if any(averages_by_hand(module) for module in modules.values()):
        return True
    first = getattr(function_around(call.event.module, call.event.node), "lineno", 1)
    func = getattr(call.event.node, "func", None)
    inside = call.event.module.text(func.value) if isinstance(func, ast.Attribute) else ""
    found = _MODES.findall(call.event.module.lines(first, getattr(call.event.node, "lineno", 1)))
    modes = [mode for owner, mode in found if not (inside and owner.startswith(f"{inside}."))]  # not of a frozen part
    return bool(modes) and modes[-1] == "eval"


def _finding(run: RunQuery, call: Happening, backward: Event) -> Finding | None:
    event = call.event
    func = getattr(event.node, "func", event.node)
    text = run.text(event.module, func)
    wrap = wrap_of(run, event)
    is_method = not event.api.endswith(".forward")
    inside = func.value if isinstance(func, ast.Attribute) and (is_method or func.attr == "forward") else func
    is_ddp = wrap is not None and wrap.event.api.endswith("DistributedDataParallel")
    is_choice = wrap is None or _is_choice(wrap)
    is_certain = is_ddp and not is_choice
    if (is_ddp or wrap is not None) and is_choice and not _is_taken_out(run, event.module, inside):
        return None  # wrapped in some arms only
    if not is_ddp and run.context.zero_stage.is_known:
        return None  # an engine, whose hooks sit in the parameters
    is_fabric = wrap is not None and wrap.event.api.startswith("lightning.")
    if is_fabric and wrap is not None and not averages_in_wrapper(run, wrap.event):
        return None
    prepared = "the model that Fabric set up" if is_fabric else "the model that accelerate prepared"
    where = "`DistributedDataParallel`" if is_ddp else prepared
    related = [run.location(backward.module, backward.node, "this backward follows")]
    related += [run.location(wrap.event.module, wrap.event.node, "wrapped here")] if wrap is not None else []
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{text}(...)` bypasses {where} in training: no gradient is averaged, and the ranks train different models",
        hint="Let `forward` do this, and call the wrapper" if is_method else "Call the wrapped model",
        related=tuple(related),
        severity=Severity.ERROR if is_certain else Severity.WARNING,
        fix=_fix(run, event, func),
        facts={"kept": ".module" not in text and not text.endswith(".forward")},
    )


def _is_taken_out(run: RunQuery, module: Module, inside: ast.AST) -> bool:
    """Return whether the code takes the model out of its wrapper, here or where the name gets it."""
    if _INSIDE.search(module.text(inside)):
        return True
    whole = run.derived.of(module, [inside]) if isinstance(inside, ast.expr) else None
    nodes = [node for _, piece in whole or run.derived.behind(module, inside) for node in ast.walk(piece)]
    return any(isinstance(node, ast.Attribute) and node.attr in ("module", "unwrap_model") for node in nodes)


def _is_choice(wrap: Happening) -> bool:
    """Return whether only some runs wrap the model."""
    arms = other_arms(wrap.entry.tree, wrap.around, wrap.event)
    return any(arm.alt.then_lanes and arm.alt.else_lanes for arm in arms)


def _fix(run: RunQuery, event: Event, func: ast.AST) -> Fix | None:
    """Take `.module` out of `model.module(...)`."""
    if not isinstance(func, ast.Attribute) or func.attr != "module" or event.module.path != run.path:
        return None
    start, end = event.module.span(func.value).end, event.module.span(func).end
    return Fix("Call the wrapper", (Edit(run.path, Span(start, end), ""),))


EXAMPLES = (
    bad(
        "past the wrapper",
        {"train.py": TRAIN % "model.module"},
        "train.py:8 error",
        fixed={"train.py": TRAIN % "model"},
    ),
    bad(
        "in a test, which may average the gradients by hand",
        {"test_ddp.py": TRAIN.replace("def ", "def test_", 1) % "model.module"},
        "test_ddp.py:8 info",
    ),
    bad(
        "the model from before",
        {
            "train.py": """\
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, net):
        self.net = net
        self.model = DistributedDataParallel(self.net)

    def step(self, batch):
        loss = self.net(batch).mean()
        loss.backward()
"""
        },
        "train.py:10 error",
    ),
    bad(
        "what accelerate unwraps",
        {
            "train.py": """\
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def train(loader):
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
    inner = accelerator.unwrap_model(model)
    for batch in loader:
        accelerator.backward(inner(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
"""
        },
        "train.py:12 warning",
    ),
    bad(
        "past the wrapper, beside a reference model that gets no gradient",
        {"train.py": REFERENCE % "model.module"},
        "train.py:12 error",
        fixed={"train.py": REFERENCE % "model"},
    ),
    bad(
        "past the wrapper, after a criterion",
        {
            "train.py": (TRAIN % "model.module")
            .replace("F.cross_entropy", "criterion")
            .replace("    for batch", "    criterion = torch.nn.CrossEntropyLoss()\n    for batch")
            .replace("import torch.nn.functional as F", "import torch")
        },
        "train.py:9 error",
        fixed={
            "train.py": (TRAIN % "model")
            .replace("F.cross_entropy", "criterion")
            .replace("    for batch", "    criterion = torch.nn.CrossEntropyLoss()\n    for batch")
            .replace("import torch.nn.functional as F", "import torch")
        },
    ),
    bad(
        "a method of the model inside",
        {"train.py": (TRAIN % "model").replace("F.cross_entropy(model(batch), labels)", "model.module.loss(batch)")},
        "train.py:8 error",
    ),
    bad(
        "a helper hands out the model inside", {"train.py": GETTER % "self.inner().loss(batch)"}, "train.py:16 warning"
    ),
    bad(
        "a name for the model inside, in a run that may have no wrapper",
        {"train.py": SAMPLED % ("model.module", "inner.sample(batch)")},
        "train.py:20 warning",
    ),
    good("a name for the wrapper, or for the model where there is none", {
        "train.py": SAMPLED % ("model", "inner(batch), batch")}),
    good("maps of an evaluation, in a loop over a generator", {"train.py": MAPS}),
    bad(
        "a helper takes what accelerate prepared out of DDP where it is in one",
        {
            "train.py": """\
import torch
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel as DDP


def taken_out(*models):
    return (model.module if isinstance(model, DDP) else model for model in models)


def train(loader):
    accelerator = Accelerator()
    net, head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)
    net, head, loader = accelerator.prepare(net, head, loader)
    net, head = taken_out(net, head)
    for batch in loader:
        accelerator.backward(head(net(batch)).mean())
"""
        },
        ("train.py:16 warning", "train.py:16 warning"),
    ),
    good("the helper gives the names of the parameters", {"train.py": GETTER % "self.model(batch)"}),
    good(
        "the head inside judges what the wrapper has computed",
        {
            "train.py": (TRAIN % "model").replace(
                "F.cross_entropy(model(batch), labels)", "model.module.loss(model(batch), labels)"
            )
        },
    ),
    good("the wrapper", {"train.py": TRAIN % "model"}),
    good("parts of which those with parameters are wrapped", {"train.py": PARTS % ""}),
    bad(
        "such a part past its wrapper",
        {"train.py": PARTS % ".module"},
        "train.py:16 warning",
    ),
    good("the wrapper, and the model inside gives a target without a gradient", {"train.py": TARGET}),
    good(
        "evaluation through the model inside",
        {
            "train.py": TRAIN % "model"
            + """\
        if rank == 0:
            print(model.module(batch).mean().item())
"""
        },
    ),
    good(
        "the wrapper takes part",
        {
            "train.py": (TRAIN % "model").replace(
                "        loss.backward()\n",
                "        loss = loss + model.module(batch).mean()\n        loss.backward()\n",
            )
        },
    ),
    good(
        "gradients that the script averages",
        {
            "train.py": (TRAIN % "model.module").replace(
                "        optimizer.step()\n",
                "        for p in model.parameters():\n            dist.all_reduce(p.grad)\n        optimizer.step()\n",
            )
        },
    ),
    good(
        "gradients that the script adds up and averages",
        {
            "train.py": (TRAIN % "model.module").replace(
                "        optimizer.step()\n",
                "        for n, p in model.named_parameters():\n            grad = p.grad\n"
                "            total[n] = total[n] + grad.float()\n            dist.all_reduce(total[n])\n"
                "        optimizer.step()\n",
            )
        },
    ),
    good(
        "the engine of DeepSpeed",
        {
            "train.py": """\
import deepspeed


def train(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    for batch in loader:
        engine.backward(engine.module(batch))
        engine.step()
"""
        },
    ),
    good("prepared in one arm, and a helper that runs it", {"train.py": PREPARED_ENCODER}),
    bad("parts that Fabric's wrapper hands out bare", {"train.py": FABRIC % ("ddp", "model.head(model.encode(batch))")},
        ("train.py:27 warning", "train.py:27 warning")),
    good("the wrapper of Fabric", {"train.py": FABRIC % ("ddp", "model(batch)")}),
    good("Fabric with DeepSpeed", {"train.py": FABRIC % ("deepspeed", "model.head(model.encode(batch))")}),
)  # fmt: skip
