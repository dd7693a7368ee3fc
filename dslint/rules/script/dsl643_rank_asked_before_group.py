"""A script asks whether it is the main process before there is a process group: every process believes it is rank 0.

**What.** `if not dist.is_initialized() or dist.get_rank() == 0:`, itself or in a helper, decides over `wandb.init`, a
file or a folder, and the group (`Accelerator()`, `init_process_group`) is made only further down.

**Why it hurts.** Until the group is there the first half of the test is true in each process. Each of the eight ranks
starts a run of its own at the tracker, or removes and writes the same file.

**Fix.** Make the group first, or ask the launcher: `os.environ.get("RANK", "0") == "0"`.

**When it stays quiet.** A group that may be there before; scripts that make none; answers that do not depend on
whether there is a group; anything but starting a run of a tracker, writing and removing.

**Evidence.** `is_initialized()` of torch 2.13 is false until `init_process_group`, which `Accelerator()` calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from dslint.core.finding import Finding, Severity
from dslint.python.events import Alt, Event, events
from dslint.python.values import Const, PerRank
from dslint.python.varies import RANK
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery, happenings_of

META = RuleMeta(
    code="DSL643",
    name="rank-asked-before-group",
    kind="script",
    severity=Severity.WARNING,
    summary="every process believes it is rank 0, since nothing has made the process group yet",
    markers=(r"is_initialized|is_available", r"init|Accelerator|TrainingArguments"),
    references=(
        "https://pytorch.org/docs/stable/distributed.html#torch.distributed.is_initialized",
        "https://github.com/NVIDIA-BioNeMo/bionemo-recipes/pull/1166",
    ),
    depends_on_run=True,
    no_experiment="that no group is there before it is made can be seen without a run",
)
_DOES = frozenset({"starts-run", "saves", "removes", "moves-file"})
_ASKS = "is_initialized"


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire on what one process should do, where the test for it comes before the group."""
    if run.context.is_one_process:
        return
    for entry, tree in run.trees():
        if entry.kind != "script":
            continue
        started: Event | None = next((event for event in events(tree) if "starts-group" in event.tags), None)
        if started is None or started.may:
            continue
        for found in happenings_of(tree, entry):
            if found.event is started:
                break
            test = _test(found) if found.event.tags & _DOES and found.event.varies & RANK else None
            if test is not None:
                yield _finding(run, found.event, test, started)


def _test(found: Happening) -> Alt | None:
    """Return the test that lets every process pass where no group is there."""
    for alt, side in pairwise([*found.around, found.event]):
        if not isinstance(alt, Alt) or alt.test is None or not _asks(alt):
            continue
        passes = any(node is side for node in alt.then.items)
        constants = [atom.value for atom in alt.test.atoms if isinstance(atom, Const)]
        is_by_rank = any(isinstance(atom, PerRank) for atom in alt.test.atoms)
        if is_by_rank and constants == [passes] and len(alt.test.atoms) == len(constants) + 1:
            return alt
    return None


def _asks(alt: Alt) -> bool:
    """Return whether a test asks for the group itself, or calls a function of the same module that does."""
    text = alt.module.text(getattr(alt.node, "test", alt.node))
    return _ASKS in text or ("(" in text and _ASKS in alt.module.code)


def _finding(run: RunQuery, event: Event, test: Alt, started: Event) -> Finding:
    asked = run.text(test.module, getattr(test.node, "test", test.node))
    return run.finding(
        META,
        event.module,
        event.node,
        f"`{asked}` runs before there is a process group: every process believes it is rank 0",
        hint='Make the process group first, or ask the launcher: `os.environ.get("RANK", "0") == "0"`',
        related=(run.location(started.module, started.node, "the group is made here"),),
    )


_SCRIPT = """\
import torch.distributed as dist
import wandb
from accelerate import Accelerator


def is_main():
    return not dist.is_initialized() or dist.get_rank() == 0


def start(project):
    if %s:
        wandb.init(project=project)


def main(model, loader):
    %s
    model, loader = accelerator.prepare(model, loader)
    for batch in loader:
        accelerator.backward(model(batch))


main(load_model(), load_data())
"""
_LATE = "start('x')\n    accelerator = Accelerator()"
_EARLY = "accelerator = Accelerator()\n    start('x')"
_WRITTEN = "not dist.is_initialized() or dist.get_rank() == 0"

EXAMPLES = (
    bad("a tracker that starts first", {"train.py": _SCRIPT % (_WRITTEN, _LATE)}, at="train.py:12 warning"),
    bad("by a helper", {"train.py": _SCRIPT % ("is_main()", _LATE)}, at="train.py:12 warning"),
    good("the group first", {"train.py": _SCRIPT % (_WRITTEN, _EARLY)}),
    good("the launcher is asked", {"train.py": _SCRIPT % ("os.environ.get('RANK', '0') == '0'", _LATE)}),
    good(
        "the group may be there before",
        {
            "train.py": (_SCRIPT % (_WRITTEN, _LATE)).replace(
                "    start('x')", "    dist.init_process_group()\n    start('x')"
            )
        },
    ),
)
