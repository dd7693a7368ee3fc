"""Options of torchrun that do not reach it: behind the script, of another launcher, or not typed as options.

As written, torchrun takes what stands behind the script as arguments of the script and starts one process, refuses an
option that only another launcher has, or takes `=` for a value and the dash of a word processor for a script; as fixed,
the options stand before the script under torchrun's own names. The script only writes down its rank and its arguments:
what a single process does to the training is not shown.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

_FEWER = Expect((Kind.WRONG,), r"starts 1 process instead of 2")
_UNKNOWN = Expect((Kind.RAISE,), r"torchrun ends with exit code 2: torchrun: error: unrecognized arguments: --num_gpus")
_VALUE = Expect((Kind.RAISE,), r"ValueError: Unsupported nproc_per_node value")
_BLANK = Expect((Kind.RAISE,), r"torchrun ends with exit code [12]")
_NO_FILE = Expect((Kind.RAISE,), r"No such file or directory: .*nproc_per_node")

EXPERIMENT = Experiment(
    name="torchrun-flags",
    summary="torchrun does not get its options, because they stand behind the script or belong to another launcher",
    ranks=1,
    expect=_FEWER,
    cases=(
        Case("flag-after-script", {"words": ["train.py", "--nproc_per_node", "2"]}, rules=("DSL447",)),
        Case("flag-of-deepspeed", {"words": ["--num_gpus", "2", "train.py"]}, _UNKNOWN, rules=("DSL308",)),
        Case("equals-alone", {"words": ["--nproc_per_node", "=", "2", "train.py"]}, _VALUE, rules=("DSL305",)),
        Case("list-as-count", {"words": ["--nproc_per_node", "0,1", "train.py"]}, _VALUE, rules=("DSL395",)),
        Case("smart-dash", {"words": ["\u2013nproc_per_node", "2", "train.py"]}, _NO_FILE, rules=("DSL306",)),
        Case("smart-quotes", {"words": ["--nproc_per_node", "\u201c2\u201d", "train.py"]}, _VALUE, rules=("DSL306",)),
        Case("strange-blank", {"words": ["--nproc_per_node\u00a02", "train.py"]}, _BLANK, rules=("DSL306",)),
        Case(
            "abbreviated",
            {"words": ["--nproc-per", "2", "train.py"]},
            rules=("DSL308",),
            verdict=Verdict.NOT_REPRODUCED,
        ),
    ),
)


def written(rank: RankApi) -> Json:
    """The words as they are."""
    return _run(rank, rank.params["words"])


def fixed(rank: RankApi) -> Json:
    """The option before the script, under the name that torchrun has for it."""
    return _run(rank, ["--nproc_per_node", "2", "train.py"])


def _run(rank: RankApi, words: list[str]) -> Json:
    from dslint.probe.parts.launcher import torchrun

    return [{"rank": note["RANK"], "argv": note["argv"]} for note in torchrun(rank, words)]


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Fewer processes than meant, and what the script gets as its arguments."""
    started, meant = len(values[0]), len(reference[0])
    if started == meant:
        return None
    got = " ".join(values[0][0]["argv"])
    return f"torchrun starts {started} process instead of {meant}, and the script gets the arguments `{got}`"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The case of the rule, where torchrun is the launcher."""
    finding = subject.finding
    if finding.code == "DSL306":
        kinds = {"dash": "smart-dash", "quote": "smart-quotes", "blank": "strange-blank"}
        return {} if case.name == kinds[str(finding.fact("kind"))] else None
    return {} if finding.fact("launcher") in (None, "torchrun") else None
