"""Two blocks of `accelerator.accumulate` are entered for one batch: each of them counts as a micro batch.

**What.** In one turn of the loop `with accelerator.accumulate(...)` is entered a second time: one block for the
generator and one for the discriminator, a block for the forward and another one for the backward, or two in one
`with`.

**Why it hurts.** An Accelerator counts the blocks that are entered, not the batches, and makes the step in each n-th
of them. Two optimizers that take turns then meet the same numbers again and again: with 2 or 4 micro batches a step
all steps fall into the second block, and the first model is never trained. With one optimizer the step comes after
half of the micro batches, with gradients that are divided by all of them. Nothing raises.

**Fix.** One block for the batch, which names all models: `with accelerator.accumulate(generator, discriminator):`.

**When it stays quiet.** One micro batch for a step; alternatives of one `if`; blocks of two Accelerators, which count
on their own; two blocks that both train with the same optimizer (micro batches made by hand); an odd number of micro
batches between two optimizers, where both get their turn; DeepSpeed. A number that is 1 unless somebody passes
another makes it an information.

**Evidence.** Two gloo ranks, accelerate 1.15, eight batches, four micro batches a step: with two blocks the first
optimizer steps never and the second one four times, with one block both step twice. `Accelerator._do_sync` in
accelerate/accelerator.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Finding, Severity
from dslint.python.events import Context, Event, Loop, events
from dslint.python.queries.order import Before, before
from dslint.python.values import Atom, Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.accumulating import severity_of, steps_of
from dslint.rules.training.plateaus import instances
from dslint.rules.training.training import MicroBatches

META = RuleMeta(
    code="DSL714",
    name="batch-counted-twice",
    kind="script",
    severity=Severity.WARNING,
    summary="two blocks of `accelerator.accumulate` for one batch: each counts as a micro batch of the step",
    markers=(r"accelerat", r"accumulate\("),
    versions=("accelerate",),
    references=(
        "https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation",
        "https://github.com/huggingface/accelerate/issues/1428",
    ),
    depends_on_run=True,
)
_APART, _TURNS = "a step comes after half of the micro batches", "with an even number only one optimizer ever steps"


@dataclass(frozen=True, slots=True)
class _Entered:
    """A call that makes a block, and the block."""

    found: Happening
    block: Context

    @property
    def trains(self) -> bool:
        """Return whether a backward is in the block."""
        return any(event.tags & {"backward", "engine-backward"} for event in events(self.block.body))

    @property
    def stepped(self) -> set[Atom | None]:
        """Return the optimizers that step in the block."""
        steps = (event for event in events(self.block.body) if "optimizer-step" in event.tags)
        return {event.receiver.single if event.receiver is not None else None for event in steps}

    @property
    def runs(self) -> bool:
        """Return whether a prepared model runs in the block."""
        return any("ddp-forward" in event.tags for event in events(self.block.body))


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each block that is certainly entered after another one in the same turn."""
    if run.stage is not None:
        return
    entered = _entered(run)
    seen: set[int] = set()
    for second in entered.values() if len(entered) > 1 else ():
        event = second.found.event
        loop = next((node for node in reversed(second.found.around) if isinstance(node, Loop)), None)
        if loop is None or id(event.node) in seen or event.may:
            continue
        others = {id(one.found.event) for one in entered.values() if _is_same_owner(one.found.event, event)}
        ways = _ways(loop, event, others)
        if not ways or not all(way.done for way in ways):
            continue
        first = entered[id(ways[0].done[-1])]
        why = _effect(first, second)
        steps = steps_of(run, event) if why else None
        if steps is not None and not (why == _TURNS and (steps.count or 0) % 2):
            seen.add(id(event.node))
            yield _finding(run, first.found.event, event, why, steps)


def _ways(loop: Loop, event: Event, others: set[int]) -> list[Before]:
    """Return for each way to an event within a turn which of the others has certainly happened before it."""
    return before(loop.body, event, lambda e: id(e) in others, lambda _: False)


def _entered(run: RunQuery) -> dict[int, _Entered]:
    """Return the blocks that are entered, by the call that makes them."""
    blocks: dict[Instance, Context] = {}
    for opened, _ in run.blocks():
        for atom in instances(opened.manager):
            blocks.setdefault(atom, opened)
    found: dict[int, _Entered] = {}
    for made in run.occurrences("accumulate"):
        block = next((blocks[atom] for atom in instances(made.event.result) if atom in blocks), None)
        if block is not None:
            found[id(made.event)] = _Entered(made, block)
    return found


def _is_same_owner(one: Event, other: Event) -> bool:
    """Return whether the same Accelerator makes both blocks."""
    mine = one.receiver.single if one.receiver is not None else None
    return one is not other and mine is not None and other.receiver is not None and other.receiver.single == mine


def _effect(first: _Entered, second: _Entered) -> str:
    """Return what two blocks of a turn do to the steps; nothing where each may be a micro batch of its own."""
    if any(node is first.block for node in second.found.around):
        return _APART
    if first.trains != second.trains:
        idle, training = (second, first) if first.trains else (first, second)
        return _APART if idle.runs and not idle.stepped and training.stepped else ""
    one, other = first.stepped, second.stepped
    if not first.trains or not one or not other or None in one | other:
        return ""
    return "" if one & other else _TURNS


def _finding(run: RunQuery, first: Event, second: Event, why: str, steps: MicroBatches) -> Finding:
    known = steps.known
    if why == _TURNS and known is not None and known > 1 and known % 2 == 0:
        why = "the optimizer of the first never steps"
    return run.finding(
        META,
        second.module,
        second.node,
        f"a second block of `accumulate` for one batch counts as another micro batch: {why}",
        hint="Put the work on a batch into one block that names all models: `accumulate(generator, discriminator)`",
        related=(run.location(first.module, first.node, "the first block of the same turn"), *steps.places),
        severity=severity_of(steps),
        facts={"gas": known},
    )


_GAN = """\
import torch
from accelerate import Accelerator


def train(config, loader):
    accelerator = Accelerator(gradient_accumulation_steps=%s)
    maker, critic = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    first = torch.optim.Adam(maker.parameters())
    second = torch.optim.Adam(critic.parameters())
    maker, critic, first, second, loader = accelerator.prepare(maker, critic, first, second, loader)
    for turn, x in enumerate(loader):
%s
"""
_TWO = """\
        with accelerator.accumulate(maker):
            accelerator.backward(-maker(x).mean())
            first.step()
            first.zero_grad()
        with accelerator.accumulate(critic):
            accelerator.backward(critic(x).mean())
            second.step()
            second.zero_grad()"""
_LATE = _TWO.replace("        with accelerator.accumulate(critic)", "        if turn < 100:\n            continue\n"
                     "        with accelerator.accumulate(critic)")  # fmt: skip
_ONE = _TWO.replace("(maker):", "(maker, critic):", 1).replace("        with accelerator.accumulate(critic):\n", "")
_BY_TURNS = """\
        if turn % 2:
            with accelerator.accumulate(maker):
                accelerator.backward(-maker(x).mean())
                first.step()
                first.zero_grad()
            continue
        with accelerator.accumulate(critic):
            accelerator.backward(critic(x).mean())
            second.step()
            second.zero_grad()"""
_NESTED = """\
        with accelerator.accumulate(maker), accelerator.accumulate(critic):
            accelerator.backward(critic(maker(x)).mean())
            first.step()
            second.step()
            first.zero_grad()
            second.zero_grad()"""
_BY_HAND = """\
        with accelerator.accumulate(critic):
            accelerator.backward(critic(x[:2]).mean())
            second.step()
            second.zero_grad()
        with accelerator.accumulate(critic):
            accelerator.backward(critic(x[2:]).mean())
            second.step()
            second.zero_grad()"""
_APART_CODE = """\
        if config.kind == "plain":
            with accelerator.accumulate(critic):
                loss = critic(x).mean()
        elif config.kind == "square":
            with accelerator.accumulate(critic):
                loss = critic(x).square().mean()
        else:
            raise NotImplementedError
        with accelerator.accumulate(critic):
            accelerator.backward(loss)
            second.step()
            second.zero_grad()"""
_HELPER = """\
from accelerate import Accelerator
from nets import Critic, Maker, adam


class Gan:
    def __init__(self, args, loader):
        self.accelerator = Accelerator(gradient_accumulation_steps=args.steps)
        maker, critic = Maker(), Critic()
        self.maker, self.critic, self.first, self.second, self.loader = self.accelerator.prepare(
            maker, critic, adam(maker), adam(critic), loader
        )

    def update(self, model, optimizer, loss):
        with self.accelerator.accumulate(model):
            self.accelerator.backward(loss(model))
            optimizer.step()
            optimizer.zero_grad()

    def fit(self):
        for x in self.loader:
            self.update(self.maker, self.first, lambda m: -m(x).mean())
            self.update(self.critic, self.second, lambda m: m(x).mean())
"""
_NETS = """\
import torch


class Maker(torch.nn.Module):
    def forward(self, x):
        return x


class Critic(torch.nn.Module):
    def forward(self, x):
        return x


def adam(model):
    return torch.optim.Adam(model.parameters())
"""

EXAMPLES = (
    bad("generator and discriminator", {"train.py": _GAN % ("4", _TWO)}, "train.py:16 warning"),
    bad("the discriminator comes in later", {"train.py": _GAN % ("config.steps", _LATE)}, "train.py:18 warning"),
    bad("two in one `with`", {"train.py": _GAN % ("2", _NESTED)}, "train.py:12 warning"),
    bad("the forward has a block of its own", {"train.py": _GAN % ("config.steps", _APART_CODE)}, "train.py:20"),
    bad("a method for both", {"train.py": _HELPER, "nets.py": _NETS}, "train.py:14 warning"),
    good("one block for both", {"train.py": _GAN % ("4", _ONE)}),
    good("one micro batch for a step", {"train.py": _GAN % ("1", _TWO)}),
    good("three: both optimizers get their turn", {"train.py": _GAN % ("3", _TWO)}),
    good("two sides of a test", {"train.py": _GAN % ("3", _BY_TURNS)}),
    good("micro batches made by hand", {"train.py": _GAN % ("4", _BY_HAND)}),
)  # fmt: skip
