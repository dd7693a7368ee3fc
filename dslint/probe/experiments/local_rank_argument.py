"""A launcher that gives each process its local rank as an argument that the script does not know.

`deepspeed` appends ``--local_rank=N`` unless it is told ``--no_local_rank``; ``torch.distributed.launch`` appends
``--local-rank=N`` (with a hyphen, since torch 2.0) unless it is told ``--use_env``. As written, argparse of the script
refuses it; as fixed, the script declares both spellings.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

EXPERIMENT = Experiment(
    name="local-rank-argument",
    summary="the launcher appends the local rank as an argument that the script does not declare",
    rules=("DSL413",),
    flavour="deepspeed",
    ranks=1,
    expect=Expect((Kind.RAISE,), r"unrecognized arguments: --local_rank=\d"),
    cases=(
        Case("deepspeed-undeclared", {"by": "deepspeed", "options": [], "declared": ["--lr"]}),
        Case(
            "launch-underscore-only",
            {"by": "launch", "options": [], "declared": ["--local_rank"]},
            Expect((Kind.RAISE,), r"unrecognized arguments: --local-rank=\d"),
        ),
        Case(
            "torchrun-undeclared",
            {"by": "run", "options": [], "declared": ["--lr"]},
            verdict=Verdict.NOT_REPRODUCED,
        ),
        Case(
            "deepspeed-no_local_rank",
            {"by": "deepspeed", "options": ["--no_local_rank"], "declared": ["--lr"]},
            verdict=Verdict.NOT_REPRODUCED,
        ),
        Case(
            "launch-use-env",
            {"by": "launch", "options": ["--use_env"], "declared": ["--lr"]},
            verdict=Verdict.NOT_REPRODUCED,
        ),
    ),
)
_SCRIPT = """
import argparse
parser = argparse.ArgumentParser("train.py")
parser.add_argument(*DECLARED, type=int, default=0)
parser.parse_args()
"""


def written(rank: RankApi) -> Json:
    """The script declares what the case says."""
    return _run(rank, rank.params["declared"])


def fixed(rank: RankApi) -> Json:
    """The script declares the local rank in both spellings."""
    return _run(rank, ["--local_rank", "--local-rank"])


def _run(rank: RankApi, declared: list[str]) -> Json:
    from dslint.probe.parts.dslaunch import deepspeed
    from dslint.probe.parts.launcher import torchrun

    by, options = rank.params["by"], rank.params["options"]
    script = _SCRIPT.replace("DECLARED", repr(tuple(declared)))
    if by == "deepspeed":
        found = deepspeed(rank, ["--num_gpus", "2", *options, "train.py"], script)
    else:
        found = torchrun(rank, ["--nproc_per_node", "2", *options, "train.py"], script, by)
    return [note["RANK"] for note in found]


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The launcher of the finding, and the spellings that its script declares."""
    accepts = subject.finding.fact("accepts")
    if case.verdict is not Verdict.CONFIRMED or subject.finding.fact("by") != case.params["by"]:
        return None
    return {"declared": accepts.split() if isinstance(accepts, str) and accepts else ["--lr"]}
