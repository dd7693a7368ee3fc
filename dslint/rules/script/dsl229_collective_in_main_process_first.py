"""**What.** A collective inside `with main_process_first():` (of accelerate, transformers, or a helper such as
`torch_distributed_zero_first`).

**Why it hurts.** The block is a pair of barriers: the other ranks wait at the first one until rank 0 has run the
body. A collective in the body of rank 0 meets that barrier instead of the same call of the other ranks, and the job
hangs. The same does a model that is loaded there under ZeRO stage 3: `from_pretrained` then broadcasts each layer.

**Fix.** Keep in the block what rank 0 shall do first (download, tokenize, write a cache), and move the collective, or
the loading of the model, behind it.

**When it stays quiet.** A barrier in the block pairs up with those of the block and does no harm; a collective behind a
rank test is DSL201; a test of something unknown stands before the collective; the stage is not known to be 3.

**Evidence.** Two gloo ranks, accelerate 1.15: `gather`, `all_reduce`, `broadcast` and `deepspeed.zero.Init` in the
block hang (rank 0 in the collective, rank 1 in the barrier); behind the block they pass. `barrier` in the block
passes, and rank 0 still runs the body first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import libcst as cst

from dslint.core.finding import Finding, Severity
from dslint.model.script.data.workload import FIRST_BLOCKS
from dslint.model.script.dotted import last_name
from dslint.model.script.quick import expression_name, flat
from dslint.python.events import Alt, Call, Context, walk
from dslint.python.queries.waits import kind
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery, happenings_of
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL229",
    name="collective-in-main-process-first",
    kind="script",
    severity=Severity.ERROR,
    summary="A collective meets the barrier of `main_process_first`",
    markers=(r"_first\(", r"\bwith\b[^\n]*(?:main_process_first|zero_first)\("),
    references=(
        "https://huggingface.co/docs/accelerate/package_reference/accelerator",
        "PartialState.main_process_first in accelerate/state.py",
    ),
    depends_on_run=True,
)
_MODELS = re.compile(r"transformers\.(?:.*\.)?(?:AutoModel\w*|\w+For[A-Z]\w+|\w+Model)\.from_pretrained$")


_TURNS = frozenset({"main-first", "local-main-first"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first collective of each block of a library that rank 0 runs first."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for entry, tree in run.trees():
        for block in walk(tree):
            if not isinstance(block, Context) or not block.tags & _TURNS or id(block.node) in seen:
                continue
            seen.add(id(block.node))
            inside = happenings_of(block.body, entry)
            found = next(((h, key) for h in inside if (key := _waits(run, h))), None)
            if found is not None:
                yield _finding(run, block, *found)


def _waits(run: RunQuery, found: Happening) -> str:
    """Return the collective that all ranks run in the block, other than a barrier; empty without one."""
    event = found.event
    if event.lanes != run.machine.worlds.full or event.tags & _TURNS:
        return ""
    if any(isinstance(node, Alt) and node.then_lanes & node.else_lanes for node in found.around):
        return ""
    if event.api.startswith("transformers.") and "loads" in event.tags and event.modules:
        stages = {h.event.stage for h in run.happenings("training-arguments", "live-config")}
        return "zero.Init" if 3 in (run.stage, *stages) else ""
    if run.waits.of(event) is None or kind(event) == "barrier":
        return ""
    return kind(event)


def _finding(run: RunQuery, block: Context, found: Happening, key: str) -> Finding:
    event = found.event
    place = found.calls[0] if found.calls else event
    called = run.text(place.module, place.node.func) if isinstance(place.node, ast.Call) else event.api
    what = f"`{called}`" + (", which under ZeRO stage 3 broadcasts each layer," if key == "zero.Init" else "")
    name = block.node.func if isinstance(block.node, ast.Call) else block.node
    related = [run.location(block.module, block.node, "rank 0 runs this block first")]
    if isinstance(place, Call):
        related.append(run.location(event.module, event.node, f"`{key}` needs every rank"))
    return run.finding(
        META,
        place.module,
        place.node,
        f"inside `{run.text(block.module, name).rpartition('.')[2]}` the other ranks wait at a barrier until rank 0 is"
        f" through, and {what} of rank 0 meets that barrier: the job hangs until the process-group timeout",
        hint="Move the call behind the block and keep there only what rank 0 shall do first",
        related=tuple(related),
        varies=event.varies,
        facts={"collective": key, "stage": run.stage},
    )


def precheck(tree: ast.Module) -> bool:
    """Such a block holds a call."""
    return any(
        expression_name(item.context_expr) in FIRST_BLOCKS for node in flat(tree).nodes(ast.With) for item in node.items
    )


# What a helper may do when the block is left that holds nobody up.
_SAYS = frozenset({"print", "info", "debug", "warning", "time", "perf_counter"})


class Check(ScriptCheck):
    """Looks into each block whose name says that rank 0 runs it first: helpers that nobody can read, too."""

    def start(self) -> None:
        """The case of the experiment, set by the collective that was found."""
        self.key = ""

    def visit_With(self, node: cst.With) -> None:
        """Fire on the first collective of the body that every rank runs."""
        named = (i.item.func for i in node.items if isinstance(i.item, cst.Call))
        name = next((last_name(f) for f in named if last_name(f) in FIRST_BLOCKS), "")
        if not name or any(self._is_half(item.item) for item in node.items):
            return
        # One finding a block: what follows hangs as well.
        for call in self.ctx.tree.own_nodes(node.body):
            found = self._collective(call) if isinstance(call, cst.Call) else None
            if found is None:
                continue
            self.report(
                call,
                f"inside `{name}` the other ranks wait at a barrier until rank 0 is through, and {found} of rank 0"
                " meets that barrier: the job hangs until the process-group timeout",
                hint="Move the call behind the block and keep there only what rank 0 shall do first",
                related=(self.ctx.location(node.items[0], "rank 0 runs this block first"),),
                facts={"collective": self.key, "stage": self.ctx.stage},
            )
            return

    def _is_half(self, block: cst.BaseExpression) -> bool:
        """A helper of this file that runs nothing behind its ``yield``: it is no pair of barriers."""
        helper = self.ctx.names.local_function(block) if isinstance(block, cst.Call) else None
        if helper is None:
            return False
        inside = list(self.ctx.tree.own_nodes(helper))
        place = self.ctx.tree.position
        yields = [place(n) for n in inside if isinstance(n, cst.Yield)]
        calls = [place(n) for n in inside if isinstance(n, cst.Call) and self.ctx.called(n) not in _SAYS]
        return not yields or max(calls, default=0) < max(yields)

    def _collective(self, call: cst.Call) -> str | None:
        """What a call of the body waits for, in words; ``self.key`` is the case of the experiment."""
        event = self.ctx.summaries.event(call)
        if event is not None and event.guard is None and not self.ctx.guards.is_conditional(call):
            keys = sorted(event.keys - {"barrier"})
            if keys:
                self.key = keys[0]
                return f"`{self.ctx.text(call.func)}`"
        loads_model = _MODELS.match(self.ctx.qualified_name(call.func) or "") is not None
        if loads_model and self.ctx.zero3_evidence.get_or(False):
            self.key = "zero.Init"
            return f"`{self.ctx.text(call.func)}`, which under ZeRO stage 3 broadcasts each layer,"
        return None


_HEAD = """\
import torch
import torch.distributed as dist
from accelerate import Accelerator

accelerator = Accelerator()
"""

EXAMPLES = (
    bad(
        "a gather in the block",
        {
            "train.py": _HEAD + "with accelerator.main_process_first():\n    data = data.map(tokenize)\n"
            "    sizes = accelerator.gather(torch.tensor(len(data)))\n"
        },
        at="train.py:8 error",
    ),
    bad(
        "a helper that reduces",
        {
            "train.py": _HEAD + "\n\ndef total(number):\n    dist.all_reduce(number)\n    return number\n\n\n"
            "with accelerator.local_main_process_first():\n    print(total(torch.tensor(1)))\n"
        },
        at="train.py:14 error",
    ),
    bad(
        "a model under ZeRO 3",
        {
            "train.py": (
                "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\n"
                "args = TrainingArguments('out', deepspeed={'zero_optimization': {'stage': 3}})\n"
                "with args.main_process_first():\n    model = AutoModelForCausalLM.from_pretrained('base')\n"
                "Trainer(model=model, args=args).train()\n"
            )
        },
        at="train.py:5 error",
    ),
    bad(
        "a function of another file gathers, and the block is a field",
        {
            "sizes.py": "def total(accelerator, rows):\n    return accelerator.gather(rows)\n",
            "train.py": (
                "from accelerate import Accelerator\n\nfrom sizes import total\n\n\nclass Job:\n"
                "    def __init__(self):\n        self.accelerator = Accelerator()\n\n"
                "    def run(self, rows):\n        first = self.accelerator.main_process_first\n"
                "        with first():\n            return total(self.accelerator, rows)\n"
            ),
        },
        at="train.py:13 error",
    ),
    good(
        "what the block is for",
        {
            "train.py": _HEAD + "with accelerator.main_process_first():\n    data = data.map(tokenize)\n"
            "sizes = accelerator.gather(torch.tensor(len(data)))\n"
        },
    ),
    good(
        "a helper of its own that holds the others back, and lets them go by another one",
        {
            "train.py": "import contextlib\nimport torch.distributed as dist\n\n\n@contextlib.contextmanager\n"
            "def main_process_first():\n    if dist.get_rank() != 0:\n        dist.barrier()\n    yield\n\n\n"
            "def let_go():\n    if dist.get_rank() == 0:\n        dist.barrier()\n\n\n"
            "def total(grads):\n    let_go()\n    with main_process_first():\n        dist.all_reduce(grads)\n"
        },
    ),
    good(
        "a barrier pairs up with those of the block",
        {"train.py": _HEAD + "with accelerator.main_process_first():\n    accelerator.wait_for_everyone()\n"},
    ),
    good(
        "a model, with a stage that nobody knows",
        {
            "train.py": (
                "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\n"
                "args = TrainingArguments('out')\n"
                "with args.main_process_first():\n    model = AutoModelForCausalLM.from_pretrained('base')\n"
                "Trainer(model=model, args=args).train()\n"
            )
        },
    ),
)
