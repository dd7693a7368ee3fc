"""Every rank makes, removes, moves or writes the same path.

As written, all ranks do it; as fixed, rank 0 does it alone, and the others wait. Of two ranks that make a folder or
remove one, the second gets an error; a barrier between the test and the call stands for ranks that come at the same
time. A file that both write holds what one of them had, or parts of both. Of two that download, one has written half of
its archive when the other looks, as the barriers see to. A path of each rank's own is the control.
For a test of the number of the process on its machine the two ranks stand for the first processes of two machines.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="path-touched-by-every-rank",
    summary="ranks that change the same path stop each other, or write over each other",
    flavour="torch",
    one_host=True,
    rules=("DSL277", "DSL632"),
    expect=Expect((Kind.RAISE,), r"FileExistsError|FileNotFoundError"),
    cases=(
        Case("folder", {"does": "folder", "tests": False}),
        Case("tested-folder", {"does": "folder", "tests": True}),
        Case("remove", {"does": "remove", "tests": True}),
        Case("move", {"does": "move", "tests": False}),
        Case("write", {"does": "write", "tests": False}, Expect((Kind.WRONG,), r"holds no whole result of all ranks")),
        Case(
            "download",
            {"does": "download", "tests": False},
            Expect((Kind.RAISE,), r"Dataset not found or corrupted"),
            rules=("DSL277",),
        ),
        Case("own-folder", {"does": "folder", "tests": True, "own": True}, verdict=Verdict.NOT_REPRODUCED),
        Case("own-file", {"does": "write", "tests": False, "own": True}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Every rank."""
    return _change(rank, is_everyone=True)


def fixed(rank: RankApi) -> Json:
    """Rank 0, for all."""
    return _change(rank, is_everyone=bool(rank.params.get("own")))


def _change(rank: RankApi, is_everyone: bool) -> Json:
    import torch.distributed as dist

    rank.init()
    does = rank.params["does"]
    path = os.path.join(rank.folder, f"out-{rank.index}" if rank.params.get("own") else "out")
    if does in ("remove", "move") and rank.index == 0:
        os.makedirs(path)
    results: list[Json] = [None] * rank.world
    dist.all_gather_object(results, [rank.index] * (rank.index + 1))
    is_free = os.path.exists(path) == (does in ("remove", "move"))
    dist.barrier()
    if (is_everyone or rank.index == 0) and (is_free or not rank.params["tests"]):
        if does == "folder":
            os.makedirs(path)
        elif does == "download":
            _download(rank, path, is_everyone)
        elif does == "remove":
            shutil.rmtree(path)
        elif does == "move":
            shutil.move(path, f"{path}-old")
        else:
            own = is_everyone and not rank.params.get("own")
            Path(path).write_text(json.dumps([results[rank.index]] if own else results))
    rank.mark(does)
    dist.barrier()
    return {"file": Path(path).read_text() if does == "write" else ""}


def _download(rank: RankApi, path: str, is_everyone: bool) -> None:
    """Fetch an archive unless there is one, then check it: what data sets do that take no lock."""
    import torch.distributed as dist

    archive = Path(path)
    if rank.index == 0:
        archive.write_text("half")
    if is_everyone:
        dist.barrier()
    seen = archive.read_text()
    if is_everyone:
        dist.barrier()
    if rank.index != 0 and seen != "half and half":
        raise RuntimeError("Dataset not found or corrupted. You can use download=True to download it")
    if rank.index == 0:
        archive.write_text("half and half")


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A file that does not hold what all ranks had."""
    different = [v["file"] for v, r in zip(values, reference, strict=True) if v["file"] != r["file"]]
    return f"the file holds no whole result of all ranks: {different[0][:60]}" if different else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """What the finding says that the ranks do."""
    does = subject.finding.fact("does")
    tests = bool(subject.finding.fact("tests"))
    wanted = "tested-folder" if does == "folder" and tests else does
    return {} if case.name == wanted else None
