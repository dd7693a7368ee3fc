"""**What.** `torchrun` or `accelerate launch` gets a node rank that no node of the run has: `--nnodes 2 --node_rank
2`, or `--node_rank 3` on a single machine. Ranks count machines, not GPUs, and begin at 0.

**Why it hurts.** Node 0 is missing, or one of the others: all agents wait in the rendezvous until it times out. A
single machine that is not node 0 waits for a node 0 that nobody starts.

**Fix.** Ranks from 0 to the number of nodes less 1.

**When it stays quiet.** When a number is not known, when options may be hidden, and with a rendezvous that needs no
node rank (`c10d`). On one machine also when no port is stated, for torch 2.12 and later then meet by `c10d`, and for
accelerate launch, which reads no rank there.

**Evidence.** torch 2.13, run: two agents of `--nnodes 2` with the ranks 0 and 2 wait for each other, and so does
`--nnodes 1 --node_rank 3` with a port. DSL190 says it of the YAML file of accelerate launch.
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
    bad(
        "a rank on one machine",
        {
            "run.sh": _RUN.format(1, 3).replace("--nproc", "--master_port 12345 --nproc"),
            **_SCRIPT,
        },
        "run.sh:1 error",
    ),
    bad(
        "nobody says how many",
        {
            "run.sh": "GPU=1\npython -m torch.distributed.run --nproc_per_node 1 --node_rank $GPU \\\n"
            "  --master_addr localhost --master_port 12345 train.py\n",
            **_SCRIPT,
        },
        "run.sh:2 error",
    ),
    bad(
        "in documentation",
        {
            "README.md": f"```bash\n{_RUN.format(1, 1)}```\n".replace("--nproc", "--master_port 12345 --nproc"),
            **_SCRIPT,
        },
        "README.md:2 warning",
    ),
    good("one machine without a port: c10d today", {"run.sh": _RUN.format(1, 3), **_SCRIPT}),
    good(
        "one machine, and its rank",
        {
            "run.sh": _RUN.format(1, 0).replace("--nproc", "--master_port 12345 --nproc"),
            **_SCRIPT,
        },
    ),
    good(
        "one machine of accelerate launch",
        {
            "run.sh": "accelerate launch --multi_gpu --num_machines 1 --num_processes 4 --machine_rank 1"
            " --main_process_port 29500 train.py\n",
            **_SCRIPT,
        },
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
        where = meeting(command)
        is_alone = command.nodes.is_absent or command.nodes.get_or(0) == 1
        is_one = command.launcher == "torchrun" and where.port.is_known and is_alone
        nodes = 1 if is_one else command.nodes.get_or(0)
        rank = where.node_rank.get_or("")
        is_static = where.backend.get_or("static") == "static" and not where.is_standalone
        if command.launcher not in ("torchrun", "accelerate") or not is_static or launcher_is_open(command):
            continue
        if not rank.isdecimal() or len(rank) > 6 or not (is_one or nodes > 1) or int(rank) < nodes:
            continue
        several = f"{nodes} nodes, whose ranks are 0 to {nodes - 1}: the nodes never meet"
        single = "one node, which must be node 0: it waits for a node that nobody starts"
        yield META.finding(
            where.node_rank.origins[0] if where.node_rank.origins else command.location,
            f"node rank {rank} in a run of {single if is_one else several}",
            hint="Write `--node_rank 0`: it counts machines, not GPUs" if is_one else "Count the nodes from 0",
            related=command.nodes.origins,
            severity=Severity.WARNING if doc.in_docs else None,
            facts={"rank": int(rank), "nodes": nodes},
        )
