"""`save_pretrained` of a ZeRO-3 model without a state dict.

As written, rank 0 calls `engine.module.save_pretrained(folder)`; as fixed, the weights are gathered on all ranks while
it runs. transformers takes `self.state_dict()`, which holds empty tensors at stage 3, and no error comes. At stage 2
the folder is whole. The tiny Llama has random weights and is made in place.
"""

from __future__ import annotations

from typing import Any

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="zero3-save-pretrained-empty",
    summary="save_pretrained of a partitioned model writes empty tensors",
    rules=("DSL212",),
    flavour="transformers",
    one_host=True,
    expect=Expect((Kind.WRONG, Kind.RAISE), r"of \d+ weights have the shape of the model|RuntimeError"),
    cases=(
        Case("z3", {"stage": 3}),
        Case("z2", {"stage": 2}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """As for a whole model."""
    return _save(rank, gathers=False)


def fixed(rank: RankApi) -> Json:
    """Inside a gather."""
    return _save(rank, gathers=True)


def _save(rank: RankApi, gathers: bool) -> Json:
    import deepspeed
    import torch.distributed as dist

    from dslint.probe.parts.llama import llama
    from dslint.probe.parts.zero import config, engine

    rank.init()
    trained: Any = engine(rank, config(rank.params["stage"]), llama())
    folder = rank.folder + "/saved"
    parameters = list(trained.module.parameters())
    with deepspeed.zero.GatheredParameters(parameters, enabled=gathers and rank.params["stage"] == 3):
        if rank.index == 0:
            trained.module.save_pretrained(folder)
        dist.barrier()
    rank.mark("saved")
    return _shapes(folder)


def _shapes(folder: str) -> dict[str, Json]:
    """The shape of every tensor in the folder."""
    import glob

    from safetensors import safe_open

    found: dict[str, Json] = {}
    for path in sorted(glob.glob(folder + "/*.safetensors")):
        with safe_open(path, "pt") as file:
            found |= {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    return found


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """The census of the folder: every weight of the fixed run, with its shape."""
    expected = reference[0]
    whole = sum(values[0].get(name) == shape for name, shape in expected.items())
    return None if whole == len(expected) else f"{whole} of {len(expected)} weights have the shape of the model"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The call that the finding names."""
    return {} if subject.finding.fact("call") == "save_pretrained" and case.params["stage"] == 3 else None
