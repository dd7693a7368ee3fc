"""A script that takes its local rank from an argument, below a launcher that passes none.

torchrun sets ``LOCAL_RANK`` and appends nothing. As written the script reads ``args.local_rank``: with the default -1
every process takes itself for the only one, with 0 all of them choose device 0. As fixed the default is what the
environment says. ``torch.distributed.launch`` appends the argument: then the script is right as it stands.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="local-rank-not-passed",
    summary="the launcher passes no local rank, and every process keeps the default of its argument",
    rules=("DSL413",),
    ranks=1,
    expect=Expect((Kind.WRONG,), r"2 processes, each in a world of 1"),
    cases=(
        Case("alone", {"by": "run", "default": -1}),
        Case("device-0", {"by": "run", "default": 0}, Expect((Kind.WRONG,), r"2 processes choose device 0")),
        Case("passed", {"by": "launch", "default": -1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)

_SCRIPT = """
import argparse
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int, default=DEFAULT)
args = parser.parse_args()
if args.local_rank != -1:
    dist.init_process_group("gloo")
world = dist.get_world_size() if dist.is_initialized() else 1
note(world=world, device=args.local_rank)
"""


def written(rank: RankApi) -> Json:
    """The default is a number."""
    return _run(rank, str(rank.params["default"]))


def fixed(rank: RankApi) -> Json:
    """The default is what the environment says."""
    return _run(rank, f'int(os.environ.get("LOCAL_RANK", {rank.params["default"]}))')


def _run(rank: RankApi, default: str) -> Json:
    from dslint.probe.parts.hosts import free_port
    from dslint.probe.parts.launcher import torchrun

    arguments = ["--nproc_per_node", "2", "--master_port", str(free_port()), "train.py"]
    notes = torchrun(rank, arguments, _SCRIPT.replace("DEFAULT", default), rank.params["by"])
    return [{"world": note["world"], "device": note["device"]} for note in notes]


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Processes that do not know of each other, or that share a device."""
    seen = values[0]
    if seen == reference[0]:
        return None
    if {note["world"] for note in seen} == {1}:
        return f"{len(seen)} processes, each in a world of 1"
    return f"{len(seen)} processes choose device {min(note['device'] for note in seen)}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The default of the finding."""
    default = subject.finding.fact("default")
    if (
        subject.finding.fact("by") != "run"
        or case.verdict is not Verdict.CONFIRMED
        or default != case.params["default"]
    ):
        return None
    return {"default": default}
