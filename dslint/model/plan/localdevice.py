"""Whether a script takes its device by the number of its task on the node."""

from __future__ import annotations

import re

from dslint.core.source import Location, SourceFile
from dslint.model.plan.mainpath import certain_events
from dslint.model.plan.questions import device_question
from dslint.model.plan.scriptrun import ScriptRun, near_sources, script_run
from dslint.model.workspace import Workspace
from dslint.python.events import Event
from dslint.python.values import Atom, Instance, PerRank

_BY_SLURM = re.compile(r"""["']SLURM_(?:LOCALID|PROCID)["']""")
_TAKES = re.compile(r"\bset_device\(")
# The module asks how many devices there are, or which, or is told by another launcher.
_COUNTS = re.compile(r"device_count|_VISIBLE_DEVICES|GPUS_PER|[\"']LOCAL_RANK[\"']|is_local|gpus_per")
_DEVICE = re.compile(r"cuda:(\d+)")


def local_device(source: SourceFile, workspace: Workspace) -> Location | None:
    """Where every start of the script, under Slurm, takes a device above 0 in the tasks above 0 of a node."""
    if not source.path.endswith(".py"):
        return None
    texts = [found.text for found in near_sources(source, workspace)]
    if not any(map(_BY_SLURM.search, texts)) or not any(map(_TAKES.search, texts)):
        return None
    run = script_run(source.path, workspace, device_question())
    if run is None or any(_COUNTS.search(text) for text in texts if _TAKES.search(text) or _BY_SLURM.search(text)):
        return None
    for event in certain_events(run):
        if event.api == "torch.cuda.set_device":
            return event.module.location(event.node) if _is_by_task(run, event) else None
    return None


def _is_by_task(run: ScriptRun, event: Event) -> bool:
    """The number is above 0 wherever the task is not the first one of its node."""
    atom = _single(event, ("device",))
    if isinstance(atom, Instance):
        made = next((e for e in run.events if e.node is atom.node and e.api == "torch.device"), None)
        atom = _single(made, ("1", "index", "0", "device", "type")) if made is not None else None
    if not isinstance(atom, PerRank):
        return False
    numbers = [_number(value) for value in atom.values]
    lanes = run.analysis.machine.worlds.lanes
    return all(number is not None and (number > 0 or not lane[1]) for number, lane in zip(numbers, lanes, strict=True))


def _single(event: Event, names: tuple[str, ...]) -> Atom | None:
    """What the first of these arguments that is given certainly holds."""
    value = next((event.arguments[name] for name in names if name in event.arguments), None)
    return value.single if value is not None else None


def _number(value: object) -> int | None:
    if isinstance(value, str):
        found = _DEVICE.fullmatch(value)
        return int(found[1]) if found else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
