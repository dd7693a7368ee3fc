"""`torch.distributed.launch` passes an argument to the script that torchrun does not.

The real `main` of both modules reads the same words; what is compared is the command of one process. Scripts that
refuse the argument are shown elsewhere.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="argument-of-old-launcher",
    summary="torch.distributed.launch adds --local-rank to the arguments of the script",
    rules=("DSL452",),
    ranks=1,
    cpu_only=True,
    expect=Expect((Kind.WRONG,), r"the script gets --local-rank"),
    cases=(
        Case("plain", {"words": ["--nproc_per_node", "2", "train.py"]}),
        Case("use-env", {"words": ["--use_env", "--nproc_per_node", "2", "train.py"]}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The old module."""
    return _arguments("launch", rank.params["words"])


def fixed(rank: RankApi) -> Json:
    """torchrun."""
    return _arguments("torchrun", [word for word in rank.params["words"] if word != "--use_env"])


def _arguments(launcher: str, words: list[str]) -> Json:
    from dslint.probe.parts.launch_parsers import launched

    command = launched(launcher, words)["command"]
    return [word for word in command if word.startswith("--local")]


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """An argument more."""
    return f"the script gets {' '.join(values[0])}" if values[0] != reference[0] else None
