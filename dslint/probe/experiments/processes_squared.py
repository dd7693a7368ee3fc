"""A launcher starts several processes of a script that spawns one process a GPU itself.

As written torchrun starts two processes, and each spawns two workers, which join a group of two: four workers, whose
groups meet at one port. As fixed plain `python` starts the script, and two workers form one group. One process of
torchrun is as good, unless the script names a port of its own: workers below torchrun open no store themselves.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="processes-squared",
    summary="N processes of a launcher spawn N workers each, and their groups meet at one port",
    rules=("DSL261",),
    ranks=1,
    expect=Expect((Kind.WRONG,), r"4 workers instead of 2"),
    cases=(
        Case("two-and-two", {"processes": 2, "own_port": True}),
        Case(
            "one-process-own-port",
            {"processes": 1, "own_port": True},
            Expect((Kind.WRONG,), r"the workers fail: DistNetworkError"),
        ),
        Case("one-process", {"processes": 1, "own_port": False}, verdict=Verdict.NOT_REPRODUCED),
    ),
)

_SCRIPT = """
from datetime import timedelta
import torch.distributed as dist
import torch.multiprocessing as mp
def worker(index):
    try:
        dist.init_process_group("gloo", rank=index, world_size=2, timeout=timedelta(seconds=1))
        note(worker=index, world=dist.get_world_size())
        dist.barrier()
    except (RuntimeError, ValueError) as error:
        note(worker=index, error=type(error).__name__)
WRITE
mp.start_processes(worker, nprocs=2, start_method="fork")
"""


def written(rank: RankApi) -> Json:
    """torchrun starts the processes that spawn the workers."""
    from dslint.probe.parts.hosts import free_port
    from dslint.probe.parts.launcher import torchrun

    arguments = ["--nproc_per_node", str(rank.params["processes"]), "--master_port", str(free_port()), "train.py"]
    return _workers(torchrun(rank, arguments, _script(rank, free_port()), patience=7.0))


def fixed(rank: RankApi) -> Json:
    """Plain python starts the one process that spawns the workers."""
    from dslint.probe.parts.hosts import free_port
    from dslint.probe.parts.launcher import python

    return _workers(python(rank, 1, _script(rank, free_port())))


def _script(rank: RankApi, port: int) -> str:
    where = f'MASTER_ADDR="127.0.0.1", MASTER_PORT="{port}"'
    keep = f"for name, value in dict({where}).items(): os.environ.setdefault(name, value)"
    return _SCRIPT.replace("WRITE", f"os.environ.update({where})" if rank.params["own_port"] else keep)


def _workers(notes: list[dict[str, Json]]) -> Json:
    seen = [{"worker": n["worker"], "world": n.get("world"), "error": n.get("error")} for n in notes if "worker" in n]
    return sorted(seen, key=lambda n: n["worker"])


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """More workers than there are places for."""
    seen, expected = values[0], reference[0]
    errors = sorted({str(note["error"]) for note in seen if note["error"]})
    if len(seen) != len(expected):
        return f"{len(seen)} workers instead of {len(expected)}" + (f"; {', '.join(errors)}" if errors else "")
    return f"the workers fail: {', '.join(errors)}" if errors else None
