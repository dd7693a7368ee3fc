"""**What.** `torchrun` or `accelerate launch` gets a node rank that no node of the run has: `--nnodes 2 --node_rank 2`.
Ranks count from 0.

**Why it hurts.** Node 0 is missing, or one of the others: all agents wait in the rendezvous until it times out.

**Fix.** Ranks from 0 to the number of nodes less 1.

**When it stays quiet.** When a number is not known, when options may be hidden, and with a rendezvous that needs no
node rank (`c10d`).

**Evidence.** torch 2.13, run: two agents of `--nnodes 2` with the ranks 0 and 2 wait for each other. DSL190 says it of
the YAML file of accelerate launch.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.meeting import launcher_is_open, meeting
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL368",
    name="node-rank-of-no-node",
    kind="launch",
    severity=Severity.ERROR,
    summary="A node rank that no node of the run has: ranks count from 0",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    needs=("--node_rank", "--machine_rank", "PET_NODE_RANK"),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nnodes {} --node_rank {} --master_addr 10.0.0.1 --nproc_per_node 8 train.py\n"

EXAMPLES = (
    bad("two nodes, ranks from 1", {"node2.sh": _RUN.format(2, 2), **_SCRIPT}, "node2.sh:1 error"),
    bad(
        "accelerate launch",
        {
            "node2.sh": "accelerate launch --multi_gpu --num_machines 2 --num_processes 16 --machine_rank 2"
            " --main_process_ip 10.0.0.1 --main_process_port 29500 train.py\n",
            **_SCRIPT,
        },
        "node2.sh:1 error",
    ),
    good("the last rank", {"node1.sh": _RUN.format(2, 1), **_SCRIPT}),
    good("a number that is not known", {"node.sh": _RUN.format("$NNODES", 2), **_SCRIPT}),
    good(
        "the rank is not used",
        {
            "node2.sh": "torchrun --nnodes 2 --node_rank 2 --nproc_per_node 8 --rdzv_backend c10d"
            " --rdzv_endpoint 10.0.0.1:29500 train.py\n",
            **_SCRIPT,
        },
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Ranks of nodes at or above the number of nodes."""
    del context
    for command in doc.commands:
        where, nodes = meeting(command), command.nodes.get_or(0)
        rank = where.node_rank.get_or("")
        is_static = where.backend.get_or("static") == "static" and not where.is_standalone
        if command.launcher not in ("torchrun", "accelerate") or not is_static or launcher_is_open(command):
            continue
        if not rank.isdecimal() or len(rank) > 6 or not 1 < nodes <= int(rank):
            continue
        yield META.finding(
            where.node_rank.origins[0] if where.node_rank.origins else command.location,
            f"node rank {rank} in a run of {nodes} nodes, whose ranks are 0 to {nodes - 1}: the nodes never meet",
            hint="Count the nodes from 0",
            related=command.nodes.origins,
            severity=Severity.WARNING if doc.in_docs else None,
            facts={"rank": int(rank), "nodes": nodes},
        )
