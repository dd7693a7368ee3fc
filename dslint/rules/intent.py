"""Whether a script is written for several processes, where no command says how many there are."""

from __future__ import annotations

import re

from dslint.core.source import Location, Span
from dslint.rules.runs import RunQuery

# What only a script for several processes has; a map for one process has the number of its device.
_SEVERAL = re.compile(
    r"[\"']LOCAL_RANK[\"']|\btorchrun\b|accelerate launch|main_process_first|ddp_find_unused_parameters"
    r"|init_process_group"
)
_SHARDS = ("full_shard", "shard_grad_op", "hybrid_shard")
_INTENDED = "the script is written for several processes"


def intends_several(run: RunQuery) -> tuple[Location, ...]:
    """Return the place where the code says that it runs in several processes; nothing where it may run in one."""
    if run.context.is_one_process:
        return ()
    for module in run.machine.program.modules():
        found = module.search(_SEVERAL)
        if found is not None:
            return (module.source.location(Span(*found.span()), _INTENDED),)
    for made in (happening.event for happening in run.happenings("training-arguments")):
        shards = made.arguments["fsdp"].constants if "fsdp" in made.arguments else None
        if shards and all(isinstance(word, str) and word.startswith(_SHARDS) for word in shards):
            return (run.location(made.module, made.node, _INTENDED),)
    return ()
