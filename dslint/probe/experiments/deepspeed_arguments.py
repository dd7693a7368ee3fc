"""Arguments of `deepspeed` that it refuses, or that it silently makes nothing of.

The runner of DeepSpeed gets the words as written and as fixed. Where several hosts take part, ssh and pdsh are
recorders (no host is reached), and the processes are those that the command for pdsh would start. What is not shown:
backends other than pdsh, and whether the hosts answer.
"""

from __future__ import annotations

import os

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

_UNKNOWN = Expect((Kind.RAISE,), r"NotImplementedError: Unknown launcher")
_BOTH = Expect((Kind.RAISE,), r"ValueError: Cannot specify num_nodes/gpus with include/exclude")
_LOCAL = ["--num_gpus", "2", "train.py"]
_HOSTS = ["--hostfile", "hosts", "--num_gpus", "2"]

EXPERIMENT = Experiment(
    name="deepspeed-arguments",
    summary="deepspeed refuses its arguments, or starts fewer processes than they seem to say",
    flavour="deepspeed",
    ranks=1,
    expect=_BOTH,
    cases=(
        Case(
            "launcher-value",
            {"words": [*_HOSTS, "--launcher", "pytorch", "train.py"], "right": [*_HOSTS, "train.py"]},
            _UNKNOWN,
            rules=("DSL328",),
        ),
        Case(
            "launcher-value-on-one-node",
            {"words": ["--num_gpus", "2", "--launcher", "pytorch", "train.py"], "right": _LOCAL},
            rules=("DSL328",),
            verdict=Verdict.NOT_REPRODUCED,
        ),
        Case(
            "include-and-num_gpus",
            {"words": ["--include", "localhost:0,1", *_LOCAL], "right": _LOCAL},
            rules=("DSL324",),
        ),
        Case(
            "visible-devices-and-num_nodes",
            {"words": ["--num_nodes", "1", "train.py"], "visible": "0,1", "right": _LOCAL},
            rules=("DSL323",),
        ),
        Case(
            "visible-devices-and-num_gpus",
            {"words": _LOCAL, "visible": "2,3", "right": ["--include", "localhost:2,3", "train.py"], "devices": 8},
            Expect((Kind.WRONG,), r"takes the devices 0,1 instead of 2,3"),
            rules=("DSL322",),
        ),
        Case(
            "visible-devices-alone",
            {
                "words": ["train.py"],
                "visible": "2,3",
                "right": ["--include", "localhost:2,3", "train.py"],
                "devices": 8,
            },
            rules=("DSL322",),
            verdict=Verdict.NOT_REPRODUCED,
        ),
        Case(
            "include-and-exclude",
            {"words": ["--include", "a", "--exclude", "b", "--hostfile", "hosts", "train.py"], "right": _LOCAL},
            Expect((Kind.RAISE,), r"ValueError: include_str and exclude_str are mutually exclusive"),
            rules=("DSL324",),
        ),
        Case(
            "num_nodes-without-hostfile",
            {"words": ["--num_nodes", "2", *_LOCAL], "right": [*_HOSTS, "--num_nodes", "2", "train.py"]},
            Expect((Kind.RAISE,), r"ValueError: Num nodes is >1 but no extra nodes available via hostfile"),
            rules=("DSL325",),
        ),
        Case(
            "hostfile-missing",
            {"words": ["--hostfile", "host", "--num_gpus", "2", "train.py"], "right": [*_HOSTS, "train.py"]},
            Expect((Kind.WRONG,), r"2 processes on 1 host instead of 4 on 2"),
        ),
        Case(
            "hostfile-twice-the-same",
            {"words": ["--hostfile", "twice", "train.py"], "right": [*_HOSTS, "train.py"]},
            Expect((Kind.RAISE,), r"ValueError: Hostfile contains multiple entries"),
        ),
    ),
)


def written(rank: RankApi) -> Json:
    """The words as they are."""
    visible: str = rank.params.get("visible", "")
    if visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    return _run(rank, rank.params["words"], visible)


def fixed(rank: RankApi) -> Json:
    """The words that say what was meant."""
    return _run(rank, rank.params["right"])


def _run(rank: RankApi, words: list[str], visible: str = "") -> Json:
    from dslint.probe.parts.dslaunch import deepspeed
    from dslint.probe.parts.launch_parsers import launched

    if "devices" in rank.params:
        environment = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
        found = launched("deepspeed", words, environment, rank.params["devices"])
        return {"takes": found["environment"]["CUDA_VISIBLE_DEVICES"]}
    for name, hosts in (("hosts", ("a", "b")), ("twice", ("a", "a"))):
        with open(name, "w", encoding="utf-8") as file:
            file.write("".join(f"{host} slots=2\n" for host in hosts))
    return [[note["RANK"], note.get("host", "localhost")] for note in deepspeed(rank, words)]


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Fewer processes, or fewer hosts, than meant; or other devices."""
    if isinstance(values[0], dict):
        takes, devices = values[0]["takes"], reference[0]["takes"]
        return None if takes == devices else f"deepspeed takes the devices {takes} instead of {devices}"

    def count(processes: list[list[str]]) -> tuple[int, int]:
        return len(processes), len({host for _, host in processes})

    started, meant = count(values[0]), count(reference[0])
    if started == meant:
        return None
    hosts = "host" if started[1] == 1 else "hosts"
    return f"deepspeed starts {started[0]} processes on {started[1]} {hosts} instead of {meant[0]} on {meant[1]}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The value of ``--launcher``, on several nodes or on one; the options that are refused together."""
    if subject.finding.code != "DSL328":
        return _conflict(subject, case)
    value, several = subject.finding.fact("launcher"), subject.finding.fact("several_nodes")
    wanted = "launcher-value" if several is not False else "launcher-value-on-one-node"
    if case.name != wanted or not isinstance(value, str):
        return None
    return {"words": [value if word == "pytorch" else word for word in case.params["words"]]}


def _conflict(subject: Subject, case: Case) -> dict[str, Json] | None:
    fact = subject.finding.fact
    if subject.finding.code == "DSL324":
        both = "exclude" in str(fact("options")) and "num" not in str(fact("options"))
        return {} if case.name == ("include-and-exclude" if both else "include-and-num_gpus") else None
    if subject.finding.code == "DSL322" and fact("option") != "--num_gpus":
        return None
    return {}
