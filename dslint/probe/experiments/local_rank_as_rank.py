"""`init_process_group(rank=LOCAL_RANK, world_size=WORLD_SIZE)` on two machines.

Each rank of the experiment is a machine on which torchrun starts its processes. As written they pass their rank
within the machine as that of the job; as fixed, the one of the job. With a process on each of two machines both are
rank 0, and the group never forms; with all processes on one machine the two ranks are the same (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="local-rank-as-rank",
    summary="both machines have a rank 0, and the group never forms",
    flavour="torch",
    rules=("DSL271",),
    expect=Expect((Kind.WRONG,), r"the group never forms: ranks 0 and 0 of 2"),
    cases=(
        Case("two-machines", {"machines": 2}),
        Case("one-machine", {"machines": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
# Seconds that a process waits for the others.
_FORMS = 30
_NEVER_FORMS = 2

_SCRIPT = """
from datetime import timedelta
import torch.distributed as dist
rank = int(os.environ["VARIABLE"])
try:
    dist.init_process_group(
        "gloo", timeout=timedelta(seconds=PATIENCE), rank=rank, world_size=int(os.environ["WORLD_SIZE"])
    )
    note(rank=rank, world=dist.get_world_size())
except (RuntimeError, ValueError) as error:
    note(rank=rank, error=type(error).__name__)
"""


def written(rank: RankApi) -> Json:
    """The rank within the machine."""
    return _run(rank, "LOCAL_RANK", _NEVER_FORMS if rank.params["machines"] > 1 else _FORMS)


def fixed(rank: RankApi) -> Json:
    """The rank of the job."""
    return _run(rank, "RANK", _FORMS)


def _run(rank: RankApi, variable: str, patience: int) -> Json:
    from dslint.probe.parts.hosts import agree, shared_port
    from dslint.probe.parts.launcher import torchrun

    machines, port = rank.params["machines"], shared_port(rank)
    words = ["--nnodes", str(machines), "--node_rank", str(rank.index if machines > 1 else 0)]
    words += ["--master_addr", "127.0.0.1", "--master_port", str(port), "--nproc_per_node", str(2 // machines)]
    agree(rank, "start", "now")
    if rank.index >= machines:
        return []
    script = _SCRIPT.replace("VARIABLE", variable).replace("PATIENCE", str(patience))
    notes = torchrun(rank, [*words, "train.py"], script, patience=patience + 20.0)
    return [{name: note.get(name) for name in ("rank", "world", "error")} for note in notes]


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Processes of which some were never met."""
    seen = [note for machine in values for note in machine]
    if not any(note["error"] for note in seen):
        return None if values == reference else f"the processes hold {seen}"
    ranks = " and ".join(str(note["rank"]) for note in seen)
    return f"the group never forms: ranks {ranks} of {len(seen)}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - every finding is the same
    """Two machines."""
    return {} if case.name == "two-machines" else None
