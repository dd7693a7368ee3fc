"""**What.** `deepspeed --hostfile hosts --num_nodes 4` with a hostfile of two hosts, or `--num_gpus 8` with hosts that
have four slots. `--include` or `--exclude` names a host or a slot that the hostfile does not have.

**Why it hurts.** DeepSpeed says nothing about either. It trains on the hosts that there are: half of the cluster, and
half of the global batch. `--num_gpus` replaces the slots of every host: processes beyond the GPUs of a host stop with
`invalid device ordinal`, while the others wait for them. A host or slot that is not in the file ends the launcher:
`ValueError: No slot '2' specified on host 'work1'`.

**Fix.** Leave both options out, so that the hostfile alone says it, or complete the hostfile.

**When it stays quiet.** When a number is not known, when a script of the project writes or mentions the hostfile, with
`--include` and `--exclude` for the numbers, and when the options ask for less than the file has.

**Evidence.** `deepspeed/launcher/runner.py` (`apply_num_nodes_and_gpus`, `parse_resource_filter`), run with DeepSpeed
0.19.8
(`tests/launchers/test_hostfile_options.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL496",
    name="hostfile-has-less",
    kind="plan",
    severity=Severity.WARNING,
    summary="options of `deepspeed` ask for hosts, slots or numbers that the hostfile does not have",
    references=("https://www.deepspeed.ai/getting-started/#resource-configuration-multi-node",),
    depends_on_run=True,
    needs=("hostfile",),
    no_experiment="it takes several hosts; DeepSpeed's own function is run in a test",
)

_RUN = "deepspeed --hostfile conf/hosts {} train.py\n"
_HOSTS = "worker-0 slots=4\nworker-1 slots=4\n"
_FILES = {"conf/hosts": _HOSTS, "train.py": "print()\n"}

EXAMPLES = (
    bad("four nodes of two", {"run.sh": _RUN.format("--num_nodes 4"), **_FILES}, "run.sh:1 warning"),
    bad("eight processes for four slots", {"run.sh": _RUN.format("--num_gpus 8"), **_FILES}, "run.sh:1 warning"),
    bad("slots of other GPUs", {"run.sh": _RUN.format("--include=worker-0:2,4"), **_FILES}, "run.sh:1 error"),
    bad("a host of another cluster", {"run.sh": _RUN.format("--exclude worker-7"), **_FILES}, "run.sh:1 error"),
    good("some of the slots", {"run.sh": _RUN.format("--include worker-0:2,3@worker-1"), **_FILES}),
    good("one of two nodes, two of four slots", {"run.sh": _RUN.format("--num_nodes 1 --num_gpus 2"), **_FILES}),
    good("the host with few slots takes no part", {
        "run.sh": _RUN.format("--num_nodes 1 --num_gpus 4"), **_FILES,
        "conf/hosts": "worker-0 slots=4\nworker-1 slots=2\n",
    }),
    good("the launch file writes it", {
        "run.sh": f"cat > conf/hosts <<EOF\n{_HOSTS}EOF\n" + _RUN.format("--num_nodes 4"), **_FILES,
    }),
)  # fmt: skip

_MESSAGES = {
    "nodes": "`--num_nodes {asked}` with a hostfile of {there} hosts: DeepSpeed silently trains on {there}",
    "slots": "`--num_gpus {asked}` on a host of {there} slots: DeepSpeed starts {asked} processes there",
    "host": "the hostfile has no host `{asked}`: DeepSpeed stops with a ValueError",
    "slot": "the hostfile has no slot `{asked}`, that host has {there}: DeepSpeed stops with a ValueError",
}
# Which of them ends the launcher.
_STOPS = ("host", "slot")


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """What the command asks of its hostfile."""
    problem = plan.hostfile
    if problem is None or problem.kind not in _MESSAGES:
        return
    yield META.finding(
        problem.location,
        _MESSAGES[problem.kind].format(asked=problem.text, there=problem.count),
        hint="Complete the hostfile, or leave the option out",
        related=(problem.first,) if problem.first is not None else (),
        severity=Severity.INFO if plan.command.in_docs else Severity.ERROR if problem.kind in _STOPS else None,
        facts={"kind": problem.kind, "there": problem.count},
    )
