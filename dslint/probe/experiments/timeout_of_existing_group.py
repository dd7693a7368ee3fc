"""A timeout that comes when the process group exists already.

As written, the default group is made first, and a library that would make it is then given a timeout; as fixed, the
group is made with that timeout. Nothing fails: the arms read back what the group will wait. accelerate, transformers
and DeepSpeed adopt the group as it is. `ddp_timeout` with `use_cpu=True` is not passed on at all. The control gives
`ddp_timeout` before there is a group.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.parts.groups import make_group, timeout_of

EXPERIMENT = Experiment(
    name="timeout-of-existing-group",
    summary="the process group keeps the timeout that it was made with",
    flavour="transformers",
    expect=Expect((Kind.WRONG,), r"the group waits \d+ s, not 7200 s"),
    cases=(
        Case("ddp_timeout", {"taker": "ddp_timeout", "made": True}, rules=("DSL225",)),
        Case("ddp_timeout-use_cpu", {"taker": "ddp_timeout", "made": False, "cpu": True}, rules=("DSL225",)),
        Case(
            "ddp_timeout-first",
            {"taker": "ddp_timeout", "made": False},
            rules=("DSL225",),
            verdict=Verdict.NOT_REPRODUCED,
        ),
        Case("init_distributed", {"taker": "init_distributed", "made": True}, rules=("DSL242",)),
        Case("InitProcessGroupKwargs", {"taker": "InitProcessGroupKwargs", "made": True}, rules=("DSL242",)),
        Case("PartialState", {"taker": "PartialState", "made": True}, rules=("DSL242",)),
        Case(
            "PartialState-first", {"taker": "PartialState", "made": False}, rules=("DSL242",),
            verdict=Verdict.NOT_REPRODUCED,
        ),
        Case(
            "init_process_group",
            {"taker": "init_process_group", "made": True},
            Expect((Kind.RAISE,), r"ValueError: trying to initialize the default process group twice"),
            rules=("DSL242",),
        ),
    ),
)  # fmt: skip
LONG = 7200


def written(rank: RankApi) -> Json:
    """The group first, the timeout later."""
    from datetime import timedelta

    if rank.params["made"]:
        make_group(rank, timedelta(seconds=60))
    _take(rank, rank.params.get("cpu", False))
    return timeout_of(rank)


def fixed(rank: RankApi) -> Json:
    """The group is made with the timeout."""
    from datetime import timedelta

    make_group(rank, timedelta(seconds=LONG))
    return timeout_of(rank)


def _take(rank: RankApi, use_cpu: bool) -> None:
    from datetime import timedelta

    taker, timeout, cpu = rank.params["taker"], timedelta(seconds=LONG), not rank.device.startswith("cuda")
    if taker == "ddp_timeout":
        from transformers import TrainingArguments

        # Without CUDA the device is the CPU as well, and the timeout is passed on.
        TrainingArguments(output_dir="out", ddp_timeout=LONG, ddp_backend=rank.backend, use_cpu=use_cpu).device  # noqa: B018
    elif taker == "InitProcessGroupKwargs":
        from accelerate import Accelerator, InitProcessGroupKwargs

        Accelerator(cpu=cpu, kwargs_handlers=[InitProcessGroupKwargs(backend=rank.backend, timeout=timeout)])
    elif taker == "PartialState":
        from accelerate import PartialState

        PartialState(cpu=cpu, backend=rank.backend, timeout=timeout)
    elif taker == "init_distributed":
        import deepspeed

        deepspeed.init_distributed(rank.backend, auto_mpi_discovery=False, verbose=False, timeout=timeout)
    else:
        make_group(rank, timeout)


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """The timeout in seconds is not the one that was given."""
    found, meant = values[0], reference[0]
    return None if found == meant else f"the group waits {found:.0f} s, not {meant:.0f} s"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call that comes too late, or `use_cpu`; a backend that comes too late is not shown."""
    if subject.finding.fact("option") == "backend":
        return None
    return {} if case.name == subject.finding.fact("taker") else None
