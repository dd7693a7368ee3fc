"""`parser.add_argument("--local_rank")` without `type=int`.

The launcher passes `--local_rank=0`. As written the value is the text "0"; as fixed, with `type=int`, the number.
Nothing fails at once: a text is never equal to a number, so no rank takes itself for the main one, and nobody saves or
logs; or every rank takes itself for one of many where `-1` means a run without a launcher.
"""

from __future__ import annotations

import argparse

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="local-rank-without-type",
    summary="the local rank is a text, and no rank takes itself for the main one",
    rules=("DSL252",),
    flavour="plain",
    expect=Expect((Kind.WRONG,), r"no rank is the main one"),
    cases=(
        Case("is-zero", {"default": None, "among": [0]}),
        Case("is-zero-or-alone", {"default": -1, "among": [-1, 0]}),
        Case("compared-with-a-text", {"default": "-1", "among": ["0", 0]}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """No type."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", default=rank.params["default"])
    return _is_main(rank, parser)


def fixed(rank: RankApi) -> Json:
    """`type=int`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=rank.params["default"])
    return _is_main(rank, parser)


def _is_main(rank: RankApi, parser: argparse.ArgumentParser) -> bool:
    arguments = parser.parse_args([f"--local_rank={rank.index}"])
    return arguments.local_rank in rank.params["among"]


def wrong(values: list[Json], reference: list[Json]) -> str | None:  # noqa: ARG001 - exactly one is right
    """Not one main rank."""
    count = sum(values)
    return None if count == 1 else f"{'no rank is' if not count else f'{count} ranks are'} the main one"
