"""**What.** Only some ranks load a checkpoint: `load_checkpoint` of a DeepSpeed engine, `load_state` of accelerate, or
`load_state_dict` of a model that `DistributedDataParallel` already wraps, under a test of the rank.

**Why it hurts.** Nothing hangs and nothing fails. The other ranks continue with their fresh weights, the gradients are
averaged over different models, and the loss looks plausible; under ZeRO 3 every rank holds a model of which a part is
loaded. The same for the state of the optimizer and of the schedule.

**Fix.** Load on every rank. The fix dedents the call where it is the only statement under a plain rank test.

**When it stays quiet.** Another branch loads as well; the weights are broadcast afterwards; a raw model is loaded
before `DistributedDataParallel` wraps it, which hands the weights of rank 0 to all. A call that waits for all ranks
under a rank test (`save_checkpoint`, `torch.distributed.checkpoint.load`) is DSL201.

**Evidence.** Two gloo ranks: loaded on rank 0 only, the weights of the ranks differ after `load_checkpoint` at ZeRO 0,
1 and 2, after `load_state`, and after `load_state_dict` of a DDP model; at ZeRO 3 both end with other weights than
were saved. Loaded on both, they are those that were saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.python.events import Event, events
from dslint.python.queries.order import following
from dslint.python.values import Function, Instance
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.dedented import only_statement
from dslint.rules.ranks.someranks import SomeRanks, some_ranks
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL232",
    name="checkpoint-load-under-rank-guard",
    kind="script",
    severity=Severity.ERROR,
    summary="Only some ranks load a checkpoint, and the others continue with other weights",
    fix="safe",
    markers=(
        r"load_checkpoint\(|load_state\(|load_state_dict\(",
        r"rank|is_main|main_process|master|process_zero|global_zero|process_index|RANK",
        r"deepspeed|accelerat|DistributedDataParallel|DDP",
    ),
    references=("DeepSpeedEngine.load_checkpoint in deepspeed/runtime/engine.py",),
)

# What hands weights round without a row of its own.
_TELLS = re.compile(r"broadcast(?!_buffers)\w*\(|bcast\w*\(|\bsync_(?:param|weight|model|state)\w*\(")
_WRAPS = frozenset({"wraps-model", "makes-engine", "prepares"})


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where only some ranks load and nothing else gives the others the same weights."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    for found in run.occurrences("loads", "loads-state-dict"):
        event = found.event
        if id(event.node) in seen or event.may:
            continue
        some = some_ranks(run, found)
        if some is not None and _loads(run, found) and not _others_get_it(run, some):
            seen.add(id(event.node))
            yield _finding(run, some)


def _loads(run: RunQuery, found: Happening) -> bool:
    """Return whether a call loads what the ranks share: an engine, all of accelerate, or a model that DDP wraps."""
    event = found.event
    owners = instances(event.receiver)
    kinds = {"load_checkpoint": "engine", "load_state": "accelerator"}
    method = event.api.rpartition(".")[2]
    if method in kinds:
        return bool(owners) and all(_is_class(run, atom, kinds[method]) for atom in owners)
    if method != "load_state_dict" or not owners:
        return False
    before = takewhile(lambda other: other is not event, events(found.entry.tree))
    wrapped = {atom for other in before for atom in _wrapped(run, other)}
    return all(atom in wrapped for atom in owners)


def _is_class(run: RunQuery, atom: Instance, kind: str) -> bool:
    return isinstance(atom.cls, str) and bool(atom.cls) and run.machine.libraries.is_class(atom.cls, kind)


def _wrapped(run: RunQuery, event: Event) -> set[Instance]:
    """Return the wrapper that an event makes, and the model inside."""
    made = [a for a in instances(event.result) if _is_class(run, a, "ddp")] if "wraps-model" in event.tags else []
    return {*made, *event.modules, *instances(event.arguments.get("module"))} if made else set()


def _others_get_it(run: RunQuery, some: SomeRanks) -> bool:
    """Return whether the other ranks load elsewhere as well, or the weights are handed round."""
    found, event = some.found, some.found.event
    method = found.event.api.rpartition(".")[2]
    functions = [call.function.node for call in found.calls if isinstance(call.function, Function)]
    texts = (found.event.module.text(node) for node in functions if node is not None)
    missing = run.machine.worlds.full & ~some.lanes
    for other in events(found.entry.tree):
        is_same = other.api.rpartition(".")[2] == method and other is not event
        if is_same and other.lanes & missing and _concerns(run, other, event):
            return True
    for later in following(found.entry.tree, event):
        if later.tags & {"backward", "engine-backward"}:
            break
        if "broadcast" in later.api or later.tags & _WRAPS:
            return True
    return any(_TELLS.search(text) for text in (*texts, _home(found)))


def _concerns(run: RunQuery, other: Event, event: Event) -> bool:
    """Return whether two calls load the same kind of thing: an optimizer is not the weights of a model."""
    mine, theirs = instances(event.receiver), instances(other.receiver)
    beside = ("optimizer", "scheduler", "scaler")
    return bool(set(mine) & set(theirs)) or not any(_is_class(run, atom, kind) for atom in theirs for kind in beside)


def _home(found: Happening) -> str:
    """Return the code of the function in which a call stands; of a script without the functions that it defines."""
    node = found.entry.node
    body = [n for n in getattr(node, "body", []) if not hasattr(n, "decorator_list")] if not found.calls else []
    return "\n".join(found.entry.module.text(part) for part in body)


def _finding(run: RunQuery, some: SomeRanks) -> Finding:
    event, test, (module, node) = some.found.event, some.test, some.place
    method = event.api.rpartition(".")[2]
    loads = run.text(event.module, getattr(event.node, "func", event.node))
    is_here = node is event.node
    how = f"calls `{loads}`" if is_here else f"runs `{loads}` through `{run.text(module, getattr(node, 'func', node))}`"
    told = some.who(run)
    edit = only_statement(module, test.node, node) if module.path == run.path else None
    is_plain = not test.then_lanes & test.else_lanes
    return run.finding(
        META,
        module,
        node,
        f"{told} {how}: the others keep other weights, and the ranks silently train different models",
        hint=f"Call `{method}` on every rank and keep only logging under the test",
        related=(
            run.location(test.module, some.asked, "only some ranks get past this test"),
            *(() if is_here else (run.location(event.module, event.node, "loads here"),)),
        ),
        fix=Fix("Load on every rank", (edit,)) if edit is not None and is_plain else None,
        facts={"call": method, "stage": run.stage},
        varies=event.varies,
    )


_HEAD = """\
import deepspeed
import torch
import torch.distributed as dist

engine, _, _, _ = deepspeed.initialize(model=make_model(), config="ds.json")
"""

EXAMPLES = (
    bad(
        "an engine that only rank 0 loads",
        {"train.py": _HEAD + "if dist.get_rank() == 0:\n    engine.load_checkpoint('out')\n"},
        at="train.py:7 error",
        fixed={"train.py": _HEAD + "engine.load_checkpoint('out')\n"},
    ),
    bad(
        "the same after an early return, and its result is used",
        {
            "train.py": _HEAD + "\n\ndef resume(rank):\n    if rank != 0:\n        return 0\n"
            "    _, state = engine.load_checkpoint('out')\n    return state['step']\n"
        },
        at="train.py:11 error",
    ),
    bad(
        "accelerate",
        {
            "train.py": (
                "from accelerate import Accelerator\n\naccelerator = Accelerator()\n"
                "model = accelerator.prepare(make_model())\n"
                "if accelerator.is_main_process:\n    accelerator.load_state('out')\n"
            )
        },
        at="train.py:6 error",
        fixed={
            "train.py": (
                "from accelerate import Accelerator\n\naccelerator = Accelerator()\n"
                "model = accelerator.prepare(make_model())\n"
                "accelerator.load_state('out')\n"
            )
        },
    ),
    bad(
        "a model that is wrapped already",
        {
            "train.py": (
                "import torch\nimport torch.distributed as dist\n"
                "from torch.nn.parallel import DistributedDataParallel as DDP\n\n"
                "model = DDP(make_model())\nif dist.get_rank() == 0:\n"
                "    state = torch.load('last.pt')\n    model.module.load_state_dict(state)\n"
            )
        },
        at="train.py:8 error",
    ),
    bad(
        "by way of a function of the file",
        {
            "train.py": _HEAD
            + "\n\ndef resume(folder):\n    engine.load_checkpoint(folder)\n    print('resumed')\n\n\n"
            "if dist.get_rank() == 0:\n    resume('out')\n"
        },
        at="train.py:14 error",
    ),
    bad(
        "every rank loads the optimizer, and only rank 0 the weights",
        {
            "train.py": (
                "import torch\nimport torch.distributed as dist\n"
                "from torch.nn.parallel import DistributedDataParallel as DDP\n\n"
                "model = DDP(make_model())\noptimizer = torch.optim.AdamW(model.parameters())\n"
                "state = torch.load('last.pt')\nif dist.get_rank() == 0:\n"
                "    model.module.load_state_dict(state['model'])\noptimizer.load_state_dict(state['optimizer'])\n"
            )
        },
        at="train.py:9 error",
        fixed={
            "train.py": (
                "import torch\nimport torch.distributed as dist\n"
                "from torch.nn.parallel import DistributedDataParallel as DDP\n\n"
                "model = DDP(make_model())\noptimizer = torch.optim.AdamW(model.parameters())\n"
                "state = torch.load('last.pt')\n"
                "model.module.load_state_dict(state['model'])\noptimizer.load_state_dict(state['optimizer'])\n"
            )
        },
    ),
    good(
        "every rank loads, rank 0 says so",
        {"train.py": _HEAD + "engine.load_checkpoint('out')\nif dist.get_rank() == 0:\n    print('loaded')\n"},
    ),
    good(
        "both branches load",
        {
            "train.py": _HEAD
            + "if dist.get_rank() == 0:\n    engine.load_checkpoint('out', tag='a')\n"
            + "else:\n    engine.load_checkpoint('out', tag='a', load_optimizer_states=False)\n"
        },
    ),
    good(
        "both branches load through one function",
        {
            "train.py": (
                _HEAD + "if dist.get_rank() == 0:\n    restore(engine, print)\nelse:\n    restore(engine, len)\n"
            ).replace("engine", "def restore(engine, log):\n    log(engine.load_checkpoint('out'))\n\n\nengine", 1)
        },
    ),
    good(
        "rank 0 loads the raw model, and DDP hands its weights to the others",
        {
            "train.py": (
                "import torch\nimport torch.distributed as dist\n"
                "from torch.nn.parallel import DistributedDataParallel as DDP\n\n"
                "model = make_model()\nif dist.get_rank() == 0:\n"
                "    model.load_state_dict(torch.load('last.pt'))\nwrapped = DDP(model)\n"
            )
        },
    ),
    good(
        "rank 0 loads and broadcasts",
        {
            "train.py": (
                "import torch\nimport torch.distributed as dist\n"
                "from torch.nn.parallel import DistributedDataParallel as DDP\n\n"
                "model = DDP(make_model())\nif dist.get_rank() == 0:\n"
                "    model.module.load_state_dict(torch.load('last.pt'))\n"
                "for parameter in model.parameters():\n    dist.broadcast(parameter.data, src=0)\n"
            )
        },
    ),
)
