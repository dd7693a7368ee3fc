"""**What.** A collective inside `with main_process_first():` (of accelerate, transformers, or a helper of such a
name that is imported from elsewhere; DSL201 and DSL206 look into helpers of the project).

**Why it hurts.** The block is a pair of barriers: the other ranks wait at the first one until rank 0 has run the
body. A collective in the body of rank 0 meets that barrier instead of the same call of the other ranks, and the job
hangs. The same does a model that is loaded there under ZeRO stage 3: `from_pretrained` then broadcasts each layer.

**Fix.** Keep in the block what rank 0 shall do first (download, tokenize, write a cache), and move the collective, or
the loading of the model, after it.

**When it stays quiet.** A barrier in the block pairs up with those of the block and does no harm; a collective under a
rank test is DSL201; a test of something unknown comes before the collective; the stage is not known to be 3.

**Evidence.** Two gloo ranks, accelerate 1.15: `gather`, `all_reduce`, `broadcast` and `deepspeed.zero.Init` in the
block hang (rank 0 in the collective, rank 1 in the barrier); after the block they pass. `barrier` in the block
passes, and rank 0 still runs the body first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Call, Context, Event, walk
from dslint.python.queries.waits import kind
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery, happenings_of
from dslint.rules.training.plateaus import instances
from dslint.rules.zero.zero3 import tells

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


_TURNS = frozenset({"main-first", "local-main-first"})
# Blocks of helpers that nobody can read, by the name that they have everywhere.
_FIRST = re.compile(r"(?:main_process|zero|rank_?0|rank_zero|master)_first$")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on the first collective of each block of a library that rank 0 runs first."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for entry, tree in run.trees():
        for block in walk(tree):
            if not isinstance(block, Context) or not _takes_turns(block) or id(block.node) in seen:
                continue
            seen.add(id(block.node))
            inside = happenings_of(block.body, entry)
            found = next(((h, key) for h in inside if (key := _waits(run, h))), None)
            if found is not None:
                yield _finding(run, block, *found)


def _takes_turns(block: Context) -> bool:
    """Return whether rank 0 runs a block first: by the row of a library, or by the name of what nobody can read."""
    if block.tags & _TURNS:
        return True
    node = block.node.func if isinstance(block.node, ast.Call) else block.node
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    is_known = any(isinstance(atom, Instance) and atom.cls for atom in block.manager.atoms)
    return not is_known and _FIRST.search(name) is not None


def _waits(run: RunQuery, found: Happening) -> str:
    """Return the collective that all ranks run in the block, other than a barrier; empty without one."""
    event = found.event
    if event.lanes != run.machine.worlds.full or event.tags & _TURNS:
        return ""
    if any(isinstance(node, Alt) and node.then_lanes & node.else_lanes for node in found.around):
        return ""
    if event.api.startswith("transformers.") and "loads" in event.tags and event.modules:
        live = run.happenings("training-arguments", "live-config", "starts-group")
        stages = {h.event.stage for h in live if tells(h.event) and not _is_late(h.event)}
        return "zero.Init" if 3 in (run.stage, *stages) else ""
    if run.waits.of(event) is None or kind(event) == "barrier":
        return ""
    return kind(event)


def _is_late(event: Event) -> bool:
    """`DeepSpeedPlugin(zero3_init_flag=False)`: models are divided when they are prepared, and not before."""
    calls = (plugin.node for plugin in instances(event.arguments.get("deepspeed_plugin")))
    given = [keyword for call in calls if isinstance(call, ast.Call) for keyword in call.keywords]
    return any(k.arg == "zero3_init_flag" and ast.unparse(k.value) != "True" for k in given)


def _finding(run: RunQuery, block: Context, found: Happening, key: str) -> Finding:
    event = found.event
    place = found.calls[0] if found.calls else event
    called = run.text(place.module, place.node.func) if isinstance(place.node, ast.Call) else event.api
    what = f"`{called}`" + (" (a ZeRO-3 broadcast)" if key == "zero.Init" else "")
    name = block.node.func if isinstance(block.node, ast.Call) else block.node
    related = [run.location(block.module, block.node, "rank 0 runs this block first")]
    if isinstance(place, Call):
        related.append(run.location(event.module, event.node, f"`{key}` needs every rank"))
    return run.finding(
        META,
        place.module,
        place.node,
        f"{what} runs on rank 0 in `{run.text(block.module, name).rpartition('.')[2]}`, while the others wait at its"
        " barrier: the job hangs",
        hint="Move the call after the block, and keep only what rank 0 must do first in it",
        related=tuple(related),
        varies=event.varies,
        facts={"collective": key, "stage": run.stage},
    )


_HEAD = """\
import torch
import torch.distributed as dist
from accelerate import Accelerator

accelerator = Accelerator()
"""

_PLUGIN = """\
from accelerate import Accelerator, DeepSpeedPlugin
from transformers import AutoModelForCausalLM


def load(accelerator):
    with accelerator.main_process_first():
        return AutoModelForCausalLM.from_pretrained("gpt2")


accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=3%s))
model = load(accelerator)
"""

EXAMPLES = (
    bad("a model that ZeRO divides while it is built", {"train.py": _PLUGIN % ""}, at="train.py:7 error"),
    good("divided when it is prepared", {"train.py": _PLUGIN % ", zero3_init_flag=False"}),
    bad(
        "a gather in the block",
        {
            "train.py": _HEAD + "with accelerator.main_process_first():\n    data = data.map(tokenize)\n"
            "    sizes = accelerator.gather(torch.tensor(len(data), device=accelerator.device))\n"
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
            "sizes = accelerator.gather(torch.tensor(len(data), device=accelerator.device))\n"
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
