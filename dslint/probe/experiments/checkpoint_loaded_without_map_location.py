"""A checkpoint whose tensors lay on the first GPU is loaded by every rank.

As written, `torch.load` gets no `map_location`; as fixed, each rank passes its own device. torch puts tensors where
they lay, so that every rank uses memory of the GPU of rank 0. Without GPUs a stand-in takes the place of the device:
torch still writes, reads and maps the names of places, and functions registered with `torch.serialization` note the
place that it asks for. A checkpoint that was saved from the CPU is the control.
"""

from __future__ import annotations

import os
from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, Needs, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="checkpoint-loaded-without-map-location",
    summary="every rank puts the tensors of a checkpoint on the GPU that saved it",
    flavour="torch",
    one_host=True,
    rules=("DSL278",),
    expect=Expect((Kind.WRONG,), r"2 ranks put the checkpoint on cuda:0"),
    cases=(
        Case("stand-in", {"real": False, "saved": "cuda"}),
        Case("gpus", {"real": True, "saved": "cuda"}, needs=Needs(gpus=2, why="each rank has a GPU of its own")),
        Case("saved-from-cpu", {"real": False, "saved": "cpu"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """Where the tensors lay."""
    return _resume(rank, is_mapped=False)


def fixed(rank: RankApi) -> Json:
    """On the device of the rank."""
    return _resume(rank, is_mapped=True)


def _resume(rank: RankApi, is_mapped: bool) -> Json:
    import torch
    import torch.distributed as dist

    rank.init()
    path, own = os.path.join(rank.folder, "last.pt"), f"cuda:{rank.index}"
    real = rank.params["real"]
    places: list[str] = []
    if not real and rank.params["saved"] == "cuda":
        _stand_in(rank, places)
    tensor = torch.arange(8.0, device=own if real else "cpu")
    if rank.index == 0:
        torch.save({"model": tensor}, path)
    dist.barrier()
    mapped = {"map_location": own if rank.params["saved"] == "cuda" else "cpu"} if is_mapped else {}
    found = torch.load(path, **mapped)["model"]
    return {"place": str(found.device) if real or not places else places[-1]}


def _stand_in(rank: RankApi, places: list[str]) -> None:
    """Call the memory of the CPU `cuda:RANK` in files, and note where storages are put."""
    import torch

    def tag(_storage: Any) -> str:
        return f"cuda:{rank.index}"

    def put(storage: Any, place: str) -> Any:
        places.append(place)
        return storage

    torch.serialization.register_package(0, tag, put)


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """More ranks on one device than with `map_location`."""
    places = [value["place"] for value in values]
    if places == [value["place"] for value in reference]:
        return None
    return f"{places.count(places[0])} ranks put the checkpoint on {places[0]}"
