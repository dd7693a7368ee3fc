"""**What.** The hostfile that a `deepspeed` command names does not exist, is empty, has a line that is not `host
slots=N`, or names a host twice.

**Why it hurts.** For a missing file DeepSpeed prints a warning and trains on the local node alone: a quarter of the
cluster, and nobody notices. A bad line ends the run: `ValueError: Hostfile contains a bad entry`, `Hostfile contains
multiple entries`, `Hostfile is empty`.

**Fix.** One line a host, `worker-0 slots=8`; comments begin with `#`.

**When it stays quiet.** For absolute paths and `~`; for names without a folder that are nowhere (`-H hostfile` is made
on the cluster); when the launch file or a script of the project writes or mentions the file. One name without a
number in it that is repeated (`node_ip`) is a form to fill in: information.

**Evidence.** `deepspeed/launcher/runner.py` (`fetch_hostfile`, `_parse_hostfile`), run with DeepSpeed 0.19.8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.assumptions import assumed
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.hostfile import HostfileProblem
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL451",
    name="deepspeed-hostfile",
    kind="plan",
    severity=Severity.ERROR,
    summary="DeepSpeed refuses the hostfile, or does not find it and trains on one node",
    references=("https://www.deepspeed.ai/getting-started/#resource-configuration-multi-node",),
    depends_on_run=True,
    needs=("hostfile",),
)

_RUN = "deepspeed --hostfile conf/hosts train.py\n"
_HOSTS = "# two nodes\nworker-0 slots=8\nworker-1 slots=8\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("the file has another name", {"run.sh": _RUN, "conf/hosts.txt": _HOSTS, **_SCRIPT}, "run.sh:1 warning"),
    bad("no slots", {"run.sh": _RUN, "conf/hosts": _HOSTS.replace("-1 slots=8", "-1"), **_SCRIPT},
        "conf/hosts:3 error"),
    bad("a host twice", {"run.sh": _RUN, "conf/hosts": _HOSTS.replace("worker-1", "worker-0"), **_SCRIPT},
        "conf/hosts:3 error"),
    bad("a name to fill in twice", {"run.sh": _RUN, "conf/hosts": "node_ip slots=8\nnode_ip slots=8\n", **_SCRIPT},
        "conf/hosts:2 info"),
    bad("nothing but comments", {"run.sh": _RUN, "conf/hosts": "# later\n", **_SCRIPT}, "run.sh:1 error"),
    good("two hosts", {"run.sh": _RUN, "conf/hosts": _HOSTS, **_SCRIPT}),
    good("the launch file writes it", {"run.sh": f"cat > conf/hosts <<EOF\n{_HOSTS}EOF\n" + _RUN, **_SCRIPT}),
    good("the cluster has it", {"run.sh": _RUN.replace("conf/hosts", "/job/hostfile"), **_SCRIPT}),
    good("a name of the cluster", {"run.sh": _RUN.replace("conf/hosts", "hostfile"), **_SCRIPT}),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """What DeepSpeed says about the hostfile."""
    problem, command = plan.hostfile, plan.command
    if problem is None or problem.kind not in ("missing", *_MESSAGES):
        return
    if problem.kind == "missing":
        yield META.finding(
            problem.location,
            f"the hostfile `{problem.text}` does not exist: DeepSpeed only warns, and trains on the local node alone",
            hint="Correct the path or add the file",
            severity=Severity.INFO if command.in_docs else Severity.WARNING,
            assumptions=(assumed("files-are-here", problem.text),),
            facts={"kind": problem.kind},
        )
        return
    elsewhere = problem.location.path != command.location.path
    related = (problem.first.labelled("the host is here already"),) if problem.first is not None else ()
    yield META.finding(
        problem.location,
        _MESSAGES[problem.kind].format(problem.text),
        hint="Write one line per host: `worker-0 slots=8`",
        related=(*related, *((command.location.labelled("the command that reads it"),) if elsewhere else ())),
        severity=Severity.INFO if _is_to_fill_in(problem) else Severity.WARNING if command.in_docs else None,
        facts={"kind": problem.kind},
    )


def _is_to_fill_in(problem: HostfileProblem) -> bool:
    """``node_ip`` in every line: the names of real hosts have numbers or dots."""
    return problem.kind == "twice" and problem.text != "localhost" and re.search(r"[\d.]", problem.text) is None


_MESSAGES = {
    "empty": "the hostfile `{}` names no host: DeepSpeed stops with `ValueError: Hostfile is empty`",
    "line": "`{}` is not of the form `host slots=N`: DeepSpeed stops with `ValueError: Hostfile contains a bad entry`",
    "twice": "the host `{}` occurs twice: DeepSpeed stops with `ValueError: Hostfile contains multiple entries`",
}
