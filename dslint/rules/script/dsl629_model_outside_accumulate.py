"""A second prepared model is trained in a block of `accelerator.accumulate` that does not name it.

**What.** Two models are prepared, both run forward in `with accelerator.accumulate(first):`, and the backward of
their loss is in that block. The second model is not an argument of `accumulate`.

**Why it hurts.** `accumulate` keeps the gradients of its arguments from being reduced until the last micro batch of a
step. Those of the other model are reduced after each of them: with 8 micro batches eight times as often as needed, and
every rank waits for the slowest in each micro batch. The result is right; the time is lost.

**Fix.** Name all models that are trained: `with accelerator.accumulate(generator, discriminator):`.

**When it stays quiet.** One micro batch for a step; the arguments are not all known; the forward runs under
`torch.no_grad()`; DeepSpeed; one process.

**Evidence.** Two gloo ranks, accelerate 1.15, four micro batches: the gradients of the model that is not named are
reduced four times, those of the other one once. `Accelerator.accumulate` in accelerate/accelerator.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Context, Event, events
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.accelerators import MODEL
from dslint.rules.training.accumulating import steps_of
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import MicroBatches

META = RuleMeta(
    code="DSL629",
    name="model-outside-accumulate",
    kind="script",
    severity=Severity.WARNING,
    summary="a second model is trained in `accelerator.accumulate` and not named: it is reduced for each micro batch",
    markers=(r"accelerat", r"accumulate\("),
    versions=("accelerate",),
    references=(
        "https://github.com/huggingface/diffusers/issues/7600",
        "https://github.com/huggingface/accelerate/issues/1414",
    ),
    depends_on_run=True,
)
_OFF = re.compile(r"no_grad|inference_mode|grad_enabled|no_sync|without|frozen|eval", re.I)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each forward of a prepared model in a block that accumulates for others alone."""
    if run.context.is_one_process or run.stage is not None:
        return
    opened = {atom: h.event for h in run.occurrences("accumulate") for atom in instances(h.event.result)}
    seen: set[tuple[int, Instance]] = set()
    for found in run.occurrences("ddp-forward") if opened else ():
        model = _model(found.event)
        block = next((n for n in found.around if isinstance(n, Context) and n.manager.atoms & opened.keys()), None)
        made = next((opened[atom] for atom in instances(block.manager) if atom in opened), None) if block else None
        if model is None or block is None or made is None or (id(made.node), model) in seen:
            continue
        named = _named(made)
        if named is None or model in named or _is_without_gradient(found, block) or not _is_trained(block):
            continue
        steps = steps_of(run, made)
        if steps is not None:
            seen.add((id(made.node), model))
            yield _finding(run, found.event, made, steps)


def _model(event: Event) -> Instance | None:
    """Return the prepared model that certainly runs."""
    atom = event.receiver.single if event.receiver is not None else None
    return atom if isinstance(atom, Instance) and atom.cls == MODEL else None


def _named(made: Event) -> set[Instance] | None:
    """Return the prepared models that `accumulate` gets; `None` where they are not all known."""
    found: set[Instance] = set()
    for value in made.arguments.values():
        atom = value.single
        if not isinstance(atom, Instance) or atom.cls != MODEL:
            return None
        found.add(atom)
    return found if found and not made.open else None


def _is_without_gradient(found: Happening, block: Context) -> bool:
    """Return whether another block, inside or around, may switch gradients or their reduction off."""
    inside = [node for node in found.around if isinstance(node, Context) and node is not block]
    classes = {str(atom.cls) for node in inside for atom in instances(node.manager)}
    words = [ast.unparse(i.context_expr) for n in inside if isinstance(n.node, ast.With) for i in n.node.items]
    return any(_OFF.search(word) for word in (*classes, *words))


def _is_trained(block: Context) -> bool:
    """Return whether a backward and a step stand in the block."""
    tags = {tag for event in events(block.body) for tag in event.tags}
    return bool(tags & {"backward", "engine-backward"}) and bool(tags & {"optimizer-step", "steps"})


def _finding(run: RunQuery, forward: Event, made: Event, steps: MicroBatches) -> Finding:
    known = steps.known
    is_sure = known is not None and known > 1
    times = f"{known} times a step instead of once" if is_sure else "after each micro batch"
    return run.finding(
        META,
        made.module,
        made.node,
        f"another model is trained in this block but not named: its gradients are reduced {times}",
        hint="Name all models that are trained in `accumulate`",
        related=(run.location(forward.module, forward.node, "the model that is not named"), *steps.places),
        severity=None if is_sure else Severity.INFO,
        facts={"gas": known},
    )


_GAN = """\
import torch
from accelerate import Accelerator
from nets import Critic, Maker
from torch.utils.data import DataLoader


class Gan:
    def __init__(self, data):
        self.accelerator = Accelerator(gradient_accumulation_steps=%s)
        maker, critic = Maker(), Critic()
        optimizer = torch.optim.Adam([*maker.parameters(), *critic.parameters()])
        loader = DataLoader(data, batch_size=8, shuffle=True)
        self.maker, self.critic, self.optimizer, self.loader = self.accelerator.prepare(
            maker, critic, optimizer, loader
        )

    def loss(self, batch):
%s

    def fit(self):
        for batch in self.loader:
            with self.accelerator.accumulate(%s):
                self.accelerator.backward(self.loss(batch))
                self.optimizer.step()
                self.optimizer.zero_grad()


Gan([]).fit()
"""
_NETS = """\
import torch


class Maker(torch.nn.Module):
    def forward(self, x):
        return x


class Critic(torch.nn.Module):
    def forward(self, x):
        return x
"""
_BOTH = "        return self.critic(self.maker(batch)).mean()"
_FIXED = """\
        with torch.no_grad():
            wanted = self.critic(batch)
        return (self.maker(batch) - wanted).mean()"""


def _gan(steps: str = "4", loss: str = _BOTH, named: str = "self.maker") -> dict[str, str]:
    return {"nets.py": _NETS, "train.py": _GAN % (steps, loss, named)}


_TOWERS = """\
import torch
from accelerate import Accelerator


def train(loader):
    accelerator = Accelerator(gradient_accumulation_steps=8)
    image, text = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW([*image.parameters(), *text.parameters()])
    image, text, optimizer, loader = accelerator.prepare(image, text, optimizer, loader)
    for x, y in loader:
        with accelerator.accumulate(image):
            accelerator.backward((image(x) * text(y)).sum())
            optimizer.step()
            optimizer.zero_grad()
"""

EXAMPLES = (
    bad("Two towers", {"train.py": _TOWERS}, "train.py:11 warning"),
    bad("Generator and critic of a class", _gan(), "train.py:22 warning"),
    good("Both are named", _gan(named="self.maker, self.critic")),
    good("One micro batch for a step", _gan(steps="1")),
    good("The other one runs without gradients", _gan(loss=_FIXED)),
)
