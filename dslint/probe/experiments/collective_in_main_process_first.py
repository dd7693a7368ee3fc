"""A collective inside `with main_process_first():`.

The block is a pair of barriers: the other ranks wait at the first one while rank 0 runs the body, and rank 0 waits for
them at the end. As written, the body makes a collective, which meets the barrier of the other ranks instead of itself;
as fixed, the collective stands behind the block. A barrier inside pairs up with those of the block (the control): it
works, and rank 0 is still the first. Under ZeRO stage 3 each layer that is made waits for all ranks (`zero.Init`, which
is what `from_pretrained` uses).
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.accel import make_accelerator

EXPERIMENT = Experiment(
    name="collective-in-main-process-first",
    summary="a collective of rank 0 meets the barrier at which the other ranks wait",
    rules=("DSL229",),
    flavour="transformers",
    one_host=True,
    expect=Expect((Kind.STALL, Kind.RAISE), r"distributed_c10d\.py|gloo|Received data size"),
    cases=(
        Case("gather", {"call": "gather"}),
        Case("all_reduce", {"call": "all_reduce"}),
        Case("broadcast", {"call": "broadcast"}),
        Case("zero.Init", {"call": "zero.Init"}),
        Case("barrier", {"call": "barrier"}, verdict=Verdict.NOT_REPRODUCED),
        Case("nothing", {"call": "nothing"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Inside the block."""
    accelerator = make_accelerator(rank)
    with accelerator.main_process_first():
        _call(rank, accelerator)
        found = _prepare(rank)
    rank.mark("past the block")
    return found


def fixed(rank: RankApi) -> Json:
    """Behind the block."""
    accelerator = make_accelerator(rank)
    with accelerator.main_process_first():
        found = _prepare(rank)
    rank.mark("past the block")
    _call(rank, accelerator)
    return found


def _prepare(rank: RankApi) -> bool:
    """Rank 0 takes a while to make a file; whether the file was there when this rank came."""
    import os
    import time

    made = os.path.join(rank.folder, "cache")
    if rank.index == 0:
        time.sleep(0.3)
        open(made, "w").close()
        return True
    return os.path.exists(made)


def _call(rank: RankApi, accelerator: Any) -> None:
    import torch
    import torch.distributed as dist

    call, tensor = rank.params["call"], torch.full((3,), 1.0, device=rank.device)
    if call == "gather":
        accelerator.gather(tensor)
    elif call == "all_reduce":
        dist.all_reduce(tensor)
    elif call == "broadcast":
        dist.broadcast(tensor, src=0)
    elif call == "barrier":
        dist.barrier()
    elif call == "zero.Init":
        import deepspeed

        from dslint.probe.parts.zero import compile_nothing, config

        compile_nothing()
        with deepspeed.zero.Init(config_dict_or_path=config(3)):
            torch.nn.Linear(2, 2)


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - each arm speaks for itself
    """A rank came to the body without the file of rank 0."""
    late = [index for index, found in enumerate(values) if not found]
    return f"rank {late[0]} ran the body before rank 0 had finished it" if late else None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The collective of the finding, where a case has it."""
    return {} if subject.finding.fact("collective") == case.name else None
