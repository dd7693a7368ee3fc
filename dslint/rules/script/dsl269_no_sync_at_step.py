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
import re
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix
from dslint.model.script.dotted import last_name
from dslint.model.script.objects.conditions import Condition
from dslint.model.script.quick import flat
from dslint.model.script.training.turns import Turns
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

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
            % ("(step + 1) % args.accumulation != 0", f"{_STEPS} or step + 1 == len(loader)")
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

_OPTIMIZER = re.compile(r"optim|^opt$|_opt$", re.I)
_ENGINES = frozenset({"engine", "engine_module"})
_NO_FORWARD = frozenset(
    {"backward", "scale", "scale_loss", "item", "detach", "mean", "sum", "zero_grad", "step", "update"}
)
# A script that touches gradients and reduces something may exchange the gradients itself.
_GRADIENT = re.compile(r"\.grad\b")
_REDUCES = re.compile(r"all_?reduce|average_parameters|reduce_gradients")


def precheck(tree: ast.Module) -> bool:
    """Some loop holds `no_sync` and a remainder."""
    nodes = flat(tree)
    for loop in nodes.nodes(ast.For):
        inside = nodes.inside(loop)
        if any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in inside) and any(
            isinstance(n, ast.Attribute) and n.attr == "no_sync" for n in inside
        ):
            return True
    return False


class Check(ScriptCheck):
    """Compares the turns of a loop in which `no_sync` is entered with those in which an optimizer steps."""

    def finish(self) -> None:
        """Fire once for each `no_sync`."""
        text = self.ctx.doc.source.text
        if self.ctx.run.is_one_process or (_GRADIENT.search(text) and _REDUCES.search(text)):
            return
        for node in self.ctx.tree.every(cst.Attribute):
            loops = self.ctx.loops(node) if node.attr.value == "no_sync" else ()
            if loops and isinstance(loops[0], cst.For) and self.ctx.kind(node.value) not in _ENGINES:
                self._judge(node, loops[0])

    def _judge(self, node: cst.Attribute, loop: cst.For) -> None:
        turns = Turns(self.ctx.tree, self.ctx.names, self.ctx.constants, loop)
        waits = self._conditions(node, loop)
        if not waits or not turns.is_counted or not self._holds_forward(node, loop):
            return
        for site, step in self._steps(loop):
            runs = self._conditions(site, loop)
            divisor = turns.divisor([*waits, *runs])
            alone = turns.divisor(waits)
            if divisor is None or alone is None or not runs or self.ctx.excludes(node, site):
                continue
            sizes = turns.sizes(divisor)
            found = [turns.both(waits, runs, divisor, size) for size in sizes]
            if sizes and all(found):
                self._report(node, site, step, (turns, waits, runs), divisor)
                return

    def _conditions(self, node: cst.CSTNode, loop: cst.For) -> list[Condition]:
        """The tests of the body of the loop that decide whether a node runs in a turn."""
        found = self.ctx.objects.conditions.of(node)
        return [c for c in found if self.ctx.tree.contains(loop.body, c.test)]

    def _holds_forward(self, node: cst.Attribute, loop: cst.For) -> bool:
        """The block that is entered runs a forward: there DDP decides whether the backward will exchange."""
        for block in (n for n in self.ctx.descendants(loop.body) if isinstance(n, cst.With)):
            if any(self.ctx.tree.contains(i.item, node) or self._is_of(i.item, node) for i in block.items):
                calls = (n for n in self.ctx.descendants(block.body) if isinstance(n, cst.Call))
                return any(self.ctx.called(c) not in _NO_FORWARD for c in calls)
        return False

    def _is_of(self, entered: cst.BaseExpression, node: cst.Attribute) -> bool:
        """`with context():` of a variable that was given the `no_sync`."""
        name = entered.func if isinstance(entered, cst.Call) and not entered.args else entered
        if not isinstance(name, cst.Name):
            return False
        found = self.ctx.objects.reached(name)
        return any(b.value is not None and self.ctx.tree.contains(b.value, node) for b in found)

    def _steps(self, loop: cst.For) -> Iterator[tuple[cst.Call, cst.Call]]:
        """The calls of the loop that step an optimizer, themselves or in a function of the file, and that step."""
        for call in (n for n in self.ctx.descendants(loop.body) if isinstance(n, cst.Call)):
            if self.ctx.loops(call)[:1] != (loop,):
                continue
            if self._is_step(call):
                yield call, call
                continue
            function = self.ctx.names.local_function(call)
            inside = self.ctx.tree.own_nodes(function) if function is not None else ()
            step = next((n for n in inside if isinstance(n, cst.Call) and self._is_step(n)), None)
            if step is not None and not any("%" in c.text for c in self.ctx.objects.conditions.of(step)):
                yield call, step

    def _is_step(self, call: cst.Call) -> bool:
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "step":
            return False
        owner = call.func.value
        if "scaler" in last_name(owner).lower():
            owner = call.args[0].value if call.args else owner
        return self.ctx.kind(owner).endswith("optimizer") or _OPTIMIZER.search(last_name(owner)) is not None

    def _report(
        self,
        node: cst.Attribute,
        site: cst.Call,
        step: cst.Call,
        tests: tuple[Turns, list[Condition], list[Condition]],
        divisor: cst.BaseExpression,
    ) -> None:
        turns, waits, runs = tests
        sizes = turns.sizes(divisor)
        size = sizes[-1]
        turn = turns.both(waits, runs, divisor, size)[0]
        is_known = len(sizes) == 1
        given = f"{size}" if is_known else f"`{self.ctx.text(divisor)}` {size}"
        asked = next(c.test for c in waits if turns.divisor([c]) is not None)
        self.report(
            asked,
            f"with {given} the step runs in turn {turn} of each group, and so does `no_sync`: the gradients of that"
            " micro batch stay on their rank, each rank steps with its own, and the weights of the ranks part",
            hint="Enter `no_sync` on all micro batches but the one on which the optimizer steps",
            related=(
                self.ctx.location(node, "entered here"),
                self.ctx.location(site, "the step"),
                *((self.ctx.location(step, "in here"),) if step is not site else ()),
            ),
            severity=Severity.ERROR if is_known else Severity.WARNING,
            fix=self._fix(asked, tests, divisor),
            facts={"gas": size},
        )

    def _fix(
        self,
        asked: cst.BaseExpression,
        tests: tuple[Turns, list[Condition], list[Condition]],
        divisor: cst.BaseExpression,
    ) -> Fix | None:
        """The index plus one, where that makes the two agree."""
        turns, waits, runs = tests
        index = self._index_of(asked, turns)
        if index is None or len([c for c in waits if turns.divisor([c]) is not None]) > 1:
            return None
        for size in turns.sizes(divisor):
            stepping = turns.both(runs, runs, divisor, size)
            moved = sorted((t - 1) % size for t in turns.both(waits, waits, divisor, size))
            if len(stepping) != 1 or moved != [t for t in range(size) if t not in stepping]:
                return None
        edit = Edit(self.ctx.doc.path, self.ctx.span(index), f"({turns.index} + 1)")
        return Fix("Enter `no_sync` on all micro batches but the last of a group", (edit,))

    def _index_of(self, asked: cst.BaseExpression, turns: Turns) -> cst.Name | None:
        """The plain index that is divided, in `index % n != 0`."""
        rests = [n for n in self.ctx.descendants(asked) if isinstance(n, cst.BinaryOperation)]
        rest = rests[0] if len(rests) == 1 and isinstance(rests[0].operator, cst.Modulo) else None
        left = rest.left if rest is not None else None
        return left if isinstance(left, cst.Name) and left.value == turns.index else None
