"""**What.** The tag or folder of a checkpoint holds something that each rank makes for itself: the clock, a UUID, the
process id, the host name, the rank, the loss of the rank's own batch. The same of the `output_dir` of
`TrainingArguments` with DeepSpeed or FSDP, where each rank saves a part. Also where the name is a field or comes from a
helper or another file.

**Why it hurts.** Every rank writes its part of the checkpoint into a folder of its own, so no folder holds a whole one.
Nothing fails: DeepSpeed logs a warning and continues, the job ends with return code 0, and the checkpoint cannot be
loaded. (With `"checkpoint": {"tag_validation": "Fail"}` in its config DeepSpeed raises, for the tag only.)

**Fix.** Make the name on one rank and broadcast it (`dist.broadcast_object_list([name], src=0)`), or build it from what
is the same everywhere: the step, the epoch, the name of the run.

**When it stays quiet.** The name went through a broadcast; nobody knows where the value comes from; the rank is the
variable of a loop; the script sets `tag_validation` itself. A clock read to the second or minute, a host name, a
loss, and folders (which scripts often make long before the save) are warnings, since the ranks may well get the same
text.

A random number counts where nothing in the file seeds a generator, and is a warning, since other modules may seed it.

**Evidence.** Two gloo ranks, ZeRO 2 and 3, `save_checkpoint(folder, tag=f"at-{time.time_ns()}")`: two folders, one
part each, return code 0; with one tag a whole checkpoint. The same of a folder, also of
`torch.distributed.checkpoint`. With `"Fail"` both ranks raise `AssertionError: ... is not consistent across all
ranks`. DeepSpeed 0.19.8 `engine.py: _checkpoint_tag_validation`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.python.varies import CLOCK, DATA, HOST, LOCAL, LOST, NAMED_RANK, RANDOM, RANK, RANKED, UNMODELLED, UNSURE
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import row_of, written, written_as
from dslint.rules.runs import RunQuery

if TYPE_CHECKING:
    from dslint.python.events import Event

META = RuleMeta(
    code="DSL231",
    name="checkpoint-tag-per-rank",
    kind="script",
    severity=Severity.ERROR,
    summary="The tag or folder of a checkpoint is not the same on all ranks",
    markers=(r"deepspeed|accelerat|torch\.distributed|fsdp",),
    references=("DeepSpeedEngine._checkpoint_tag_validation in deepspeed/runtime/engine.py",),
)

# Calls with which each rank writes a part of one checkpoint.
_SAVES = frozenset({"save_checkpoint", "save_state", "save", "async_save"})
_SHARDED = ("deepspeed.", "accelerate.", "torch.distributed.checkpoint.")
# What a number of the data is called that scripts put into the names of their checkpoints.
_SCORE = re.compile(r"(?i)loss|metric|acc|score|perplexity|ppl|wer\b|bleu|f1\b")
# What leaves of a clock as much as two ranks may have alike.
_COARSE = frozenset({"int", "round", "strftime", "ctime", "date"})


@dataclass(frozen=True, slots=True)
class _Own:
    """What makes a name each rank's own: `clock`, `rank`, `host`, `loss` or `unique`, and the same in words.

    `is_certain`: two ranks never get the same one; otherwise they may, as two that ask within the same second.
    """

    kind: str
    what: str
    is_certain: bool = False


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on checkpoints that each rank names for itself."""
    if run.context.is_one_process:
        return
    for found in run.happenings("saves-collective", "training-arguments"):
        event = found.event
        # On some ranks only, the call itself is the mistake.
        if event.lanes == run.machine.worlds.full and "tag_validation" not in event.module.code:
            yield from _of_checkpoint(run, event)


def _of_checkpoint(run: RunQuery, event: Event) -> Iterator[Finding]:
    for name in _names(run, event):
        own = _own(run, event, name)
        if own is not None:
            yield _told(run, event, name, own)
            return


def _names(run: RunQuery, event: Event) -> tuple[str, ...]:
    """Return the arguments that name the place of a checkpoint of which each rank writes a part."""
    if "training-arguments" in event.tags:
        # Without ZeRO or FSDP rank 0 writes all that matters.
        parts = [event.arguments[name] for name in ("deepspeed", "fsdp") if name in event.arguments]
        split = any(part.constants is None or any(part.constants) for part in parts)
        return ("output_dir",) if split else ()
    is_shared_out = event.api.startswith(_SHARDED) and event.api.rpartition(".")[2] in _SAVES
    if not is_shared_out or "no_dist" in event.arguments:
        return ()
    return ("tag", str(row_of(run, event).get("path", "")))


def _own(run: RunQuery, event: Event, name: str) -> _Own | None:
    """Return what makes an argument each rank's own, for certain."""
    causes, _, models = event.snapshot.get(name, (LOST, 0, frozenset()))
    is_score = any(_SCORE.search(text) for text in written_as(event, event.nodes.get(name)))
    # A wrapped model runs on batches of the rank; what unknown code makes of its loss is the rank's own, too.
    is_loss = (causes & DATA and is_score) or (causes & (DATA | UNMODELLED) and models)
    if causes & LOST or (causes & UNSURE and not is_loss):
        return None
    if causes & (CLOCK | RANKED) and any(map(_divides, _inside(event, name))):
        return None  # `time.time() // 3600`, `rank // 8`: what is left may be the same
    unique = _unique(run, event, name)
    if causes & CLOCK:
        return _Own("clock", "the clock", bool(unique) and name == "tag" and _is_whole(event, name))
    if causes & (RANDOM | HOST) and unique:
        return _Own("unique", unique, is_certain=True)
    if causes & RANDOM and not run.has("seeds"):
        return _Own("unique", "a random number")
    # The number of the epoch that a file holds is the same for all; a loss comes from the wrapped model.
    if is_loss:
        return _Own("loss", "a number from the rank's own data")
    if causes & (RANK | LOCAL):
        return _Own("rank", "the rank", is_certain=not causes & NAMED_RANK)
    return _Own("host", "the name or number of the machine") if causes & RANKED else None


def _unique(run: RunQuery, event: Event, name: str) -> str:
    """Return, in words, what no two processes get the same, where a name begins with that; else nothing."""
    module, node = event.origins.get(name, (event.module, None))
    libraries = run.machine.libraries
    path = libraries.canonical(module.path_of(node.func)) if isinstance(node, ast.Call) else ""
    owner, _, method = path.rpartition(".")
    row = libraries.function(path) or libraries.method(owner, method)
    return str(row.extra.get("unique", "")) if row is not None else ""


def _is_whole(event: Event, name: str) -> bool:
    """Return whether a name holds a clock as it is, and no rounded part of it; a name made elsewhere may hold any."""
    module, place = event.origins[name]
    inside = _inside(event, name)
    return module is event.module and any(inner is place for inner in inside) and not any(map(_cuts, inside))


def _inside(event: Event, name: str) -> list[ast.AST]:
    node = event.nodes.get(name)
    return [inner for found in (written(event, node) if node is not None else ()) for inner in ast.walk(found)]


def _divides(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)


def _cuts(node: ast.AST) -> bool:
    """Return whether an operation leaves a part of a number or text."""
    if isinstance(node, ast.FormattedValue):
        return node.format_spec is not None
    if isinstance(node, ast.BinOp):
        is_text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        return isinstance(node.op, ast.Mod) and not is_text
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", getattr(node.func, "id", "")) in _COARSE
    return isinstance(node, ast.Slice)


def _told(run: RunQuery, event: Event, name: str, own: _Own) -> Finding:
    origin, node = event.origins.get(name), event.nodes.get(name)
    argument = "tag" if name == "tag" else "folder"
    certain = own.is_certain and (argument == "tag" or own.kind in ("unique", "rank"))
    is_here = origin is None or origin[1] is node
    return run.finding(
        META,
        event.module,
        node or event.node,
        f"the checkpoint {argument} holds {own.what}, which {'differs' if certain else 'may differ'} between ranks: no"
        " folder holds the whole checkpoint",
        hint="Make the name on rank 0 and broadcast it, or build it from the step or epoch",
        related=(origin[0].location(origin[1], "made by each rank for itself"),) if origin and not is_here else (),
        severity=Severity.ERROR if certain else Severity.WARNING,
        varies=event.snapshot[name][0],
        facts={"call": event.api.rpartition(".")[2], "argument": argument, "kind": own.kind, "stage": run.stage},
    )


_HEAD = """\
import datetime
import os
import time
import uuid

import deepspeed
import torch.distributed as dist

engine, _, _, _ = deepspeed.initialize(model=make_model(), config="ds.json")
"""
_NAMES = """\
import time


class Run:
    def __init__(self, root):
        self.tag = f"at-{time.time()}"
        self.folder = root + time.strftime("/%m%d_%H%M")
"""
_NAMED = """\
from names import Run

run = Run("out")
engine.save_checkpoint("out", tag=run.tag)
engine.save_checkpoint(run.folder, tag="step-4")
"""

EXAMPLES = (
    bad(
        "a tag with the clock",
        {"train.py": _HEAD + "engine.save_checkpoint('out', tag=f'at-{time.time()}')\n"},
        at="train.py:10 error",
    ),
    bad(
        "a tag with a UUID, made before",
        {"train.py": _HEAD + "name = 'run-' + uuid.uuid4().hex[:8]\nengine.save_checkpoint('out', name)\n"},
        at="train.py:11 error",
    ),
    bad(
        "a random number in the tag",
        {"train.py": _HEAD + "import random\n\nengine.save_checkpoint('out', tag=f'run-{random.randint(0, 9999)}')\n"},
        at="train.py:12 warning",
    ),
    good(
        "a random number from a seeded generator",
        {
            "train.py": _HEAD + "import random\n\nrandom.seed(42)\n"
            "engine.save_checkpoint('out', tag=f'run-{random.randint(0, 9999)}')\n"
        },
    ),
    bad(
        "the rank in the tag, and the minute in the folder",
        {
            "train.py": _HEAD
            + "engine.save_checkpoint('out', tag='step-%d' % dist.get_rank())\n"
            + "folder = os.path.join('out', datetime.datetime.now().strftime('%m%d_%H%M'))\n"
            + "engine.save_checkpoint(folder)\n"
        },
        at=("train.py:10 error", "train.py:12 warning"),
    ),
    bad(
        "the loss of the rank's own batch",
        {
            "train.py": _HEAD
            + "for batch in loader:\n    loss = engine(batch)\n    engine.backward(loss)\n    engine.step()\n"
            + "    engine.save_checkpoint('out', tag=f'loss{loss.item():.2f}')\n"
        },
        at="train.py:14 warning",
    ),
    bad(
        "the folder of a distributed checkpoint",
        {
            "train.py": (
                "import time\n\nimport torch.distributed.checkpoint as dcp\n\n"
                "dcp.save(state, checkpoint_id=f'out/{int(time.time())}')\n"
            )
        },
        at="train.py:5 warning",
    ),
    bad(
        "the output folder of a Trainer whose checkpoints have parts",
        {
            "train.py": (
                "from datetime import datetime\n\nfrom transformers import TrainingArguments\n\n"
                "args = TrainingArguments(f'out/{datetime.now():%m%d-%H%M}', deepspeed='ds.json')\n"
            )
        },
        at="train.py:5 warning",
    ),
    good(
        "the output folder of a Trainer whose rank 0 writes alone",
        {
            "train.py": (
                "from datetime import datetime\n\nfrom transformers import TrainingArguments\n\n"
                "args = TrainingArguments(f'out/{datetime.now():%m%d-%H%M}')\n"
            )
        },
    ),
    good(
        "one rank makes the tag",
        {
            "train.py": _HEAD
            + "names = [f'at-{time.time()}']\ndist.broadcast_object_list(names, src=0)\n"
            + "engine.save_checkpoint('out', tag=names[0])\n"
        },
    ),
    good(
        "the step, and a clock that only the log gets",
        {
            "train.py": _HEAD
            + "for step, batch in enumerate(loader):\n    started = time.time()\n    engine.backward(engine(batch))\n"
            + "    engine.step()\n    engine.save_checkpoint('out', tag=f'step-{step}')\n"
            + "    print(time.time() - started)\n"
        },
    ),
    good(
        "the loss, averaged over the ranks",
        {
            "train.py": _HEAD
            + "for batch in loader:\n    loss = engine(batch)\n    engine.backward(loss)\n    engine.step()\n"
            + "    dist.all_reduce(loss)\n    engine.save_checkpoint('out', tag=f'loss{loss.item():.2f}')\n"
        },
    ),
    bad(
        "a field of an object of another file",
        {"names.py": _NAMES, "train.py": _HEAD + _NAMED},
        at=("train.py:13 warning", "train.py:14 warning"),
    ),
    good(
        "the main process names the run for all",
        {
            "names.py": _NAMES,
            "train.py": (_HEAD + _NAMED).replace(
                'Run("out")',
                'Run("out")\nnames = [run.tag, run.folder]\ndist.broadcast_object_list(names, src=0)'
                "\nrun.tag, run.folder = names",
            ),
        },
    ),
    good(
        "a folder that the caller names",
        {"train.py": _HEAD + "def save(folder, tag):\n    engine.save_checkpoint(folder, tag=tag)\n"},
    ),
)
