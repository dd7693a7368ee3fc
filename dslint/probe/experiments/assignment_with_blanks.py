"""A variable that is set with blanks around the sign: bash runs a program of that name, and the variable stays empty.

bash reads the line, as written and without the blanks, and prints the options that a launcher would get.
"""

from __future__ import annotations

import shutil

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="assignment-with-blanks",
    summary="bash takes a variable that is set with blanks around the sign for a program",
    flavour="plain",
    ranks=1,
    expect=Expect(
        (Kind.WRONG,),
        r"gets `--nproc_per_node train.py`; bash says .*(?:GPUS: command not found|not a valid identifier)",
    ),
    cases=(
        Case("plain", {"line": "GPUS = 2"}, rules=("DSL358",)),
        Case("exported", {"line": "export GPUS = 2"}, rules=("DSL358",)),
        Case("without-blanks", {"line": "GPUS=2"}, rules=("DSL358",), verdict=Verdict.NOT_REPRODUCED),
    ),
)


def written(rank: RankApi) -> Json:
    """The line as it is."""
    return _run(rank, rank.params["line"])


def fixed(rank: RankApi) -> Json:
    """Without the blanks."""
    return _run(rank, rank.params["line"].replace(" = ", "="))


def _run(rank: RankApi, line: str) -> Json:
    bash = shutil.which("bash") or "/bin/bash"
    with open("run.sh", "w", encoding="utf-8") as file:
        file.write(f'{line}\nwords=(--nproc_per_node $GPUS train.py)\necho "${{words[*]}}"\n')
    ran = rank.command([bash, "--noprofile", "--norc", "--restricted", "run.sh"], {"PATH": ""}, patience=10.0)
    return {"out": ran["out"].strip(), "err": ran["err"].strip()}


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """What the launcher gets, and what bash says."""
    if values[0]["out"] == reference[0]["out"]:
        return None
    return f"the launcher gets `{values[0]['out']}`; bash says `{values[0]['err']}`"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The line is the same in every script."""
    del subject
    return {} if case.name == "plain" else None
