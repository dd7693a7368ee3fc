"""A number is passed as a timeout to accelerate or DeepSpeed, which make the process group.

As written the library gets a number; as fixed a `timedelta` of as many seconds. accelerate hands the value to torch,
which raises; DeepSpeed asserts the type, but only where it makes the group: a group that exists already is adopted, and
the timeout is ignored whatever it is (the second control). `ddp_timeout` of the Hugging Face `TrainingArguments` is the
first control: it is a number of seconds, and a `timedelta` is what raises there.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict
from dslint.probe.timeout_facts import call_and_value

_ASSERTION = Expect((Kind.RAISE,), r"AssertionError.*init_distributed \(comm\.py")

EXPERIMENT = Experiment(
    name="timeout-not-timedelta-in-libraries",
    summary="accelerate and DeepSpeed raise when the timeout is a number",
    rules=("DSL221",),
    flavour="transformers",
    expect=Expect((Kind.RAISE,), r"TypeError: Expected timeout argument to be of type datetime\.timedelta"),
    cases=(
        Case("InitProcessGroupKwargs", {"call": "InitProcessGroupKwargs", "value": 1800}),
        Case("PartialState", {"call": "PartialState", "value": 1800}),
        Case("init_distributed", {"call": "init_distributed", "value": 1800}, _ASSERTION),
        Case(
            "ddp_timeout-timedelta",
            {"call": "ddp_timeout-timedelta", "value": 1800},
            Expect((Kind.RAISE,), r"TypeError: unsupported type for timedelta seconds component"),
        ),
        Case("ddp_timeout", {"call": "ddp_timeout", "value": 1800}, verdict=Verdict.NOT_REPRODUCED),
        Case("adopted-group", {"call": "init_distributed-again", "value": 1800}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The value as it stands (of `ddp_timeout-timedelta`: as a timedelta of so many seconds)."""
    if rank.params["call"] == "ddp_timeout-timedelta":
        from datetime import timedelta

        return _call(rank, timedelta(seconds=rank.params["value"]))
    return _call(rank, rank.params["value"])


def fixed(rank: RankApi) -> Json:
    """A timedelta of so many seconds (1,800 when the value is no number); `ddp_timeout` stays as it is."""
    from datetime import timedelta

    value = rank.params["value"]
    number = value if isinstance(value, int | float) else 1800
    if rank.params["call"] == "ddp_timeout-timedelta":
        return _call(rank, number)
    return _call(rank, number if rank.params["call"] == "ddp_timeout" else timedelta(seconds=number))


def _call(rank: RankApi, timeout: Any) -> Json:
    call, cpu = rank.params["call"], not rank.device.startswith("cuda")
    if call == "InitProcessGroupKwargs":
        from accelerate import Accelerator, InitProcessGroupKwargs

        kwargs = InitProcessGroupKwargs(backend=rank.backend, timeout=timeout)
        return Accelerator(cpu=cpu, kwargs_handlers=[kwargs]).num_processes
    if call == "PartialState":
        from accelerate import PartialState

        return PartialState(cpu=cpu, backend=rank.backend, timeout=timeout).num_processes
    if call.startswith("ddp_timeout"):
        from transformers import TrainingArguments

        # Without `use_cpu`, with which the timeout is not passed on; without CUDA the device is the CPU all the same.
        return TrainingArguments(output_dir="out", ddp_backend=rank.backend, ddp_timeout=timeout).world_size
    import deepspeed
    import torch.distributed as dist

    if call == "init_distributed-again":
        rank.init()
    deepspeed.init_distributed(rank.backend, auto_mpi_discovery=False, verbose=False, timeout=timeout)
    return dist.get_world_size()


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call and the value of the finding."""
    return call_and_value(subject, case)
