"""Whether a script joins a process group on its main path, with variables that only a launcher sets."""

from __future__ import annotations

import re

from dslint.core.source import Location, SourceFile
from dslint.model.plan.mainpath import certain_events
from dslint.model.plan.questions import group_question
from dslint.model.plan.scriptrun import script_run
from dslint.model.workspace import Workspace
from dslint.python.events import Event

_INIT = "torch.distributed.init_process_group"
# The script starts processes, sets the variables itself, or uses a library that finds them elsewhere (MPI, Slurm) ...
_FINDS_OUT = re.compile(
    r"spawn|multiprocessing|Process\(|subprocess|os\.execv|notebook_launcher|elastic_launch|deepspeed|mpi4py|SLURM_|OMPI_"
    r"|lightning|\bray\b|environ\.setdefault|environ\.update|putenv|load_dotenv"
    r"|environ\[[^\]]*\]\s*=[^=]|MASTER_ADDR"
    # A local rank that no launcher passes stays below 0.
    r"|local_?rank\s*(?:<\s*0|[!=]=\s*-\s*1|>=\s*0|>\s*-\s*1)"
)
# ... and what does so anywhere on its way.
_PREPARES = frozenset({"spawns", "runs-command", "sets-environment"})


def joins_group(source: SourceFile, workspace: Workspace) -> Location | None:
    """The call of ``init_process_group`` that every start of the script reaches, with ``RANK`` and its like unset.

    ``None`` when it may not be reached: behind a condition, a loop, a ``try`` or an early return; when the call itself
    says rank and size; and when the script may find out what it is in another way.
    """
    is_near = "init_process_group" in source.text and not _FINDS_OUT.search(source.text)
    run = script_run(source.path, workspace, group_question()) if is_near else None
    event = next((found for found in certain_events(run) if found.api == _INIT), None) if run is not None else None
    if run is None or event is None or not _asks_environment(event) or _FINDS_OUT.search(event.module.source.text):
        return None
    if any(before.tags & _PREPARES for before in run.events):
        return None
    return event.module.location(event.node)


def _asks_environment(event: Event) -> bool:
    """``init_method`` is ``env://``, and nobody says the rank."""
    if event.open or event.arguments.keys() & {"rank", "world_size", "store"}:
        return False
    method = event.arguments.get("init_method")
    return method is None or method.constants in ((None,), ("env://",))
