"""**What.** A script starts `torchrun` on one node with a number as `--master_port`.

**Why it hurts.** A second run on the same machine, or the rest of one that has crashed, holds the port: `EADDRINUSE`.
One node needs no port: torchrun takes a free one by itself.

**Fix.** `--standalone`, or `--master_port ${MASTER_PORT:-29500}` with a way to change it.

**When it stays quiet.** On several nodes, which need a common port, in documentation, for ports that come from a
variable, and from the second command of a file on.

**Evidence.** torch 2.13: a second agent at the port stops with `EADDRINUSE`. Report: pytorch/pytorch#73320.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.devices import number
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.rendezvous import rendezvous
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL310",
    name="port-hard-coded",
    kind="launch",
    severity=Severity.INFO,
    summary="torchrun on one node with a fixed port",
    references=("https://github.com/pytorch/pytorch/issues/73320",),
    optional=True,
    needs=("--master_port",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nproc_per_node 8 --master_port %s train.py\n"

EXAMPLES = (
    bad("one node, one port", {"run.sh": _RUN % 29501 + _RUN % 29502, **_SCRIPT}, "run.sh:1 info"),
    good("any free port", {"run.sh": "torchrun --standalone --nproc_per_node 8 train.py\n", **_SCRIPT}),
    good("a port that can be changed", {"run.sh": _RUN % "${MASTER_PORT:-29501}", **_SCRIPT}),
    good(
        "several nodes",
        {
            "run.sh": "torchrun --nnodes 2 --node_rank $R --master_addr $HOST0 --master_port 29501 train.py\n",
            **_SCRIPT,
        },
    ),
    good("documentation", {"README.md": f"```bash\n{_RUN % 29501}```\n", **_SCRIPT}),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """The first fixed port of a run on one node."""
    del context
    if doc.in_docs:
        return
    for command in doc.commands:
        how, flag = rendezvous(command), command.launcher_flag("--master_port")
        port = number(flag)
        if how is None or flag is None or flag.value is None or port is None or flag.value.origins:
            continue
        if "$" in flag.value.raw or command.nodes.get_or(2) != 1 or how.is_standalone or not how.is_static:
            continue
        yield META.finding(
            flag.location,
            f"port {port} is fixed for a run on one node: a second run on the machine stops with `EADDRINUSE`",
            hint="Use `--standalone`, or take the port from a variable",
            facts={"port": port},
        )
        return
