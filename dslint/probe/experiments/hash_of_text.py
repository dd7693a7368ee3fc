"""`hash()` of texts picks a bucket, in an interpreter of its own for each rank.

As written, each rank asks Python's `hash()`; as fixed, `zlib.crc32`. Python salts the hashes of texts in each process,
so the ranks pick different buckets. With `PYTHONHASHSEED` the salt is the same (the control).
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="hash-of-text",
    summary="ranks pick different buckets for the same texts",
    rules=("DSL282",),
    expect=Expect((Kind.WRONG,), r"rank 1 picks other buckets than rank 0"),
    cases=(
        Case("salted", {"seed": ""}),
        Case("hash-seed", {"seed": "7"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The hash of Python."""
    return _buckets(rank, "hash(text)")


def fixed(rank: RankApi) -> Json:
    """A hash that is the same everywhere."""
    return _buckets(rank, "zlib.crc32(text.encode())")


def _buckets(rank: RankApi, expression: str) -> Json:
    import os
    import subprocess
    import sys

    environment = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    if rank.params["seed"]:
        environment["PYTHONHASHSEED"] = rank.params["seed"]
    code = f"import zlib; print(*[{expression} % 1024 for text in ('anna', 'ben', 'carla', 'dora')])"
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    return {"buckets": printed.split()}


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - the ranks are compared
    """Other buckets on another rank."""
    for index, found in enumerate(values[1:], 1):
        if found["buckets"] != values[0]["buckets"]:
            return f"rank {index} picks other buckets than rank 0"
    return None
