"""One rank comes later to a collective than the timeout of the process group allows.

As written the timeout is shorter than the delay of the late rank; as fixed it is longer. Both are scaled down: the
late rank sleeps 2 s, and the timeout is 1 s against 15 s, where a job has minutes to hours. What is shown is the
mechanism, that the timeout decides whether a late rank is waited for: not that a certain job has so late a rank.

A timeout cures a rank that is late. It does not cure a rank that never comes (the last case: the long timeout only
delays the error, so that the "fixed" arm fails as well and nothing is confirmed).
"""

from __future__ import annotations

import os
import time

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

LATE, SHORT, LONG = 2.0, 1.0, 15.0

EXPERIMENT = Experiment(
    name="rank-later-than-timeout",
    summary="the ranks that wait for a late one give up when the timeout of the process group is over",
    rules=("DSL223",),
    one_host=True,
    expect=Expect((Kind.RAISE,), r"Timed out waiting 1000ms|Timed out after \d+ seconds waiting for clients"),
    cases=(
        Case("barrier", {"op": "barrier", "late": LATE}),
        Case("all_gather", {"op": "all_gather", "late": LATE}),
        # torch adds a second to the timeout of the start.
        Case("start", {"op": "start", "late": LATE + 1.0}),
        Case("in-time", {"op": "barrier", "late": 0.0}, verdict=Verdict.NOT_REPRODUCED),
        Case("never", {"op": "barrier", "late": None}, verdict=Verdict.INCONCLUSIVE),
    ),
)


def written(rank: RankApi) -> Json:
    """A timeout that is shorter than the delay."""
    return _meet(rank, SHORT)


def fixed(rank: RankApi) -> Json:
    """A timeout that is longer."""
    return _meet(rank, LONG)


def _meet(rank: RankApi, timeout: float) -> Json:
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    op, late = rank.params["op"], rank.params["late"]
    if op == "start":
        _come_late(rank, late)
        dist.init_process_group(rank.backend, timeout=timedelta(seconds=timeout))
        return "process group made"
    rank.init()
    # Ready on both sides: what is late is the collective, not the start of a process.
    group = dist.new_group(timeout=timedelta(seconds=timeout))
    dist.barrier()
    if rank.index:
        if late is None:
            return "gone"
        time.sleep(late)
    if op == "barrier":
        dist.barrier(group)
    else:
        parts = [torch.zeros(2, device=rank.device) for _ in range(rank.world)]
        dist.all_gather(parts, torch.ones(2, device=rank.device), group=group)
    return "met"


def _come_late(rank: RankApi, seconds: float) -> None:
    """Return at once on rank 0; on the others so many seconds after rank 0 was here."""
    here = os.path.join(rank.folder, "rank 0 is here")
    if rank.index == 0:
        with open(here, "w"):
            return
    while not os.path.exists(here):
        time.sleep(0.02)
    time.sleep(seconds)


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Where the finding says that ranks wait: at a barrier, or (ZeRO-3 inference) in the gathers of each layer."""
    op = "all_gather" if subject.finding.fact("waits_in") == "all_gather" else "barrier"
    return {"op": op} if case.name == op else None
