"""Whether a script is written for several processes, where no command says how many there are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dslint.core.source import Location, Span
from dslint.rules.runs import RunQuery

if TYPE_CHECKING:
    from dslint.python.source import Module

# What only a script for several processes has; a map for one process has the number of its device.
_SEVERAL = re.compile(
    r"[\"']LOCAL_RANK[\"']|\btorchrun\b|accelerate launch|main_process_first|ddp_find_unused_parameters"
    r"|init_process_group"
)
# Words that a script for several processes has, and one for a single process may have, too.
_WORDS = re.compile(
    r"(?i)local_rank|world_size|torchrun|\bddp\b|fsdp|deepspeed|torch\.distributed|accelerate"
    r"|process_zero|process_index|main_process"
)
_SHARDS = ("full_shard", "shard_grad_op", "hybrid_shard")
_INTENDED = "the script is written for several processes"


def says_several(run: RunQuery, modules: Iterable[Module]) -> bool:
    """Return whether a command starts several processes, or some files of the script have words for them."""
    told = bool(run.context.launches) or run.context.world_size.get_or(0) > 1
    return told or any(module.search(_WORDS) for module in modules)


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
