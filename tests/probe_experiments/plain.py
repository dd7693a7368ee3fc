"""Arms without torch, for the tests of the process model: each does at once what ``params["act"]`` says."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
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
    act = rank.params["act"] if rank.index == 0 else rank.params.get("others")
    return _ACTS[act](rank) if act else rank.index


def _stall(rank: RankApi) -> None:
    subprocess.run(["sleep", "60"], check=False)  # a frame that waits for others


def _raise(rank: RankApi) -> None:
    raise ValueError("as told")


def _signal(rank: RankApi) -> None:
    os.kill(os.getpid(), signal.SIGABRT)


def _sleep(rank: RankApi) -> None:
    time.sleep(60)  # asleep, but waiting for nobody


def _busy(rank: RankApi) -> None:
    while True:
        pass


def _grandchild(rank: RankApi) -> None:
    subprocess.Popen(["sleep", "300"], start_new_session=True)
    subprocess.run(["sleep", "300"], check=False)


def _slow(rank: RankApi) -> str:
    for step in range(12):
        time.sleep(0.2)
        rank.mark(str(step))
    return "done"


_ACTS: dict[str, Callable[[RankApi], Any]] = {
    "stall": _stall, "raise": _raise, "signal": _signal, "sleep": _sleep, "busy": _busy, "grandchild": _grandchild,
    "memory": lambda _: len(bytearray(1 << 40)), "exit": lambda _: os._exit(7), "slow": _slow,
    "not json": lambda _: object(),
}  # fmt: skip
