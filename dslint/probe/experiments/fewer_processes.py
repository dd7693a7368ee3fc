"""A launcher that starts fewer processes than there are GPUs for, because nobody told it how many.

The real `main` of the launcher reads the words and says what it would start; no process is started.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="fewer-processes",
    summary="torchrun starts one process where several GPUs wait for one each",
    rules=("DSL331",),
    ranks=1,
    cpu_only=True,
    expect=Expect((Kind.WRONG,), r"1 process for 4 GPUs"),
    cases=(
        Case("no-nproc", {"words": ["train.py"]}),
        Case("visible-devices", {"words": ["train.py"], "environment": {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}}),
        Case("its-own-variable", {"words": ["train.py"], "environment": {"PET_NPROC_PER_NODE": "4"}},
             verdict=Verdict.NOT_REPRODUCED),
    ),
)  # fmt: skip


def written(rank: RankApi) -> Json:
    """The words as they are, on a machine with four GPUs."""
    return _processes(rank, rank.params["words"])


def fixed(rank: RankApi) -> Json:
    """With the number of processes."""
    return _processes(rank, ["--nproc_per_node", "gpu", *rank.params["words"]])


def _processes(rank: RankApi, words: list[str]) -> Json:
    from dslint.probe.parts.launch_parsers import launched

    return launched("torchrun", words, rank.params.get("environment"), devices=4)["per_node"]


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Fewer processes than GPUs."""
    return f"{values[0]} process for {reference[0]} GPUs" if values[0] < reference[0] else None
