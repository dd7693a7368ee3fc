"""**What.** The tag or folder of a checkpoint holds something that each rank makes for itself: the clock, a UUID, the
process id, the host name, the rank, the loss of the rank's own batch. The same of the `output_dir` of
`TrainingArguments` with DeepSpeed or FSDP, where each rank saves a part. Also where the name is a field or comes from a
helper or another file.

**Why it hurts.** Every rank writes its part of the checkpoint into a folder of its own, so no folder holds a whole one.
Nothing fails: DeepSpeed logs a warning and goes on, the job ends with return code 0, and the checkpoint cannot be
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

import libcst as cst

from dslint.core.finding import Finding, Severity
from dslint.model.script.quick import call_name, flat
from dslint.model.script.setup.ownvalues import OwnValue, OwnValues
from dslint.python.events import Event
from dslint.python.varies import CLOCK, DATA, LOST, RANDOM, RANKED, UNSURE
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.everyrank import row_of, written_as
from dslint.rules.runs import RunQuery
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL231",
    name="checkpoint-tag-per-rank",
    kind="script",
    severity=Severity.ERROR,
    summary="The tag or folder of a checkpoint is not the same on all ranks",
    markers=(r"deepspeed|accelerat|torch\.distributed|fsdp",),
    references=("DeepSpeedEngine._checkpoint_tag_validation in deepspeed/runtime/engine.py",),
)

_SAVES = frozenset({"save_checkpoint", "save_state", "save", "async_save"})
_ARGUMENTS = "TrainingArguments"
_CHECKPOINT = ("torch.distributed.checkpoint.", "torch.distributed.checkpoint.state_dict_saver.")


def precheck(tree: ast.Module) -> bool:
    """A checkpoint is saved under a name that is more than a literal."""
    made = flat(tree).nodes(ast.Call)
    calls = [call for call in made if call_name(call) in _SAVES or call_name(call).endswith(_ARGUMENTS)]
    return any(
        not isinstance(value, ast.Constant)
        for call in calls
        for value in (*call.args[:2], *(k.value for k in call.keywords if k.arg in _ARGUMENT_NAMES))
    )


_ARGUMENT_NAMES = frozenset({"tag", "save_dir", "output_dir", "checkpoint_id"})


class Check(ScriptCheck):
    """Looks at the folder and the tag of every call that saves a part on each rank."""

    def start(self) -> None:
        """The values of the module; does the script say what DeepSpeed shall do about tags that differ?"""
        self.validates = "tag_validation" in self.ctx.doc.source.text
        self.own = OwnValues(self.ctx.names, self.ctx.guards.rank_values, self.ctx.objects)

    def visit_Call(self, node: cst.Call) -> None:
        """Fire when a name certainly holds a value of the rank's own."""
        if self.validates:
            return
        for argument, value in self._names_of(node):
            found = self.own.of(value) if value is not None else None
            # Behind a rank guard the call itself is the mistake.
            if value is not None and found is not None and self.ctx.guard(node) is None:
                self._report(node, argument, value, found)
                return

    def _names_of(self, node: cst.Call) -> list[tuple[str, cst.BaseExpression | None]]:
        """The arguments that name the place of a checkpoint of which each rank writes a part."""
        argument = self.ctx.argument
        if isinstance(node.func, cst.Attribute):
            owner, method = node.func.value, node.func.attr.value
            if method == "save_checkpoint" and self.ctx.kind(owner) in ("engine", "prepared"):
                return [("tag", argument(node, "tag", 1)), ("folder", argument(node, "save_dir", 0))]
            if method == "save_state" and self.ctx.kind(owner) == "accelerator":
                return [("folder", argument(node, "output_dir", 0))]
        # Without ZeRO or FSDP rank 0 writes all that matters.
        parts = [p for p in (argument(node, "deepspeed", None), argument(node, "fsdp", None)) if p is not None]
        if parts and self.ctx.kind(node) == "training_arguments":
            split = any(self.ctx.text(p) not in ("None", '""', "''") for p in parts)
            return [("folder", argument(node, "output_dir", 0))] if split else []
        name = self.ctx.qualified_name(node.func) or ""
        saves = name.startswith(_CHECKPOINT) and name.rpartition(".")[2] in ("save", "async_save")
        if saves and argument(node, "no_dist", None) is None:
            return [("folder", argument(node, "checkpoint_id", None))]
        return []

    def _report(self, node: cst.Call, argument: str, value: cst.BaseExpression, found: OwnValue) -> None:
        certain = found.is_certain and (argument == "tag" or found.kind in ("unique", "rank"))
        which = "differs between the ranks" if certain else "may differ between the ranks"
        origin = (self.ctx.location(found.node, "made by each rank for itself"),) if found.node is not value else ()
        self.report(
            value,
            f"the {argument} of the checkpoint holds {found.what}, which {which}: each rank then writes its part into"
            " a folder of its own, and no folder holds the whole checkpoint",
            hint="Make the name on rank 0 and broadcast it, or build it from the step or epoch",
            related=origin,
            severity=Severity.ERROR if certain else Severity.WARNING,
            facts={
                "call": self.ctx.called(node),
                "argument": argument,
                "kind": found.kind,
                "stage": self.ctx.stage,
            },
        )


# What the visitor cannot see: the name is a field, or comes from a helper or another file.
_OWN = {
    "clock": (CLOCK, "the clock"),
    "unique": (RANDOM, "a random number"),
    "loss": (DATA, "a number of the rank's own data"),
    "rank": (RANKED, "the rank"),
}
# What a number of the data is called that scripts put into the names of their checkpoints.
_SCORE = re.compile(r"(?i)loss|metric|acc|score|perplexity|ppl|wer\b|bleu|f1\b")
_SHARDED = ("deepspeed.", "accelerate.", "torch.distributed.checkpoint.")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on checkpoints that each rank names for itself."""
    if run.context.is_one_process:
        return
    for found in run.happenings("saves-collective"):
        event = found.event
        is_shared_out = event.api.startswith(_SHARDED) and event.api.rpartition(".")[2] in _SAVES
        if is_shared_out and "no_dist" not in event.arguments:
            yield from _of_checkpoint(run, event)


def _of_checkpoint(run: RunQuery, event: Event) -> Iterator[Finding]:
    if event.lanes != run.machine.worlds.full or "tag_validation" in event.module.source.text:
        return
    for name in ("tag", str(row_of(run, event).get("path", ""))):
        kind = _kind(event, name)
        if kind is not None and (kind != "unique" or not run.has("seeds")):
            argument = "tag" if name == "tag" else "folder"
            harm = "so that no folder may hold all of its parts"
            yield _told(run, event, name, kind, f"{argument} of the checkpoint", harm)
            return


def _kind(event: Event, name: str) -> str | None:
    """What makes an argument each rank's own, for certain."""
    causes, _, models = event.snapshot.get(name, (LOST, 0, frozenset()))
    is_loss = bool(models) or any(_SCORE.search(text) for text in written_as(event, event.nodes.get(name)))
    # What unknown code makes of the loss of the rank's own batch is its own, too.
    if causes & LOST or (causes & UNSURE and not (causes & DATA and is_loss)):
        return None
    found = next((kind for kind, (bits, _) in _OWN.items() if causes & bits), None)
    # The number of the epoch that a file holds is the same for all; a loss comes from the wrapped model.
    return found if found != "loss" or is_loss else None


def _told(run: RunQuery, event: Event, name: str, kind: str, what: str, harm: str) -> Finding:
    origin = event.origins.get(name)
    argument = what.partition(" ")[0]
    return run.finding(
        META,
        event.module,
        event.nodes.get(name) or event.node,
        f"The {what} holds {_OWN[kind][1]}, which may differ between the ranks, {harm}",
        hint="Make the name on rank 0 and broadcast it, or build it from the step or epoch",
        related=(origin[0].location(origin[1], "made by each rank for itself"),) if origin else (),
        severity=Severity.WARNING,
        varies=event.snapshot.get(name, (0,))[0],
        facts={"call": event.api.rpartition(".")[2], "argument": argument, "kind": kind, "stage": run.stage},
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
