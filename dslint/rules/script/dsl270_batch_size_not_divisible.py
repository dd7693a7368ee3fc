"""**What.** A batch (or list of prompts) that the script divides among the ranks has a known size that is not a
multiple of the known number of ranks.

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
from collections.abc import Iterator
from typing import NamedTuple

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.python.events import Event
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.data import shares
from dslint.rules.ranks import parted
from dslint.rules.runs import RunQuery
from dslint.rules.training.training import constant_of

META = RuleMeta(
    code="DSL270",
    name="batch-size-not-divisible",
    kind="script",
    severity=Severity.WARNING,
    summary="A batch that is divided among the ranks is not a multiple of the world size",
    markers=(r"world_size|num_processes|WORLD_SIZE|split_between_processes", r"torch\.distributed|deepspeed|accelerat"),
    references=(
        "https://github.com/OpenBMB/MiniCPM-V/issues/769",
        "https://github.com/OpenRLHF/OpenRLHF/issues/427",
    ),
    depends_on_run=True,
)

# Numbers of items that a script gives to a model at once; others (`hidden_size // world_size`) divide a model.
_ITEMS = re.compile(r"batch|prompt|request|question", re.I)
_INFERS = re.compile(r"\.chat\(|init_inference\(|inference_mode\(")
_TRAINS = ("backward", "engine-backward", "trainer", "trainer-train", "zero-grad", "optimizer-step", "named-step")


class _Cut(NamedTuple):
    """What is divided, with its size, and whether the remainder is left out (`//`) or goes to some ranks."""

    whole: ast.expr
    size: int
    is_number: bool
    is_floor: bool


def applies(_: str, context: Context) -> bool:
    """Without a known world size nothing can be said, whatever the script holds."""
    return context.world_size.is_known


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on what is divided among the ranks and does not come out even."""
    world = run.context.world_size.get_or(0)
    if world < 2 or run.has("asks-rest"):
        return
    # The loop over it is the mistake, and has a finding of its own.
    told = {id(shares.cut(run, parting)[1]) for parting in parted.partings(run) if shares.is_uneven(run, parting)}
    for found in run.happenings("shares", "shards-data"):
        cut = _cut(found.event)
        if cut is not None and cut.size % world and id(found.event.node) not in told:
            yield _finding(run, found.event, cut, world)


def _cut(event: Event) -> _Cut | None:
    """Return what an event divides, where its size is known and greater than zero."""
    if "shards-data" in event.tags:
        listed, whole = event.members, event.nodes.get("inputs")
        padded = event.arguments.get("apply_padding")
        is_padded = event.open or (padded is not None and padded.constants != (False,))
        if len(listed) != 1 or not listed[0] or whole is None or is_padded:
            return None
        return _Cut(whole, len(listed[0]), False, False)
    whole, size = event.nodes["whole"], constant_of(event.arguments["size"])
    if type(size) is not int or size <= 0:
        return None
    form = event.api.rpartition(".")[2]
    is_division = form in ("floor", "divide")
    if is_division and not (isinstance(whole, ast.Call | ast.Subscript) or _ITEMS.search(_name(whole))):
        return None
    return _Cut(whole, size, is_division or form == "range", form == "floor")


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _finding(run: RunQuery, event: Event, cut: _Cut, world: int) -> Finding:
    size, rest = cut.size, cut.size % world
    origins = run.context.world_size.origins
    places = _places_at_stage_3(run)
    text = run.text(event.module, cut.whole)
    what = f"`{text}` is {size}" if cut.is_number else f"`{text}` has {size} items"
    return run.finding(
        META,
        event.module,
        event.node,
        f"{what}, not a multiple of the {world} ranks: {size} = {size // world} x {world} + {rest}, "
        + _loss(rest if cut.is_floor else 0, places is not None),
        severity=Severity.INFO if places is None else Severity.WARNING,
        related=(*origins, *(places or ())),
        hint=f"Use {-(-size // world) * world}, or pad so that every rank runs equally often",
        facts={"size": size, "world": world, "form": "floor" if cut.is_floor else "deal", "stage": run.stage},
    )


def _places_at_stage_3(run: RunQuery) -> tuple[Location, ...] | None:
    """Return where stage 3 is stated, when the script generates or predicts with it and trains nothing."""
    stage, places = run.stages.stated
    texts = (entry.module.code for entry in run.entries)
    infers = run.has("generate") or any(_INFERS.search(text) for text in dict.fromkeys(texts))
    return places if stage == 3 and infers and not run.has(*_TRAINS) else None


def _loss(left_out: int, sharded: bool) -> str:
    """What comes of it: ``left_out`` items after a floor division, 0 when the items are dealt out one by one."""
    if left_out:
        what = f"so `//` drops {left_out} of them"
        return what + (" and ZeRO-3 may hang" if sharded else "")
    return "so ranks run unequally often" + (" and ZeRO-3 hangs in the last gather" if sharded else "")


_ZERO3 = "config = {'train_micro_batch_size_per_gpu': 1, 'zero_optimization': {'stage': 3}}\n"

_STARTS = "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"
_GENERATES = (
    "import deepspeed\nfrom deal import share\n\n" + _ZERO3 + "\n\ndef main(model):\n"
    "    prompts = ['a', 'b', 'c', 'd', 'e', 'f', 'g']\n"
    "    engine = deepspeed.initialize(model=model, config=config)[0]\n"
    "    return engine.module.generate(share(prompts), synced_gpus=True)\n"
)

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
                _STARTS + "PROMPTS = ['a', 'b', 'c']\nmine = PROMPTS[dist.get_rank() :: dist.get_world_size()]\n"
            )
        },
        at="infer.py:5 info",
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
    bad(
        "a helper of another file distributes the prompts of the script",
        {
            "infer.py": _GENERATES,
            "deal.py": (
                "import torch.distributed as dist\n\n\ndef share(items):\n"
                "    return items[dist.get_rank() :: dist.get_world_size()]\n"
            ),
        },
        at="deal.py:5 warning",
        world_size=4,
    ),
    good(
        "a helper of another file distributes as many prompts for each rank",
        {
            "infer.py": _GENERATES.replace("'f', 'g'", "'f', 'g', 'h'"),
            "deal.py": (
                "import torch.distributed as dist\n\n\ndef share(items):\n"
                "    return items[dist.get_rank() :: dist.get_world_size()]\n"
            ),
        },
        world_size=4,
    ),
    good(
        "a model that is divided",
        {"model.py": (_STARTS + "hidden_size = 6\nper_rank = hidden_size // dist.get_world_size()\n")},
        world_size=4,
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
        {"infer.py": (_STARTS + "batch_size = 8\nper_rank = batch_size // dist.get_world_size()\n")},
        world_size=4,
    ),
    good(
        "the remainder is checked",
        {
            "infer.py": (
                _STARTS + "batch_size = 6\nworld_size = dist.get_world_size()\n"
                "assert batch_size % world_size == 0\nper_rank = batch_size // world_size\n"
            )
        },
        world_size=4,
    ),
    good(
        "the world size is not known",
        {"infer.py": (_STARTS + "batch_size = 6\nper_rank = batch_size // dist.get_world_size()\n")},
    ),
)
