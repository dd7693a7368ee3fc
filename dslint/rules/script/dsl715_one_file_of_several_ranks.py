"""Several ranks write one file: the side of a test that was meant for a single process.

**What.** `if distributed and rank == 0: torch.save(...) else: torch.save(...)`, or `if rank != 0: torch.save(...)`,
with a path that is the same on all ranks. The `else` was written for a run of one process, and in a run of several
every rank but one comes there.

**Why it hurts.** Ranks 1 and up, and rank 0 by the other side, write one file at the same time. The last one wins, or
the file holds parts of several: `invalid header or archive is corrupted` when it is loaded. The keys are those of
the wrapper, with `module.` in front, where the other side takes the model out of it.

**Fix.** Ask for the rank first and for the model inside: `if rank == 0: torch.save((model.module if distributed else
model).state_dict(), path)`.

**When it stays quiet.** A test that lets one rank through, and all where there is one process only (`if not
distributed or rank == 0:`); two or more tests of the rank in the way, or one of which not all is known; paths that
differ by rank; locks; writers of libraries that take care of the rank themselves; scripts of one process.

**Evidence.** DSL277 on two gloo ranks: a file that both write holds the results of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.ranks.everyrank import row_of
from dslint.rules.ranks.severalranks import several_arrivals
from dslint.rules.ranks.touchedpaths import does_to_path, is_shared_path, path_of
from dslint.rules.runs import RunQuery

META = RuleMeta(
    code="DSL715",
    name="one-file-of-several-ranks",
    kind="script",
    severity=Severity.WARNING,
    summary="the other side of a test for rank 0 writes one file on several ranks: it may hold parts of several",
    markers=(r"torch|accelerat|deepspeed|lightning|horovod|mmengine", r"rank|is_main|is_master|is_local"),
    references=("https://github.com/DLLXW/baby-llama2-chinese/pull/56",),
    depends_on_run=True,
    no_experiment="it takes three ranks, and DSL277 shows on two what becomes of a file that several write",
)
_MESSAGES = {
    "write": "Several ranks take this side of the test, and write one file at the same time: it may hold parts of each",
    "remove": "Several ranks take this side of the test and remove one path: the second gets `FileNotFoundError`",
    "move": "Several ranks take this side of the test and move one path: the second gets `FileNotFoundError`",
}


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on each file that two or more ranks change, where one rank goes another way."""
    if run.context.is_one_process:
        return
    for found, test in several_arrivals(run, "saves", "opens", "removes", "moves-file"):
        event, row = found.event, row_of(run, found.event)
        does, name = does_to_path(found, row), str(row.get("path", ""))
        if does not in _MESSAGES or not is_shared_path(run, event, name, frozenset()):
            continue
        yield run.finding(
            META,
            event.module,
            event.node,
            _MESSAGES[does],
            hint="Ask for the rank first, and for the wrapped model inside of that",
            related=(
                run.location(test.module, test.node, "of several processes, all but one go this way"),
                run.location(found.start.module, found.start.node, "here the run has several processes"),
            ),
            varies=event.snapshot[name][0],
            same=(path_of(event, name),),
            facts={"does": does},
        )


_TEXT = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(model, path, distributed):
    if %s:
        torch.save(%s.state_dict(), path)
%s

def main():
    distributed = int(os.environ.get("WORLD_SIZE", 1)) > 1
    model = torch.nn.Linear(8, 8)
    if distributed:
        dist.init_process_group("nccl")
        model = DistributedDataParallel(model)
    for epoch in range(3):
        save(model, f"epoch_{epoch}.pt", distributed)


main()
"""
_ELSE = "    else:\n        torch.save(model.state_dict(), path)\n"
_AFTER = "        return\n    torch.save(model.state_dict(), path)\n"
_TEST = "distributed and dist.get_rank() == 0"

EXAMPLES = (
    bad("the side for a single process", {"train.py": _TEXT % (_TEST, "model.module", _ELSE)}, "train.py:12"),
    bad("what comes after a return", {"train.py": _TEXT % (_TEST, "model.module", _AFTER)}, "train.py:12"),
    bad("the wrong way round", {"train.py": _TEXT % ("distributed and dist.get_rank() != 0", "model.module", "")},
        "train.py:10"),
    good("one rank, or the only process", {
        "train.py": _TEXT % ("not distributed or dist.get_rank() == 0", "getattr(model, 'module', model)", "")}),
    good("rank 0 alone, and a single process by itself", {
        "train.py": _TEXT % (_TEST, "model.module", _ELSE.replace("else", "elif not distributed"))}),
    good("a file for each rank", {
        "train.py": _TEXT % (_TEST, "model.module", _ELSE.replace("path)", "f'{path}.{dist.get_rank()}')"))}),
    good("one process", {"train.py": _TEXT % (_TEST, "model.module", _ELSE)}, world_size=1),
)  # fmt: skip
