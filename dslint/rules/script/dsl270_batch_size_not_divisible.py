"""**What.** A batch (or list of prompts) that the script divides among the ranks has a known size that is no multiple
of the known number of ranks.

**Why it hurts.** Some ranks get one item more than others. Under ZeRO-3 every forward pass gathers the parameters from
all ranks: when the ranks with fewer items are done, the others wait in an all-gather that never completes, until the
process-group timeout. `batch_size // world_size` drops the remainder instead, and gives 0 when the batch is smaller
than the job.

**Fix.** Choose a multiple of the world size, or pad the last batch so that every rank runs equally often.

**When it stays quiet.** The world size is not known (from the launch command or `--world-size`), the size is not a
known number, the script pads or checks the remainder (`% world_size`), or each rank holds the whole model: only
evidence of ZeRO-3 makes it a warning, without it the finding is a note.

**Evidence.** Two gloo ranks, ZeRO-3 forward over `range(rank, 5, 2)`: `Timed out waiting 8000ms for recv operation to
complete` at the tail; padded to 6 items both ranks finish. Issue https://github.com/OpenBMB/MiniCPM-V/issues/769 (5 of
8 ranks finish).
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from dslint.core.fact import Fact
from dslint.core.finding import Severity
from dslint.model.context import Context
from dslint.model.script.data.workload import is_inference
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import call_name, expression_name, flat
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL270",
    name="batch-size-not-divisible",
    kind="script",
    severity=Severity.WARNING,
    summary="A batch that is divided among the ranks is no multiple of the world size",
    markers=(r"world_size|num_processes|WORLD_SIZE|split_between_processes", r"torch\.distributed|deepspeed|accelerat"),
    references=(
        "https://github.com/OpenBMB/MiniCPM-V/issues/769",
        "https://github.com/OpenRLHF/OpenRLHF/issues/427",
    ),
    depends_on_run=True,
)

_ZERO3 = "config = {'train_micro_batch_size_per_gpu': 1, 'zero_optimization': {'stage': 3}}\n"

EXAMPLES = (
    bad(
        "6 prompts on 4 ranks under ZeRO-3",
        {
            "infer.py": (
                "import deepspeed\nimport torch.distributed as dist\n\n" + _ZERO3 + "BATCH_SIZE = 6\n\n\n"
                "def main(model, prompts):\n"
                "    engine = deepspeed.initialize(model=model, config=config)[0]\n"
                "    world_size = dist.get_world_size()\n"
                "    per_rank = BATCH_SIZE // world_size\n"
                "    return engine.module.generate(prompts[:per_rank], synced_gpus=True)\n"
            )
        },
        at="infer.py:11 warning",
        world_size=4,
    ),
    bad(
        "every rank holds the whole model: a note",
        {
            "infer.py": (
                "import torch.distributed as dist\n\nPROMPTS = ['a', 'b', 'c']\n"
                "mine = PROMPTS[dist.get_rank() :: dist.get_world_size()]\n"
            )
        },
        at="infer.py:4 info",
        world_size=2,
    ),
    bad(
        "5 prompts that accelerate splits under ZeRO-3",
        {
            "infer.py": (
                "import deepspeed\nfrom accelerate import Accelerator\n\n" + _ZERO3 + "accelerator = Accelerator()\n"
                "prompts = ['a', 'b', 'c', 'd', 'e']\n\n\n"
                "def main(model):\n    engine = deepspeed.initialize(model=model, config=config)[0]\n"
                "    with accelerator.split_between_processes(prompts) as mine:\n"
                "        return engine.module.generate(mine, synced_gpus=True)\n"
            )
        },
        at="infer.py:11 warning",
        world_size=2,
    ),
    good(
        "accelerate pads the last part",
        {
            "infer.py": (
                "from accelerate import Accelerator\n\naccelerator = Accelerator()\nprompts = ['a', 'b', 'c']\n"
                "with accelerator.split_between_processes(prompts, apply_padding=True) as mine:\n    print(mine)\n"
            )
        },
        world_size=2,
    ),
    good(
        "a multiple of the world size",
        {
            "infer.py": (
                "import torch.distributed as dist\n\nbatch_size = 8\nper_rank = batch_size // dist.get_world_size()\n"
            )
        },
        world_size=4,
    ),
    good(
        "the remainder is checked",
        {
            "infer.py": (
                "import torch.distributed as dist\n\nbatch_size = 6\nworld_size = dist.get_world_size()\n"
                "assert batch_size % world_size == 0\nper_rank = batch_size // world_size\n"
            )
        },
        world_size=4,
    ),
    good(
        "the world size is not known",
        {
            "infer.py": (
                "import torch.distributed as dist\n\nbatch_size = 6\nper_rank = batch_size // dist.get_world_size()\n"
            )
        },
    ),
)

_WORLD_NAME = re.compile(r"(^|_)(world_size|num_processes)$")
_CUTS = ("range", "islice", "split_between_processes", "array_split", "chunk", "tensor_split")
# Calls that make a tensor whose first argument is the first dimension.
_SHAPED = frozenset({"torch.randn", "torch.rand", "torch.zeros", "torch.ones", "torch.empty"})


def applies(_: str, context: Context) -> bool:
    """Without a known world size nothing can be said, whatever the script holds."""
    return context.world_size.is_known


def precheck(tree: ast.Module) -> bool:
    """Something is divided or sliced by the world size, or cut into one part a rank."""
    nodes = flat(tree)
    if any(call_name(call) in _CUTS for call in nodes.nodes(ast.Call)):
        return True
    divisors = [n.right for n in nodes.nodes(ast.BinOp) if isinstance(n.op, ast.FloorDiv | ast.Div)]
    divisors += [n.step for n in nodes.nodes(ast.Slice) if n.step is not None]
    names = {expression_name(divisor) for divisor in divisors} - {""}
    if any(name == "get_world_size" or _WORLD_NAME.search(name.lower()) for name in names):
        return True
    return any(
        expression_name(target) in names and _asks_size(node.value)
        for node in nodes.nodes(ast.Assign)
        for target in node.targets
    )


def _asks_size(value: ast.expr) -> bool:
    return any(
        expression_name(n) in ("get_world_size", "num_processes")
        or (isinstance(n, ast.Constant) and n.value == "WORLD_SIZE")
        for n in ast.walk(value)
        if isinstance(n, ast.Call | ast.Attribute | ast.Constant)
    )


class Check(ScriptCheck):
    """Looks at `size // world_size`, `size / world_size`, `items[rank::world_size]` and the other ways to cut."""

    def start(self) -> None:
        """Find out whether the script takes care of remainders itself."""
        self.handled = not self.ctx.run.world_size.is_known or any(
            isinstance(n, cst.BinaryOperation) and isinstance(n.operator, cst.Modulo) and self._is_world(n.right)
            for n in self.ctx.tree.order
        )

    def visit_BinaryOperation(self, node: cst.BinaryOperation) -> None:
        """`batch_size // world_size`."""
        if (
            self.handled
            or not isinstance(node.operator, cst.FloorDivide | cst.Divide)
            or not self._is_world(node.right)
        ):
            return
        name = last_name(node.left).lower()
        if "batch" in name or "prompt" in name or isinstance(node.left, cst.Call | cst.Subscript):
            self._judge(node, node.left, self._size(node.left))

    def visit_Subscript(self, node: cst.Subscript) -> None:
        """`items[rank::world_size]` and `np.array_split(items, world_size)[rank]`."""
        if not self.handled:
            inner = node.slice[0].slice if len(node.slice) == 1 else None
            if isinstance(inner, cst.Slice) and inner.step is not None and self._is_world(inner.step):
                self._judge(node, node.value, self._length(node.value))
            elif isinstance(inner, cst.Index) and isinstance(node.value, cst.Call):
                self._cut(node)

    def visit_Call(self, node: cst.Call) -> None:
        """`range(rank, 6, world_size)` and `accelerator.split_between_processes(prompts)`."""
        if not self.handled and self.ctx.called(node) in ("range", "islice", "split_between_processes"):
            self._cut(node)

    def _cut(self, node: cst.Call | cst.Subscript) -> None:
        partition = self.ctx.uneven_loops.partition(node)
        if partition is None or partition.node is not node:
            return
        call = node.value if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Call) else node
        args = call.args if isinstance(call, cst.Call) else ()
        whole = args[1 if last_name(getattr(call, "func", None)) == "range" else 0].value
        if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and self._is_world(whole):
            whole = call.func.value
        total = partition.total.get_or(-1)
        self._judge(node, whole, total if total > 0 else self._length(whole))

    def _judge(self, node: cst.CSTNode, value: cst.BaseExpression, size: int | None) -> None:
        world = self.ctx.run.world_size
        if size is None or not world.is_known or world.get() < 2 or size % world.get() == 0:
            return
        if any(found.partition.node is node for found in self.ctx.uneven_loops.all()):
            return  # the loop over it is the mistake, and has a finding of its own
        shares = f"{size} = {size // world.get()} x {world.get()} + {size % world.get()}"
        where = f" ({', '.join(str(o) for o in world.origins)})" if world.origins else ""
        sharded = self.ctx.zero3_evidence
        certain = sharded.get_or(False) and is_inference(self.ctx.tree, self.ctx.names)
        text = self.ctx.text(value)
        what = (
            f"`{text}` is {size}"
            if isinstance(node, cst.BinaryOperation) or text.isdecimal()
            else f"`{text}` has {size} items"
        )
        floor = isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.FloorDivide)
        loss = _loss(size % world.get() if floor else 0, certain)
        self.report(
            node,
            f"{what}, no multiple of the {world.get()} ranks{where}: {shares}, {loss}",
            severity=Severity.WARNING if certain else Severity.INFO,
            related=(*world.origins, *(sharded.origins if certain else ())),
            hint=f"Use {-(-size // world.get()) * world.get()}, or pad so that every rank runs equally often",
            facts={
                "size": size,
                "world": world.get(),
                "form": "floor" if floor else "deal",
                "stage": self.ctx.stage,
            },
        )

    def _size(self, node: cst.BaseExpression) -> int | None:
        if isinstance(node, cst.Call):
            name = self.ctx.qualified_name(node.func)
            if name == "len" and len(node.args) == 1:
                return self._length(node.args[0].value)
            if isinstance(node.func, cst.Attribute) and node.func.attr.value == "size" and len(node.args) == 1:
                return (
                    self._length(node.func.value) if self.ctx.constant(node.args[0].value).get_or(None) == 0 else None
                )
        if (
            isinstance(node, cst.Subscript)
            and last_name(node.value) == "shape"
            and isinstance(node.value, cst.Attribute)
        ):
            index = node.slice[0].slice if len(node.slice) == 1 else None
            first = isinstance(index, cst.Index) and self.ctx.constant(index.value).get_or(None) == 0
            return self._length(node.value.value) if first else None
        return _positive(self.ctx.constant(node))

    def _length(self, node: cst.BaseExpression) -> int | None:
        """The number of items of a list, or the first dimension of a tensor."""
        value = node if isinstance(node, cst.List | cst.Tuple | cst.Call) else self.ctx.names.single_value(node)
        if isinstance(value, cst.Call):
            shaped = self.ctx.qualified_name(value.func) in _SHAPED and len(value.args) > 0
            return _positive(self.ctx.constant(value.args[0].value)) if shaped else None
        if isinstance(value, cst.List | cst.Tuple):
            return None if any(isinstance(e, cst.StarredElement) for e in value.elements) else len(value.elements)
        known = self.ctx.constant(value).get_or(None) if value is not None else None
        return len(known) if isinstance(known, list | tuple) else None

    def _is_world(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Call):
            return self.ctx.called(node) == "get_world_size" and not node.args
        if _WORLD_NAME.search(last_name(node).lower()):
            return True
        # ``n = dist.get_world_size()``; ``n_gpu`` alone counts the devices of one node.
        return "gpu" not in last_name(node).lower() and self.ctx.guards.rank_values.is_world_size(node)


def _loss(left_out: int, sharded: bool) -> str:
    """What comes of it: ``left_out`` items after a floor division, 0 when the items are dealt out one by one."""
    if left_out:
        what = f"so `//` leaves {left_out} of them to no rank"
        return what + (", or to some ranks only, which then wait for ever in a ZeRO-3 gather" if sharded else "")
    return "so ranks run unequally often" + (" and ZeRO-3 waits for ever in the last gather" if sharded else "")


def _positive(fact: Fact[object]) -> int | None:
    value = fact.get_or(None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
