"""A script that writes what the launcher has told it over: ``os.environ["RANK"] = "0"``.

torchrun starts two processes. As written each of them takes itself for rank 0 (or for a world of one, or looks for the
store at another port), and the group never forms; as fixed, with ``os.environ.setdefault``, what the launcher gave
stays. A port that is the launcher's own changes nothing.
"""

from __future__ import annotations

from dslint.probe.experiment import Case, Expect, Experiment, Json, RankApi, Subject
from dslint.probe.outcome import Kind, Verdict

# Seconds that a process waits for the others: on a busy machine two processes may start seconds apart.
_FORMS = 30
_NEVER_FORMS = 2
_NEVER = Expect((Kind.WRONG,), r"the group never forms")

EXPERIMENT = Experiment(
    name="rank-environment-literal",
    summary="every process takes itself for the same rank, and the group never forms",
    rules=("DSL250",),
    ranks=1,
    expect=_NEVER,
    cases=(
        Case("RANK", {"name": "RANK", "text": "0"}),
        Case(
            "WORLD_SIZE",
            {"name": "WORLD_SIZE", "text": "1"},
            Expect((Kind.WRONG,), r"the group never forms|in a world of 1"),
        ),
        Case("MASTER_PORT", {"name": "MASTER_PORT", "text": "12355"}),
        Case(
            "LOCAL_RANK",
            {"name": "LOCAL_RANK", "text": "0"},
            Expect((Kind.WRONG,), r"2 processes choose device 0"),
        ),
        Case("the-port-of-the-launcher", {"name": "MASTER_PORT", "text": ""}, verdict=Verdict.NOT_REPRODUCED),
    ),
)

_SCRIPT = """
from datetime import timedelta
import torch.distributed as dist
text = TEXT or os.environ[NAME]
WRITE
try:
    dist.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
    note(world=dist.get_world_size(), rank=dist.get_rank(), device=int(os.environ["LOCAL_RANK"]))
except (RuntimeError, ValueError) as error:
    note(error=type(error).__name__)
"""


def written(rank: RankApi) -> Json:
    """The variable is written over."""
    forms = rank.params["name"] == "LOCAL_RANK" or not rank.params["text"]
    return _run(rank, "os.environ[NAME] = text", _FORMS if forms else _NEVER_FORMS)


def fixed(rank: RankApi) -> Json:
    """What the launcher gave stays."""
    return _run(rank, "os.environ.setdefault(NAME, text)", _FORMS)


def _run(rank: RankApi, write: str, patience: int) -> Json:
    from dslint.probe.parts.hosts import free_port
    from dslint.probe.parts.launcher import torchrun

    script = _SCRIPT.replace("WRITE", write).replace("PATIENCE", str(patience))
    for name in ("NAME", "TEXT"):
        script = script.replace(name, repr(rank.params[name.lower()]))
    arguments = ["--nproc_per_node", "2", "--master_port", str(free_port()), "train.py"]
    notes = torchrun(rank, arguments, script, patience=patience + 20.0)
    return [{name: note.get(name) for name in ("world", "rank", "device", "error")} for note in notes]


def wrong(values: list[Json], reference: list[Json]) -> str | None:
    """Processes that do not form one group, or that choose the same device."""
    seen, expected = values[0], reference[0]
    if seen == expected:
        return None
    errors = sorted({str(note["error"]) for note in seen if note["error"]})
    if errors:
        return f"the group never forms: {len(seen)} processes, {', '.join(errors)}"
    if {note["world"] for note in seen} == {1}:
        return f"{len(seen)} processes, each in a world of 1"
    devices = {note["device"] for note in seen}
    if len(devices) < len(seen):
        return f"{len(seen)} processes choose device {min(devices)}"
    return f"the processes hold {seen}"


def parameters(subject: Subject, case: Case) -> dict[str, Json] | None:
    """The variable and the value of the finding."""
    name, text = subject.finding.fact("variable"), subject.finding.fact("value")
    if name != case.name or not isinstance(text, str):
        return None
    return {"name": name, "text": text}
