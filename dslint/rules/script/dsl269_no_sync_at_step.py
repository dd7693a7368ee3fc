"""`no_sync` is entered on the micro batch on which the optimizer steps.

**What.** A loop that accumulates gradients leaves `no_sync` on another micro batch than the one on which
`optimizer.step()` runs: `no_sync` where `step % n != 0`, and the step where `(step + 1) % n == 0`.

**Why it hurts.** DDP and FSDP exchange gradients in the backward outside of `no_sync`. Here that is the first micro
batch of a group; what the others add stays on its rank, and each rank steps with gradients of its own. The weights of
the ranks part from the first step on, and nothing raises.

**Fix.** Enter `no_sync` on all micro batches but the one that steps: `(step + 1) % n != 0`.

**When it stays quiet.** Tests that agree; tests that cannot be worked out for an index of the loop from zero on, or
that divide by different numbers; arms that exclude each other; a `with` that holds no forward, which is what decides;
a file that exchanges the gradients itself; DeepSpeed engines (DSL246); one process.

**Evidence.** Two gloo ranks, torch 2.13, four micro batches a step: with `no_sync` on all but the first the weights of
the ranks differ after the first step; on all but the last they are equal.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Location
from dslint.python.events import Call, Loop, Node
from dslint.python.places import ordered
from dslint.python.queries.turns import Test
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.wrapping import unsynced

META = RuleMeta(
    code="DSL269",
    name="no-sync-at-step",
    kind="script",
    severity=Severity.WARNING,
    summary="`no_sync` on the micro batch on which the optimizer steps: each rank steps with its own gradients",
    fix="safe",
    markers=(r"\.no_sync\b", r"%", r"step\("),
    references=("https://github.com/modelscope/FunASR/pull/3472",),
    depends_on_run=True,
)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire once for each `no_sync` that is entered in a turn in which an optimizer steps."""
    if run.context.is_one_process:
        return
    steps = list(run.occurrences("optimizer-step", "named-step"))
    seen: set[int] = set()
    for block in unsynced.blocks(run) if steps else ():
        asked = _asked(block)
        if asked is None or id(asked.node) in seen or unsynced.exchanges(run, block.loop):
            continue
        mine = (step for step in steps if any(node is block.loop for node in step.around))
        finding = next((f for f in (_judged(run, block, step, asked) for step in mine) if f is not None), None)
        if finding is not None:
            seen.add(id(asked.node))
            yield finding


def _asked(block: unsynced.Block) -> Test | None:
    """Return the test that asks for the number of the turn."""
    tests = (inner for test in block.waits for inner in (test.leaves or (test,)))
    return next((test for test in tests if block.turns.divisor([test]) is not None), None)


def _judged(run: RunQuery, block: unsynced.Block, step: Happening, asked: Test) -> Finding | None:
    """Compare the turns in which gradients stay on their rank with those of a step."""
    turns, waits = block.turns, block.waits
    runs = turns.tests(step.around, step.event)
    divisor = turns.divisor([*waits, *runs])
    sizes = turns.sizes(divisor) if runs else ()
    found = [turns.both(waits, runs, divisor, size) for size in sizes]
    if not sizes or not all(found):
        return None
    size, is_known = sizes[-1], len(sizes) == 1
    calls = [n for n in step.around[_place(step.around, block.loop) :] if isinstance(n, Call)]
    module, node = (calls[0].module, calls[0].node) if calls else (step.event.module, step.event.node)
    return run.finding(
        META,
        asked.module,
        asked.node,
        f"`no_sync` covers the micro batch of the step (turn {found[-1][0]} of"
        f" {size if is_known else f'{_divisor_text(run, asked)} {size}'}): the ranks step with different gradients",
        hint="Enter `no_sync` on all micro batches but the one on which the optimizer steps",
        related=(
            _entered(run, block),
            run.location(module, node, "the step"),
            *((run.location(step.event.module, step.event.node, "in here"),) if calls else ()),
        ),
        severity=Severity.ERROR if is_known else Severity.WARNING,
        fix=_fix(run, block, asked, runs, divisor),
        facts={"gas": size},
    )


def _place(around: Sequence[Node], loop: Loop) -> int:
    return next(number for number, node in enumerate(around) if node is loop)


def _entered(run: RunQuery, block: unsynced.Block) -> Location:
    """Return where `no_sync` is asked for; else the block."""
    made = [atom.node for atom in ordered(block.context.manager.atoms) if isinstance(atom, Instance)]
    text = block.context.module.text
    node = next((n for n in made if isinstance(n, ast.Call) and "no_" in text(n.func)), block.context.node)
    return run.location(block.context.module, node, "entered here")


def _divisor_text(run: RunQuery, asked: Test) -> str:
    rests = [n for n in ast.walk(asked.node) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)]
    return f"`{run.text(asked.module, rests[0].right)}` =" if rests else "a group of"


def _fix(run: RunQuery, block: unsynced.Block, asked: Test, runs: list[Test], divisor: object) -> Fix | None:
    """The index plus one, where that makes the two agree."""
    turns, waits = block.turns, block.waits
    index = _index_of(asked, block.loop)
    if index is None or asked.module.path != run.path or len([w for w in waits if turns.divisor([w]) is not None]) > 1:
        return None
    for size in turns.sizes(divisor):
        stepping = turns.both(runs, runs, divisor, size)
        moved = sorted((turn - 1) % size for turn in turns.both(waits, waits, divisor, size))
        if len(stepping) != 1 or moved != [turn for turn in range(size) if turn not in stepping]:
            return None
    edit = Edit(run.path, asked.module.span(index), f"({index.id} + 1)")
    return Fix("Enter `no_sync` on all micro batches but the last of a group", (edit,))


def _index_of(asked: Test, loop: Loop) -> ast.Name | None:
    """Return the plain index that is divided, in `index % n != 0`."""
    rests = [n for n in ast.walk(asked.node) if isinstance(n, ast.BinOp)]
    left = rests[0].left if len(rests) == 1 and isinstance(rests[0].op, ast.Mod) else None
    target = loop.node.target if isinstance(loop.node, ast.For) else None
    names = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)} if target is not None else set()
    return left if isinstance(left, ast.Name) and left.id in names else None


_HEAD = """\
from contextlib import nullcontext

from torch.nn.parallel import DistributedDataParallel


"""
_TRAIN = (
    _HEAD
    + """\
def train(args, net, optimizer, loader):
    model = DistributedDataParallel(net)
    for step, batch in enumerate(loader):
        context = model.no_sync if args.ddp and %s else nullcontext
        with context():
            loss = model(batch).mean()
            loss.backward()
        if %s:
            optimizer.step()
            optimizer.zero_grad()
"""
)
_STEPS = "(step + 1) % args.accumulation == 0"
_TRAINER = (
    _HEAD
    + """\
class Trainer:
    def __init__(self, model, optim, accum_grad):
        self.model, self.optim, self.accum_grad = DistributedDataParallel(model), optim, accum_grad

    def train(self, loader, use_ddp=True):
        accum_grad = self.accum_grad
        for index, batch in enumerate(loader):
            context = nullcontext
            if use_ddp and %s:
                context = self.model.no_sync
            with context():
                self.forward(batch)
            if (index + 1) %% self.accum_grad == 0:
                self.update()

    def forward(self, batch):
        self.model(batch).mean().backward()

    def update(self):
        self.optim.step()
        self.optim.zero_grad()
"""
)
_ARMS = (
    _HEAD
    + """\
def train(net, optimizer, scaler, loader):
    model = DistributedDataParallel(net)
    for i in range(len(loader)):
        if %s:
            with model.no_sync():
                scaler.scale(model(loader[i]).mean()).backward()
        else:
            scaler.scale(model(loader[i]).mean()).backward()
        if i %% 4 != 3:
            continue
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
)
_FAR = (
    _HEAD
    + """\
import torch
import torch.distributed as dist


def is_last(step, count):
    return (step + 1) % count == 0


def train(net, loader, args):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for step, batch in enumerate(loader):
        with %s if is_last(step, args.count) else %s:
            model(batch).mean().backward()
        if is_last(step, args.count):
            optimizer.step()
"""
)
_FABRIC = """\
import torch
from lightning.fabric import Fabric


def main(net, loader):
    fabric = Fabric(devices=4, strategy="ddp")
    fabric.launch()
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for i, batch in enumerate(fabric.setup_dataloaders(loader)):
        is_accumulating = %s %% 8 != 0
        with fabric.no_backward_sync(model, enabled=is_accumulating):
            fabric.backward(model(batch).mean())
        if (i + 1) %% 8 == 0:
            optimizer.step()
            optimizer.zero_grad()
"""

EXAMPLES = (
    bad(
        "left on the first micro batch",
        {"train.py": _TRAIN % ("step % args.accumulation != 0", _STEPS)},
        "train.py:9 warning",
        fixed={"train.py": _TRAIN % ("(step + 1) % args.accumulation != 0", _STEPS)},
    ),
    bad(
        "methods, and another name of the number",
        {"train.py": _TRAINER % "index % accum_grad != 0"},
        "train.py:14 warning",
        fixed={"train.py": _TRAINER % "(index + 1) % accum_grad != 0"},
    ),
    bad(
        "two arms, and an early exit",
        {"train.py": _ARMS % "i % 4"},
        "train.py:9 error",
    ),
    bad("entered where it should be left", {"train.py": _ARMS % "(i + 1) % 4 == 0"}, "train.py:9 error"),
    bad(
        "the step comes on the first micro batch",
        {"train.py": _TRAIN % ("(step + 1) % 8 != 0", "step % 8 == 0")},
        "train.py:9 error",
    ),
    bad(
        "a function says which micro batch is the last",
        {"train.py": _FAR.replace("%s", "model.no_sync()", 1).replace("%s", "nullcontext()")},
        "train.py:19 warning",
    ),
    good(
        "a function says which micro batch is the last, and all others wait",
        {"train.py": _FAR.replace("%s", "nullcontext()", 1).replace("%s", "model.no_sync()")},
    ),
    bad("Fabric, where an argument decides", {"train.py": _FABRIC % "i"}, "train.py:11 error"),
    good("Fabric, where an argument decides for the last", {"train.py": _FABRIC % "(i + 1)"}),
    good(
        "left where the optimizer steps",
        {
            "train.py": _TRAIN % ("(step + 1) % args.accumulation != 0", _STEPS),
            "trainer.py": _TRAINER % "(index + 1) % accum_grad != 0",
            "arms.py": _ARMS % "(i + 1) % 4 != 0",
            "smaller.py": _ARMS % "i % 4 < 3",
        },
    ),
    good(
        "left where the optimizer steps, and on the last batch",
        {
            "train.py": _TRAIN
            % (
                "(step + 1) % args.accumulation != 0 and step + 1 != len(loader)",
                f"{_STEPS} or step + 1 == len(loader)",
            )
        },
    ),
    good("exchanged on every micro batch that may step", {"train.py": _TRAIN % ("step % 4 not in (0, 3)", _STEPS)}),
    good("another number", {"train.py": _TRAIN % ("step % args.exchange != 0", _STEPS)}),
    good(
        "arms that exclude each other",
        {
            "train.py": _HEAD
            + """\
def train(args, model, optimizer, loader):
    for step, batch in enumerate(loader):
        if args.local:
            if step % 4 != 0:
                with model.no_sync():
                    model(batch).mean().backward()
        else:
            model(batch).mean().backward()
            if (step + 1) % 4 == 0:
                optimizer.step()
"""
        },
    ),
    good(
        "the script exchanges the gradients itself",
        {
            "train.py": _TRAIN.replace("            optimizer.step()", "            for p in net.parameters():\n"
            "                dist.all_reduce(p.grad)\n            optimizer.step()")
            .replace("from torch.nn", "import torch.distributed as dist\nfrom torch.nn", 1)
            % ("step % 4 != 0", "(step + 1) % 4 == 0")
        },
    ),
    good(
        "the forward runs outside",
        {
            "train.py": _HEAD + "def train(model, optimizer, loader):\n    for step, batch in enumerate(loader):\n"
            "        loss = model(batch).mean()\n"
            "        with model.no_sync() if step % 4 != 0 else nullcontext():\n            loss.backward()\n"
            "        if (step + 1) % 4 == 0:\n            optimizer.step()\n"
        },
    ),
    good(
        "a flag that a test sets",
        {
            "train.py": (
                _TRAIN % ("(step + 1) % 4 != 0", "is_last")
            ).replace(
                "        if is_last",
                "        is_last = False\n        if (step + 1) % 4 == 0 or step + 1 == len(loader):\n"
                "            is_last = True\n        if is_last",
            )
        },
    ),
    good("one process", {"train.py": _TRAIN % ("step % 4 != 0", "(step + 1) % 4 == 0")}, world_size=1),
)  # fmt: skip
