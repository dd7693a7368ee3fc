"""Calls that take a process-group timeout, and how to write a ``timedelta`` in a given file."""

from __future__ import annotations

import libcst as cst

from dslint.core.fix import Edit
from dslint.core.source import Span
from dslint.model.script.names import Names

# Calls that create the default process group, with the position of ``timeout`` where it may be positional.
# torch: distributed_c10d.init_process_group(backend, init_method, timeout, ...);
# DeepSpeed: comm/comm.py init_distributed(dist_backend, auto_mpi_discovery, distributed_port, verbose, timeout, ...).
GROUP_CREATORS: dict[str, int] = {
    "torch.distributed.init_process_group": 2,
    "torch.distributed.distributed_c10d.init_process_group": 2,
    "deepspeed.comm.init_process_group": 2,
    "deepspeed.init_distributed": 4,
    "deepspeed.comm.init_distributed": 4,
    "deepspeed.comm.comm.init_distributed": 4,
}
# Further calls that hand their timeout to one of these.
OTHER_TAKERS: dict[str, int | None] = {
    "torch.distributed.new_group": 1,
    "torch.distributed.new_subgroups": 2,
    "torch.distributed.new_subgroups_by_enumeration": 1,
    "torch.distributed.split_group": 2,
    "torch.distributed.monitored_barrier": 1,
    "deepspeed.comm.new_group": None,
    "deepspeed.comm.monitored_barrier": 1,
    "deepspeed.comm.comm.monitored_barrier": 1,
    "accelerate.InitProcessGroupKwargs": None,
    "accelerate.utils.InitProcessGroupKwargs": None,
    "accelerate.utils.dataclasses.InitProcessGroupKwargs": None,
    "accelerate.PartialState": None,
    "accelerate.state.PartialState": None,
}
# Strategies of Lightning hand their timeout to torch (or DeepSpeed) as it is: strategies/ddp.py setup_distributed.
OTHER_TAKERS |= {
    f"{root}.strategies.{name}": None
    for root in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric")
    for name in ("DDPStrategy", "FSDPStrategy", "DeepSpeedStrategy")
}
# Takes a float as seconds, with a warning; an integer raises (torch 2.13).
FLOAT_TAKERS = frozenset(
    {
        *("torch.distributed.monitored_barrier", "deepspeed.comm.monitored_barrier"),
        "deepspeed.comm.comm.monitored_barrier",
    }
)
TIMEDELTA = "datetime.timedelta"
# The last parts of all these names, for the cheap look before a full parse.
TIMEOUT_TAKERS = frozenset(name.rsplit(".", 1)[-1] for name in (*GROUP_CREATORS, *OTHER_TAKERS))


def timeout_position(name: str | None) -> tuple[bool, int | None]:
    """Whether a call takes a process-group timeout, and its position (``None``: keyword only)."""
    if name in GROUP_CREATORS:
        return True, GROUP_CREATORS[name]
    if name in OTHER_TAKERS:
        return True, OTHER_TAKERS[name]
    return False, None


def timedelta_spelling(names: Names, at: cst.CSTNode) -> str | None:
    """How this file spells ``datetime.timedelta`` at a node; ``None`` when it imports neither."""
    for name, binding in names.all_bindings():
        if binding.kind == "import" and binding.target == TIMEDELTA and _means(names, name, at, TIMEDELTA):
            return name
    for name, binding in names.all_bindings():
        if binding.kind == "import" and binding.target == "datetime" and _means(names, name, at, "datetime"):
            return f"{name}.timedelta"
    return None


def _means(names: Names, name: str, at: cst.CSTNode, target: str) -> bool:
    found = names.bindings(name, at)
    return bool(found) and all(b.kind == "import" and b.target == target for b in found)


def import_edit(path: str, text: str) -> Edit:
    """Insert ``from datetime import timedelta`` before the first import that stands at the start of a line."""
    offset = 0
    for line in text.splitlines(keepends=True):
        if line.startswith(("import ", "from ")) and not line.startswith("from __future__"):
            newline = "\r\n" if line.endswith("\r\n") else "\n"
            return Edit(path, Span(offset, offset), f"from datetime import timedelta{newline}")
        offset += len(line)
    return Edit(path, Span(0, 0), "from datetime import timedelta\n")
