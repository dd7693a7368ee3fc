"""Each rank names the folder by its own clock, and they share it.

As written, the second rank comes to that line a second later; as fixed, rank 0 makes the name for both. A name that
holds the day only is the control.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="run-folder-named-per-rank",
    summary="ranks look for each other's files in folders of other names",
    flavour="torch",
    one_host=True,
    rules=("DSL289",),
    expect=Expect((Kind.WRONG,), r"rank 0 finds 1 of 2 parts"),
    cases=(
        Case("merged", {"format": "%H%M%S", "merged": True}),
        Case("read", {"format": "%H%M%S", "merged": False}, Expect((Kind.RAISE,), r"FileNotFoundError")),
        Case("day", {"format": "%Y%m%d", "merged": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Each by its own clock."""
    return _share(rank, is_sent=False)


def fixed(rank: RankApi) -> Json:
    """Rank 0 for both."""
    return _share(rank, is_sent=True)


def _share(rank: RankApi, is_sent: bool) -> Json:
    import torch.distributed as dist

    rank.init()
    time.sleep(1.1 * rank.index)
    names = [time.strftime(str(rank.params["format"]))]
    if is_sent:
        dist.broadcast_object_list(names, src=0)
    folder = Path(rank.folder) / names[0]
    if rank.params["merged"] or rank.index == 0:
        folder.mkdir(exist_ok=True)
        (folder / f"part{rank.index}").write_text("part")
    dist.barrier()
    if not rank.params["merged"]:
        (folder / "part0").read_text()
    found = len(os.listdir(folder)) if rank.index == 0 else 0
    rank.mark("shared")
    dist.barrier()
    return {"parts": found}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Parts that rank 0 does not find."""
    here, expected = values[0]["parts"], reference[0]["parts"]
    return None if here == expected else f"rank 0 finds {here} of {expected} parts"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """Whether rank 0 merges parts, or all read what it has written."""
    merged = subject.finding.fact("merged")
    return {} if case.name == ("merged" if merged else "read") else None
