"""Two backward passes go through a DDP model after one forward: the gradients of the second are not averaged.

**What.** `first.backward(retain_graph=True)` and `second.backward()` of the outputs of one forward; two forwards, and
then two backwards; or the generator's backward runs through the discriminator between the forward of the
discriminator's own loss and its backward.

**Why it hurts.** A forward of `DistributedDataParallel` prepares one reduction, and the first backward that reaches its
parameters spends it. What a second backward adds stays on its rank. Each rank steps with its own gradients, and the
models drift apart; what is saved is that of rank 0. Nothing fails.

**Fix.** One backward of the sum: `(first + second).backward()`. Or run the forward of each loss just before its
backward: step the discriminator before the loss of the generator is computed.

**When it stays quiet.** A forward of the model is between the two; one of them is without gradients, detached or
frozen; the gradients of the second are cleared before a step; sides of one test; `no_sync`; the script averages
gradients itself; another wrapper than DDP.

**Evidence.** Two gloo ranks, torch 2.13: after both backwards the gradients of the ranks differ, with one forward as
with two, and with the order of the generator; with a forward before each backward they are equal.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.ddps import averages_by_hand, reduces_gradients
from dslint.rules.wrapping.spentreductions import SpentReductions

META = RuleMeta(
    code="DSL621",
    name="second-backward-not-averaged",
    kind="script",
    severity=Severity.WARNING,
    summary="two backward passes after one forward of a DDP model: the gradients of the second are not averaged",
    markers=(r"\bbackward\(", r"DistributedDataParallel|DDP|ccelerat"),
    references=(
        "https://github.com/ai2cm/ace/pull/1446",
        "https://pytorch.org/docs/stable/notes/ddp.html#internal-design",
    ),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the second of two backwards that follow one prepared reduction."""
    if run.context.is_one_process or not run.has("backward") or not run.has("ddp-forward"):
        return
    if any(reduces_gradients(found.event) for found in run.occurrences("collective")):
        return
    if any(averages_by_hand(module) for module in run.machine.program.modules()):
        return
    spent = SpentReductions(run)
    seen: set[int] = set()
    for _, tree in run.trees():
        for found in spent.of(tree):
            if id(found.second.node) in seen:
                continue
            seen.add(id(found.second.node))
            same = found.first.node is found.second.node
            yield run.finding(
                META,
                found.second.module,
                found.second.node,
                "No DDP forward runs between this backward and the one before: its gradients are not averaged",
                hint="Make one backward of the sum, or run the forward of each loss just before its backward",
                related=(
                    *(() if same else (run.location(found.first.module, found.first.node, "spends the reduction"),)),
                    run.location(found.forward.module, found.forward.node, "prepares one reduction"),
                ),
            )


_HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
"""
_TWO = (
    _HEAD
    + """\


def train(loader, rank):
    model = DDP(torch.nn.Linear(8, 8).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        %s
        optimizer.step()
"""
)
_GAN = (
    _HEAD
    + """\


class Trainer:
    def __init__(self, gen, critic):
        self.gen, self.critic = DDP(gen), DDP(critic)
        self.opt_g = torch.optim.Adam(self.gen.parameters(), lr=1e-4)
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=1e-4)

    def critic_loss(self, real, fake):
        return self.critic(fake.detach()).mean() - self.critic(real).mean()

    def step_generator(self, loss):
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()

    def step_critic(self, loss):
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()

    def train(self, loader):
        for noise, real in loader:
            fake = self.gen(noise)
%s


def main(gen, critic, loader):
    Trainer(gen, critic).train(loader)
"""
)
_LATE = """\
            critic_loss = self.critic_loss(real, fake)
            self.step_generator(-self.critic(fake).mean())
            self.step_critic(critic_loss)"""
_TURNS = """\
            self.step_critic(self.critic_loss(real, fake))
            self.step_generator(-self.critic(fake).mean())"""
_FROZEN = """\
            critic_loss = self.critic_loss(real, fake)
            self.critic.requires_grad_(False)
            self.step_generator(-self.critic(fake).mean())
            self.critic.requires_grad_(True)
            self.step_critic(critic_loss)"""
_ACCELERATE = """\
import torch
from accelerate import Accelerator


def train(loader):
    accelerator, model = Accelerator(), torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        first = model(batch["x"]).mean()
        %ssecond = model(batch["y"]).square().mean()
        accelerator.backward(%s)
        optimizer.step()
        optimizer.zero_grad()
"""
_PARTS = "first, second = out.mean(), (out - y).square().mean()\n        "
_EACH = "for part in (out.mean(), (out - y).square().mean()):\n            part.backward(retain_graph=True)"

EXAMPLES = (
    bad("the graph is kept for a second backward", {
        "train.py": _TWO % (_PARTS + "first.backward(retain_graph=True)\n        second.backward()")},
        "train.py:16 warning"),
    bad("a loop over losses", {"train.py": _TWO % _EACH}, "train.py:15 warning"),
    bad("two forwards, then two backwards", {"train.py": _TWO % (
        "other = model(y)\n        out.mean().backward()\n        other.mean().backward()")}, "train.py:16 warning"),
    bad("the generator's backward comes in between", {"train.py": _GAN % _LATE}, "train.py:24 warning"),
    bad("what an Accelerator has prepared", {
        "train.py": _ACCELERATE % ("", "first)\n        accelerator.backward(second")}, "train.py:13 warning"),
    good("one backward of the sum", {"train.py": _TWO % (_PARTS + "(first + second).backward()")}),
    good("a forward before each", {"train.py": _TWO % (
        "out.mean().backward()\n        model(y).mean().backward()")}),
    good("the discriminator is stepped first", {"train.py": _GAN % _TURNS}),
    good("it is frozen meanwhile", {"train.py": _GAN % _FROZEN}),
    good("a backward after each forward", {
        "train.py": _ACCELERATE % ("accelerator.backward(first)\n        ", "second")}),
    good("either of them", {"train.py": _TWO % (
        "if y.sum() > 0:\n            out.mean().backward()\n        else:\n            out.sum().backward()")}),
    good("the second is of other numbers", {"train.py": _TWO % (
        "out.mean().backward()\n        scale = torch.nn.Parameter(torch.ones(8))\n"
        "        (scale * out.detach()).mean().backward()")}),
)  # fmt: skip
