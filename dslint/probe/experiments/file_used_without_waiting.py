"""One rank makes or removes a file or folder, and the other one uses it.

As written, nothing makes a rank wait, and the one that the other depends on comes half a second late; as fixed, a
barrier stands in between. A folder that every rank makes for itself is the control.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="file-used-without-waiting",
    summary="a rank does not find what another one makes, or finds a part of it",
    flavour="torch",
    one_host=True,
    rules=("DSL288",),
    expect=Expect((Kind.RAISE,), r"FileNotFoundError"),
    cases=(
        Case("folder", {"does": "folder"}),
        Case("file", {"does": "file"}),
        Case("removed", {"does": "removed"}),
        Case("listed", {"does": "listed"}, Expect((Kind.WRONG,), r"finds 1 of 2 parts")),
        Case("cleared", {"does": "cleared"}, Expect((Kind.WRONG,), r"finds 1 of 2 parts")),
        Case("made-by-all", {"does": "made"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """No rank waits."""
    return _use(rank, waits=False)


def fixed(rank: RankApi) -> Json:
    """A barrier between the two."""
    return _use(rank, waits=True)


def _use(rank: RankApi, waits: bool) -> Json:
    import torch.distributed as dist

    rank.init()
    does, folder = rank.params["does"], Path(rank.folder) / "out"
    if does in ("listed", "removed", "cleared") and rank.index == 0:
        folder.mkdir()
        (folder / "all").write_text("all")
    dist.barrier()
    first = 1 if does in ("listed", "removed") else 0
    if rank.index == first:
        time.sleep(0.5)
        _first(rank, folder, str(does))
    elif does == "made":
        folder.mkdir(exist_ok=True)
    if waits:
        dist.barrier()
    if rank.index != first:
        _second(folder, str(does))
    rank.mark(str(does))
    dist.barrier()
    if rank.index == 0 and does == "cleared":
        (folder / "part0").write_text("part")
    return {"parts": _count(folder) if does == "cleared" else _FOUND.get("parts", 2)}


_FOUND: dict[str, int] = {}


def _first(rank: RankApi, folder: Path, does: str) -> None:
    if does == "removed":
        (folder / "all").read_text()
    elif does == "listed":
        (folder / f"part{rank.index}").write_text("part")
    elif does == "cleared":
        for name in os.listdir(folder):
            (folder / name).unlink()
    else:
        folder.mkdir(exist_ok=True)
        if does == "file":
            (folder / "all").write_text("all")


def _second(folder: Path, does: str) -> None:
    if does == "removed":
        (folder / "all").unlink()
    elif does == "listed":
        (folder / "part0").write_text("part")
        _FOUND["parts"] = _count(folder)
    elif does == "file":
        (folder / "all").read_text()
    else:
        (folder / "part1").write_text("part")


def _count(folder: Path) -> int:
    return sum(name.startswith("part") for name in os.listdir(folder))


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Fewer parts."""
    here, expected = values[0]["parts"], reference[0]["parts"]
    return None if here == expected else f"rank 0 finds {here} of {expected} parts"


_CASES = {
    ("makes the folder", "writes"): "folder",
    ("makes the folder", "reads"): "folder",
    ("makes the folder", "lists"): "folder",
    ("writes", "reads"): "file",
    ("writes", "lists"): "listed",
    ("removes", "writes"): "cleared",
}


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """What the finding says of the two."""
    first, second = str(subject.finding.fact("first")), str(subject.finding.fact("second"))
    wanted = "removed" if second == "removes" else _CASES.get((first, second), "file")
    return {} if case.name == wanted else None
