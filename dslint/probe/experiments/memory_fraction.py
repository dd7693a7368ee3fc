"""`torch.cuda.set_per_process_memory_fraction` with a value, or for a device, that is not meant.

As written, the call gets an integer, a number above 1, or comes before `torch.cuda.set_device`, so that it limits GPU 0
in every process; as fixed, it gets a float up to 1 and the rank's own device. What a small share does to a ZeRO-3 job
depends on the memory of its model, and is not shown.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, Needs, RankApi, Subject
from dslint.probe.outcome import Kind

_WHY = "the call starts CUDA before it looks at its arguments"

EXPERIMENT = Experiment(
    name="memory-fraction",
    summary="the memory limit of a process raises, or holds for another GPU",
    rules=("DSL258",),
    expect=Expect((Kind.RAISE,), r"TypeError: Invalid type for fraction|ValueError: Invalid fraction value"),
    needs=Needs(gpus=1, why=_WHY),
    cases=(
        Case("integer", {"fraction": 1, "device": "own"}, Expect((Kind.RAISE,), r"TypeError: Invalid type for frac")),
        Case("above-1", {"fraction": 1.5, "device": "own"}, Expect((Kind.RAISE,), r"ValueError: Invalid fraction")),
        Case(
            "before-set-device",
            {"fraction": 0.9, "device": ""},
            Expect((Kind.WRONG,), r"not limited"),
            needs=Needs(gpus=2, why="a rank other than 0 needs a GPU of its own"),
        ),
        Case(
            "device-0",
            {"fraction": 0.9, "device": "0"},
            Expect((Kind.WRONG,), r"not limited"),
            needs=Needs(gpus=2, why="a rank other than 0 needs a GPU of its own"),
        ),
    ),
)


def written(rank: RankApi) -> Json:
    """The value and the device of the case."""
    import torch

    own = rank.index % torch.cuda.device_count()
    device = {"own": own, "0": 0, "": None}[rank.params["device"]]
    torch.cuda.set_per_process_memory_fraction(rank.params["fraction"], device)
    return _limit(own)


def fixed(rank: RankApi) -> Json:
    """A float up to 1, on the rank's own device."""
    import torch

    own = rank.index % torch.cuda.device_count()
    torch.cuda.set_device(own)
    torch.cuda.set_per_process_memory_fraction(min(max(float(rank.params["fraction"]), 0.0), 1.0), own)
    return _limit(own)


def _limit(own: int) -> Json:
    import torch

    torch.cuda.set_device(own)
    return {"limit": torch.cuda.get_per_process_memory_fraction(own)}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A rank whose own GPU has another limit than the one set."""
    for index, (value, expected) in enumerate(zip(values, reference, strict=True)):
        if abs(value["limit"] - expected["limit"]) > 1e-6:
            return f"the GPU of rank {index} is not limited: its fraction is {value['limit']:g}"
    return None


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The mistake and the value of the finding."""
    if subject.finding.fact("mistake") != case.name:
        return None
    return {"fraction": subject.finding.fact("fraction")}
