"""**What.** A script for several nodes starts `torchrun` with a number as `--node_rank`.

**Why it hurts.** Started on a second node as it is, the script claims the same rank again: that node fails to bind the
port of node 0, or waits at it forever.

**Fix.** `--node_rank $NODE_RANK`, or an argument of the script.

**When it stays quiet.** When the name of the file says which node it is for (`node0.sh`, `master.sh`), when the file
starts other nodes too, in documentation, and where the rank comes from a variable.

**Evidence.** torch 2.13 on two hosts with the same node rank: they never meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.fornode import is_for_one_node
from dslint.model.launch.rendezvous import places, rendezvous
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL314",
    name="node-rank-literal",
    kind="launch",
    severity=Severity.INFO,
    summary="A script for several nodes has one node rank in it",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    needs=("--node_rank",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nnodes 2 --node_rank %s --master_addr 10.0.0.1 --nproc_per_node 8 train.py\n"
# The file starts other nodes, too: in another service of a compose file, in another step.
_RANKS = re.compile(r"--node[-_]rank[=\s\"',]+(\d+)")

EXAMPLES = (
    bad("every node that runs it is node 0", {"run.sh": _RUN % 0, **_SCRIPT}, "run.sh:1 info"),
    good("a variable, and a default", {"run.sh": _RUN % "$NODE_RANK" + _RUN % "${NODE_RANK:-0}", **_SCRIPT}),
    good("one file for each node", {"train_node0.sh": _RUN % 0, "train_node1.sh": _RUN % 1, **_SCRIPT}),
    good("one file for all nodes", {"run.sh": "ssh a " + (_RUN % 0)[:-1] + " &\nssh b " + _RUN % 1, **_SCRIPT}),
    good("one node", {"run.sh": "torchrun --nnodes 1 --node_rank 0 --nproc_per_node 8 train.py\n", **_SCRIPT}),
    good("documentation shows node 0", {"README.md": f"```bash\n{_RUN % 0}```\n", **_SCRIPT}),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Numbers as node ranks in a script that several nodes share."""
    del context
    if doc.in_docs or is_for_one_node(doc.source.path) or len(set(_RANKS.findall(doc.source.text))) > 1:
        return
    ranks = {how.node_rank.get_or(None) for command in doc.commands if (how := rendezvous(command)) is not None}
    if len(ranks - {None}) != 1:
        return
    for command in doc.commands:
        how, flag = rendezvous(command), command.launcher_flag("--node_rank")
        if how is None or flag is None or flag.value is None or not how.is_static or command.nodes.get_or(1) < 2:
            continue
        if not (flag.value.text or "").isdigit() or flag.value.origins or "$" in flag.value.raw:
            continue
        yield META.finding(
            flag.location,
            f"`{flag.name} {flag.value.text}` in a script for {command.nodes.get()} nodes: on any other node it claims"
            f" node {flag.value.text} a second time",
            hint="Take the rank from a variable or an argument of the script",
            related=places(command, "--nnodes"),
            facts={"nodes": command.nodes.get()},
        )
