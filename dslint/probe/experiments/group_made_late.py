"""A process group that the ranks make only after each has prepared its data alone.

Without a process group the ranks cannot wait for each other while the data set is made, so that they reach the
rendezvous (of ``deepspeed.initialize``, say) at different times: the first one gives up when the time-out is over. As
fixed, the group is made at the start, rank 0 prepares the data, and the others wait for it in a barrier.

The times are scaled: half a second stands for the time-out of the store (1800 s in the reports), and the late rank
prepares its data until the other one has given up. The arm shows what the time-out looks like, not that the data of a
project take so long.
"""

from __future__ import annotations

import os
import time

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="group-made-late",
    summary="the ranks reach the rendezvous at different times, and the first one gives up",
    rules=("DSL404", "DSL352"),
    one_host=True,
    proxy=True,
    expect=Expect((Kind.RAISE,), r"client socket has timed out|[Tt]imed out after .* waiting for clients"),
    cases=(
        Case("store-is-late", {"late": 0, "seconds": 1.0, "timeout": 0.5}),
        Case("client-is-late", {"late": 1, "seconds": 1.0, "timeout": 0.5}),
        Case("within-the-time-out", {"late": 1, "seconds": 0.5, "timeout": 20.0}, verdict=Verdict.INCONCLUSIVE),
    ),
)


def written(rank: RankApi) -> Json:
    """Each rank prepares its data, one of them for longer, and then makes the group."""
    from dslint.probe.parts.hosts import shared_port

    port, timeout = shared_port(rank), rank.params["timeout"]
    gave_up = os.path.join(rank.folder, "gave-up")
    if rank.index == rank.params["late"]:
        _prepare(rank)
        while timeout < rank.params["seconds"] and not os.path.exists(gave_up):
            time.sleep(0.1)
            rank.mark("prepares data")
    try:
        return _join(rank, port, timeout)
    finally:
        open(gave_up, "w").close()


def fixed(rank: RankApi) -> Json:
    """All make the group first; the others wait in a barrier for the rank that prepares the data."""
    import torch.distributed as dist

    from dslint.probe.parts.hosts import shared_port

    world = _join(rank, shared_port(rank), 60.0)
    if rank.index == rank.params["late"]:
        _prepare(rank)
    dist.barrier()
    return world


def _prepare(rank: RankApi) -> None:
    until = time.monotonic() + rank.params["seconds"]
    while time.monotonic() < until:
        time.sleep(0.2)
        rank.mark("prepares data")


def _join(rank: RankApi, port: int, timeout: float) -> Json:
    from datetime import timedelta

    import torch.distributed as dist

    from dslint.probe.parts.launcher import clean

    clean()
    os.environ.update(RANK=str(rank.index), WORLD_SIZE=str(rank.world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", timeout=timedelta(seconds=timeout))
    return dist.get_world_size()
