"""`parser.add_argument("--flag", type=bool)`.

The command passes `--flag False`. As written every process gets `True`, since `bool` of a text that is not empty is
true; as fixed, with `BooleanOptionalAction` and `--no-flag`, each gets `False`. A value that means true is read right.
"""

from __future__ import annotations

import argparse

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="argparse-bool",
    summary="a flag that the command sets to False is on",
    rules=("DSL253",),
    flavour="plain",
    expect=Expect((Kind.WRONG,), r"`--flag False` gives True"),
    cases=(
        Case("false", {"given": "False"}),
        Case("zero", {"given": "0"}, Expect((Kind.WRONG,), r"`--flag 0` gives True")),
        Case("true", {"given": "True"}, verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """`type=bool`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flag", type=bool, default=True)
    return {"given": rank.params["given"], "is": parser.parse_args(["--flag", rank.params["given"]]).flag}


def fixed(rank: RankApi) -> Json:
    """`BooleanOptionalAction`: `--flag` or `--no-flag`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flag", action=argparse.BooleanOptionalAction, default=True)
    given = "--flag" if rank.params["given"] == "True" else "--no-flag"
    return {"given": rank.params["given"], "is": parser.parse_args([given]).flag}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """A process that holds something else than the command says."""
    for value, expected in zip(values, reference, strict=True):
        if value["is"] != expected["is"]:
            return f"`--flag {value['given']}` gives {value['is']}"
    return None
