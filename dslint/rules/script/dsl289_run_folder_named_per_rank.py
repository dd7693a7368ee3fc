"""Every rank names the folder of the run for itself, by its own clock or by chance.

**What.** A folder or file gets its name from the clock, a UUID or a random number in every process, and the ranks then
share it: rank 0 writes what all read, or all write their parts and rank 0 puts them together. The `output_dir` of a
Trainer is such a folder: rank 0 saves the model, each rank its random state and, under DeepSpeed or FSDP, its shards.
As an information: each rank only makes such a folder.

**Why it hurts.** The processes do not come to that line at the same moment. When they straddle a second, or loading
took longer on one of them, each has a name of its own: rank 0 finds no parts of the others, or the others look for a
checkpoint in a folder that rank 0 never wrote. It works in most short tests and fails after the long run.

**Fix.** Make the name on rank 0 and hand it on: `names = [stamp]; dist.broadcast_object_list(names, src=0)`. Or pass it
on the command line.

**When it stays quiet.** The name went through a broadcast; only one rank uses the folder; each rank reads only what it
has written itself; the name holds no more than the day; a random number where something seeds a generator.

**Evidence.** Two gloo ranks, the second one a second later, folder `time.strftime("%H%M%S")`: rank 0 finds one part of
two; with a broadcast name it finds both.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.python.events import Event
from dslint.python.paths import Component, own_part
from dslint.python.queries.files import LISTS, READS, WRITES, Use, uses
from dslint.python.varies import ASSUMED, CLOCK, LOST, RANKED
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import arrivals, row_of
from dslint.rules.ranks.intent import says_several
from dslint.rules.runs import RunQuery

if TYPE_CHECKING:
    from dslint.python.source import Module

META = RuleMeta(
    code="DSL289",
    name="run-folder-named-per-rank",
    kind="script",
    severity=Severity.WARNING,
    summary="every rank names the folder that they share by its own clock or by chance",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine",),
    references=(
        "https://github.com/open-compass/VLMEvalKit/pull/1546",
        "https://pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast_object_list",
    ),
    depends_on_run=True,
)
# A name that holds the day only is the same for all ranks of nearly every run.
_OUTPUT = "output_dir"
_DAY = re.compile(r"%[YymdbBj]|today\(\)")
_TIME = re.compile(r"%[HIMSfsTXcpR]|isoformat|time\.time|time_ns|timestamp|ctime|asctime|perf_counter")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on names that each rank makes for itself and that ranks then share."""
    if run.context.is_one_process:
        return
    told: set[int] = set()
    for _, tree in run.trees():
        folders: dict[tuple[Component, ...], list[Use]] = {}
        for use in uses(run.machine, tree):
            at = own_part(use.path)
            if at is not None:
                folders.setdefault(use.path[: at + 1], []).append(use)
        for found in folders.values():
            pair = next(_shared(run, found), None)
            if pair is not None:
                yield from _finding(run, pair, told)
    yield from _of_trainers(run, told)
    yield from _made_alone(run, told)


def _of_trainers(run: RunQuery, told: set[int]) -> Iterator[Finding]:
    """Yield the output folders of trainers that the clock names: rank 0 saves in one, the others in theirs."""
    for found in run.happenings("training-arguments"):
        event = found.event
        causes, origin = event.snapshot.get(_OUTPUT, (0,))[0], event.origins.get(_OUTPUT)
        is_own = causes & CLOCK and not causes & (RANKED | LOST | ASSUMED) and not event.may
        if not is_own or event.lanes != run.machine.worlds.full or origin is None or id(origin[1]) in told:
            continue
        told.add(id(origin[1]))
        if not _is_day(*origin):
            yield run.finding(
                META,
                *origin,
                "Each rank names the output folder by its own clock: rank 0's checkpoint lacks the states of the"
                " others",
                hint="Pass the name on the command line, or make it on rank 0 and broadcast it",
                related=(run.location(event.module, event.nodes.get(_OUTPUT, event.node), "the folder of each rank"),),
                severity=None if says_several(run, run.machine.program.modules()) else Severity.INFO,
                facts={"merged": False},
            )


def _shared(run: RunQuery, found: list[Use]) -> Iterator[tuple[Use, Use]]:
    """Yield a write and a read by which one rank needs what another one has written in "the same" folder."""
    full = run.machine.worlds.full
    for first in found:
        if first.does != WRITES or first.event.may:
            continue
        for second in found:
            if second.does not in (READS, LISTS) or second.event.may:
                continue
            one, two = first.event.lanes, second.event.lanes
            is_part = bool(_varies(first) & RANKED)
            if one != full and two & ~one and first.path == second.path:
                yield first, second  # one writes it for all
            elif one == full and two != full and (is_part or second.does == LISTS) and _meets(first, second):
                yield first, second  # all write their parts for one


def _meets(part: Use, whole: Use) -> bool:
    folder = whole.path if whole.does == LISTS else whole.path[:-1]
    return part.path[: len(folder)] == folder


def _varies(use: Use) -> int:
    found = use.event.varies
    for bits, _, _ in use.event.snapshot.values():
        found |= bits
    return found


def _finding(run: RunQuery, pair: tuple[Use, Use], told: set[int]) -> Iterator[Finding]:
    first, second = pair
    origin = _origin(run, second.event)
    if origin is None or id(origin[1]) in told or _is_day(*origin) or _is_seeded(run, pair):
        return
    told.add(id(origin[1]))
    is_merge = first.event.lanes == run.machine.worlds.full
    yield run.finding(
        META,
        *origin,
        "Each rank makes this name for itself, and the ranks then look for each other's files under it",
        hint="Make the name on rank 0 and broadcast it",
        related=(
            run.location(first.event.module, first.event.node, "every rank writes its part" if is_merge else "written"),
            run.location(second.event.module, second.event.node, "read under the name of another process"),
        ),
        facts={"merged": is_merge},
    )


def _made_alone(run: RunQuery, told: set[int]) -> Iterator[Finding]:
    for arrival in arrivals(run, "makes-folder"):
        event = arrival.event
        name = str(row_of(run, event).get("path", ""))
        causes = event.snapshot.get(name, (0,))[0]
        origin = _origin(run, event)
        if not causes & CLOCK or causes & (RANKED | LOST | ASSUMED) or origin is None or id(origin[1]) in told:
            continue
        told.add(id(origin[1]))
        if not _is_day(*origin):
            yield run.finding(
                META,
                *origin,
                "Each rank names this folder by its own clock: each may create its own",
                hint="Make the name on rank 0 and broadcast it",
                related=(run.location(event.module, event.node, "made here, by every rank"),),
                severity=Severity.INFO,
            )


def _origin(run: RunQuery, event: Event) -> tuple[Module, ast.AST] | None:
    """Return where the path of an event becomes each rank's own."""
    return event.origins.get(str(row_of(run, event).get("path", "")))


def _is_day(module: Module, node: ast.AST) -> bool:
    text = module.text(module.statement(node))
    if _DAY.search(text) or _TIME.search(text) or "strftime" not in text:
        return bool(_DAY.search(text)) and not _TIME.search(text)
    # The format is written elsewhere: any that the module holds may be the one.
    formats = (n.value for n in module.nodes_of(ast.Constant) if isinstance(n.value, str))
    return any(_DAY.search(each) and not _TIME.search(each) for each in formats)


def _is_seeded(run: RunQuery, pair: tuple[Use, Use]) -> bool:
    return not _varies(pair[1]) & CLOCK and run.has("seeds")


_RUNS = """\
import json
import time
from pathlib import Path


class Run:
    def __init__(self, root, rank):
        self.rank = rank
        self.folder = Path(root) / %s
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, rows):
        with open(self.folder / f"part{self.rank}.json", "w") as file:
            json.dump(rows, file)

    def merge(self, count):
        return [json.loads((self.folder / f"part{r}.json").read_text()) for r in range(count)]
"""
_INFER = """\
import torch.distributed as dist

from runs import Run


def main(args, rows):
    dist.init_process_group("gloo")
    run = Run(args.root, dist.get_rank())
%s    run.write(rows)
    dist.barrier()
    if dist.get_rank() == 0:
        print(run.merge(dist.get_world_size()))
"""
_BEST = """\
import os
import uuid
from datetime import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(args, net, loader):
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
%s
    best = f"{args.out}/{name}/best.pt"
    model = DDP(net.cuda())
    if dist.get_rank() == 0:
        torch.save(net.state_dict(), best)
    dist.barrier()
    net.load_state_dict(torch.load(best, map_location="cpu"))
"""
_CLOCK = '    name = datetime.now().strftime("%Y%m%d_%H%M%S")'
_FOLDER = """\
import os
import time

import torch.distributed as dist


def main(args, model):
    dist.init_process_group("gloo")
    folder = os.path.join(args.out, time.strftime("%H%M%S"))
    os.makedirs(folder, exist_ok=True)
"""
_HANDED = "    names = [run.folder]\n    dist.broadcast_object_list(names, src=0)\n    run.folder = names[0]\n"

_TRAINED = """\
import os
import time
from dataclasses import dataclass
from datetime import datetime

from accelerate.utils import broadcast_object_list
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Settings:
    root: str = "runs"
    name: str = "tuned"


def folder(settings):
    stamp = %s
    return os.path.join(settings.root, f"{settings.name}_{stamp}")


def main(data):
    (settings,) = HfArgumentParser(Settings).parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    trainer = Trainer(model, TrainingArguments(output_dir=folder(settings), num_train_epochs=1), train_dataset=data)
    trainer.train()
    if trainer.is_world_process_zero():
        print("done")
"""

EXAMPLES = (
    bad("the output folder of a trainer", {"train.py": _TRAINED % 'f"{time.time():.2f}"'}, "train.py:17 warning"),
    bad("and by the second", {"train.py": _TRAINED % 'datetime.now().strftime("%Y%m%d-%H%M%S")'}, "train.py:17"),
    good("by the day", {"train.py": _TRAINED % 'datetime.now().strftime("%Y%m%d")'}),
    good("the clock of rank 0", {"train.py": _TRAINED % 'broadcast_object_list([f"{time.time():.2f}"])[0]'}),
    bad("all write their parts, and rank 0 merges them: a class in another file",
        {"runs.py": _RUNS % 'time.strftime("%H%M%S")', "infer.py": _INFER % ""}, "runs.py:9 warning"),
    bad("rank 0 saves what all load", {"train.py": _BEST % _CLOCK}, "train.py:13 warning"),
    bad("a name by chance", {"train.py": _BEST % "    name = uuid.uuid4().hex"}, "train.py:13 warning"),
    bad("each rank makes a folder", {"train.py": _FOLDER}, "train.py:9 info"),
    good("the name went through a broadcast", {
        "runs.py": (_RUNS % 'time.strftime("%H%M%S")').replace(
            "        self.folder.mkdir(parents=True, exist_ok=True)\n", ""), "infer.py": _INFER % _HANDED,
        "train.py": _BEST % (
            _CLOCK + "\n    names = [name]\n    dist.broadcast_object_list(names)\n    name = names[0]")}),
    good("the name of the run comes from outside", {
        "runs.py": _RUNS % "root.name", "infer.py": _INFER % "", "train.py": _BEST % "    name = args.name"}),
    good("the day", {"train.py": _BEST % '    name = datetime.now().strftime("%Y%m%d")'}),
    good("each rank reads its own", {"train.py": (_BEST % _CLOCK).replace(
        'f"{args.out}/{name}/best.pt"', 'f"{args.out}/{name}/{dist.get_rank()}.pt"').replace(
        "    if dist.get_rank() == 0:\n    ", "")}),
    good("one process", {"train.py": _BEST % _CLOCK}, world_size=1),
)  # fmt: skip
