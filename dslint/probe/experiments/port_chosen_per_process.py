"""A free port that each process chooses for the rendezvous.

As written, every rank writes a port of its own to `MASTER_PORT`; as fixed, all write the same. Rank 0 listens at its
port and the others knock at theirs. A group of one process needs nobody else (the control).
"""

from __future__ import annotations

import os

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="port-chosen-per-process",
    summary="every rank has another port, and the group never forms",
    flavour="torch",
    one_host=True,
    rules=("DSL272",),
    expect=Expect((Kind.STALL, Kind.WRONG), r"rendezvous|the group never forms"),
    cases=(
        Case("one-group", {"world": 0}),
        Case("a-group-each", {"world": 1}, verdict=Verdict.NOT_REPRODUCED),
    ),
)
# Seconds that a process waits for the others.
_PATIENCE = 60


def written(rank: RankApi) -> Json:
    """A port for each."""
    return _join(rank, is_shared=False)


def fixed(rank: RankApi) -> Json:
    """One port, where there is one group."""
    return _join(rank, is_shared=not rank.params["world"])


def _join(rank: RankApi, is_shared: bool) -> Json:
    from datetime import timedelta

    import torch.distributed as dist

    from dslint.probe.parts.hosts import free_port, shared_port

    port = shared_port(rank)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port if is_shared else free_port())
    world = rank.params["world"] or rank.world
    number = 0 if world == 1 else rank.index
    try:
        dist.init_process_group("gloo", rank=number, world_size=world, timeout=timedelta(seconds=_PATIENCE))
    except (RuntimeError, ValueError) as error:
        return {"error": type(error).__name__}
    return {"error": ""}


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - an error is one in any case
    """Processes that did not meet."""
    errors = sorted({value["error"] for value in values if value["error"]})
    return f"the group never forms: {', '.join(errors)}" if errors else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:  # noqa: ARG001 - every finding is the same
    """One group."""
    return {} if case.name == "one-group" else None
