"""Arms without torch, for the tests of the process model: each does at once what ``params["act"]`` says."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, RankApi
from dslint.probe.outcome import Kind

EXPERIMENT = Experiment(
    name="plain", summary="acts", flavour="plain", limit=20, expect=Expect((Kind.STALL, Kind.RAISE, Kind.SIGNAL)),
    cases=(Case("stall", {"act": "stall"}),),
)  # fmt: skip


def fixed(rank: RankApi) -> Any:
    return rank.index


def written(rank: RankApi) -> Any:
    act = rank.params["act"]
    if rank.index:
        return rank.index
    if act == "stall":  # waits in a frame that waits for others
        subprocess.run(["sleep", "60"], check=False)
    elif act == "raise":
        raise ValueError("as told")
    elif act == "signal":
        os.kill(os.getpid(), signal.SIGABRT)
    elif act == "sleep":  # asleep, but waiting for nobody
        time.sleep(60)
    elif act == "busy":
        while True:
            pass
    elif act == "grandchild":
        subprocess.Popen(["sleep", "300"], start_new_session=True)
        subprocess.run(["sleep", "300"], check=False)
    elif act == "memory":
        return len(bytearray(1 << 40))
    elif act == "exit":
        os._exit(7)
    elif act == "slow":
        for step in range(20):
            time.sleep(0.2)
            rank.mark(str(step))
    elif act == "not json":
        return object()
    return "done"
