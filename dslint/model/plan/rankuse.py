"""How a script trains with others: which call makes it one of several processes, where a launcher starts them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dslint.core.source import Location, SourceFile
from dslint.model.plan.mainpath import certain_events
from dslint.model.plan.questions import ranks_question
from dslint.model.plan.scriptrun import constant_of, near_sources, option_of, script_run
from dslint.model.plan.trainerdevices import is_trainer
from dslint.model.workspace import Workspace
from dslint.python.events import Event

# What trains, by a name of the library. A Trainer of transformers alone spreads over all GPUs of one process itself.
GROUP, ACCELERATE, LIGHTNING = "group", "accelerate", "lightning"
_WORDS = re.compile(r"\b(?:init_process_group|Accelerator|(?:pytorch_)?lightning)\b")
_SAYS_RANK = frozenset({"rank", "world_size", "store", "init_method"})
_TRAINS = re.compile(r"\.backward\(|\.fit\(|\.train\(\)")
# One process uses several GPUs, or starts others itself.
_USES_MORE = re.compile(
    r"(?<![Dd]istributed)(?<!Sharded)DataParallel\(|device_map|cuda:[1-9]|max_memory|PipelineModule|tensor_parallel_size"
    r"|\bspawn\(|start_processes|Process\(|os\.exec|notebook_launcher|elastic_launch|mpi4py|horovod|\bray\b|submitit"
    r"|subprocess"
)
_READS_SLURM = re.compile(r"SLURM_(?:PROCID|LOCALID|NTASKS)")
# The script, or something that it is told of, finds its rank without `RANK`.
_READS_SCHEDULER = re.compile(r"SLURM|OMPI_|PMI_|PMIX_|MV2_|[\"']RANK[\"']|idr_torch|submitit")


@dataclass(frozen=True, slots=True)
class RankUse:
    """The call that joins the other processes; ``by_slurm``: the script takes its rank from variables of Slurm.

    ``by_scheduler``: or of anything else that is not known to be missing there. ``is_certain``: every start of the
    script reaches it.
    """

    how: str
    location: Location
    by_slurm: bool
    by_scheduler: bool
    is_certain: bool


def rank_use(source: SourceFile, workspace: Workspace) -> RankUse | None:
    """How a script joins others; ``None`` where it does not, uses several GPUs by itself, or nobody can say."""
    if not source.path.endswith(".py"):
        return None
    texts = [found.text for found in near_sources(source, workspace)]
    if not any(map(_WORDS.search, texts)) or not any(map(_TRAINS.search, texts)) or any(map(_USES_MORE.search, texts)):
        return None
    run = script_run(source.path, workspace, ranks_question())
    found = [(how, event) for event in run.events if (how := _how(event))] if run is not None else []
    if run is None or not found or any("spawns" in event.tags for event in run.events):
        return None
    certain = {id(event.node) for event in certain_events(run)}
    how, event = next(((h, e) for h, e in found if id(e.node) in certain), found[0])
    by_slurm = how == LIGHTNING or any(map(_READS_SLURM.search, texts))
    by_scheduler = by_slurm or any(map(_READS_SCHEDULER.search, texts)) or bool(event.arguments.keys() & _SAYS_RANK)
    return RankUse(how, event.module.location(event.node), by_slurm, by_scheduler, id(event.node) in certain)


def _how(event: Event) -> str:
    if event.api in ("torch.distributed.init_process_group", "deepspeed.init_distributed"):
        return GROUP
    if event.api == "accelerate.Accelerator":
        return ACCELERATE
    return LIGHTNING if is_trainer(event) and not _is_single(event) else ""


def _is_single(event: Event) -> bool:
    """A Trainer of Lightning for one device, or one that is told by whom its processes are started.

    What an option decides is asked for each command (``trainerdevices.py``).
    """
    devices = event.arguments.get("devices")
    return "plugins" in event.arguments or (constant_of(devices) == 1 and not option_of(devices))
