"""**What.** Commands that start one job, each on its own node, contradict each other: another `--nnodes`, port,
address or rendezvous, the same node rank twice, or a file for each node but one. They are in files of their own
(`node0.sh` and `node1.sh`), or in one file with a rank for each node; for `accelerate launch`, the values may come
from its YAML files.

**Why it hurts.** The nodes wait for each other at different places, or for a node that nobody starts, until the
rendezvous times out. Nothing in either log says that the other file differs. Up to torch 2.3, node 0 tells its
`--master_addr` to the workers of all nodes: `localhost` there sends each of them to its own machine.

**Fix.** Say it once: variables in a file that both scripts source, or one script with the node rank as its argument.

**When it stays quiet.** When a value is not known, for node 0 at its own loopback (unless a torch below 2.4 is
stated), for a name and an IP that may be the same host, when the scripts or their arguments are not the same, and when
a file has several commands for the script.

**Evidence.** torch 2.13, run: agents at two ports or with the same rank never meet; where node 0 counts more nodes
than there are, it waits for them. A number on another node counts less: node 0 alone hands out the ranks there, so
that this is a warning. torch 1.9 to 2.3 `elastic/agent/server/api.py`: rank 0 writes `MASTER_ADDR` to the store, and
every agent reads it there; from 2.4 on each uses its own. That was read and not run, so it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context, VersionFact
from dslint.model.plan.jobnodes import NodeDifference
from dslint.model.plan.runplan import RunPlan
from dslint.model.versions.resolve import covers
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL494",
    name="nodes-differ",
    kind="plan",
    severity=Severity.ERROR,
    summary="Two commands that start the nodes of one job contradict each other",
    depends_on_run=True,
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    needs=("differs",),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nnodes {n} --node_rank {r} --nproc_per_node 8 --master_addr {a} --master_port {p} train.py\n"


def _node(rank: int, nodes: int = 2, address: str = "10.0.0.1", port: int = 29500) -> str:
    return _RUN.format(n=nodes, r=rank, a=address, p=port)


_OLD = "torch==1.11.0\n"
_ACC = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmain_process_ip: 10.0.0.1\nnum_machines: 2\n"
    "num_processes: 16\nmachine_rank: {r}\nmain_process_port: {p}\n"
)
_ACCELERATE = {
    "node0.sh": "accelerate launch --config_file node0.yaml train.py\n",
    "node1.sh": "accelerate launch --config_file node1.yaml train.py\n",
    **_SCRIPT,
}

EXAMPLES = (
    bad("two ports", {"node0.sh": _node(0), "node1.sh": _node(1, port=29501), **_SCRIPT}, "node1.sh:1 error"),
    bad("node 0 waits for more", {"node0.sh": _node(0, nodes=4), "node1.sh": _node(1), **_SCRIPT}, "node1.sh:1 error"),
    bad("node 1 counts more", {"node0.sh": _node(0), "node1.sh": _node(1, nodes=4), **_SCRIPT}, "node1.sh:1 warning"),
    bad(
        "the same rank twice",
        {"run_master.sh": _node(0), "run_worker.sh": _node(0), **_SCRIPT},
        "run_worker.sh:1 error",
    ),
    bad(
        "two addresses in one file",
        {"run.sh": f"ssh a '{_node(0).strip()}' &\nssh b '{_node(1, address='10.0.0.2').strip()}'\n", **_SCRIPT},
        "run.sh:2 error",
    ),
    bad(
        "the port is a default on one node",
        {"node0.sh": _node(0).replace(" --master_port 29500", ""), "node1.sh": _node(1, port=29501), **_SCRIPT},
        "node1.sh:1 error",
    ),
    bad(
        "the files of accelerate launch",
        {**_ACCELERATE, "node0.yaml": _ACC.format(r=0, p=29500), "node1.yaml": _ACC.format(r=1, p=29501)},
        "node1.yaml:7 error",
    ),
    bad(
        "node 0 tells its loopback to all",
        {"node0.sh": _node(0, address="localhost"), "node1.sh": _node(1), "requirements.txt": _OLD, **_SCRIPT},
        "node0.sh:1 warning",
    ),
    bad(
        "node 0 names no address",
        {
            "node0.sh": _node(0).replace(" --master_addr 10.0.0.1", ""), "node1.sh": _node(1),
            "requirements.txt": _OLD, **_SCRIPT,
        },
        "node0.sh:1 warning",
    ),
    good(
        "each node uses its own from torch 2.4 on",
        {
            "node0.sh": _node(0, address="localhost"), "node1.sh": _node(1), "requirements.txt": "torch==2.4.0\n",
            **_SCRIPT,
        },
    ),
    bad(
        "no file for the last node",
        {"node0.sh": _node(0, nodes=3), "node1.sh": _node(1, nodes=3), **_SCRIPT},
        "node1.sh:1 warning",
    ),
    good(
        "the first node has a file of another name",
        {
            "worker1.sh": _node(1, nodes=3), "worker2.sh": _node(2, nodes=3), "train.sh": _node(0, nodes=3), **_SCRIPT,
        },
    ),
    good(
        "an example for many nodes",
        {"node0.sh": _node(0, nodes=8), "node1.sh": _node(1, nodes=8), **_SCRIPT},
    ),
    good("the same", {"node0.sh": _node(0), "node1.sh": _node(1), **_SCRIPT}),
    good(
        "node 0 at its loopback, and a name for its number",
        {
            "a/node0.sh": _node(0, address="127.0.0.1"), "a/node1.sh": _node(1), "a/train.py": "print()\n",
            "b/node0.sh": _node(0, address="gpu-1"), "b/node1.sh": _node(1), "b/train.py": "print()\n",
        },
    ),
    good(
        "two jobs",
        {
            "small_node0.sh": _node(0), "small_node1.sh": _node(1),
            "large_node0.sh": _node(0, nodes=4, port=29501), "large_node1.sh": _node(1, nodes=4, port=29501),
            **_SCRIPT,
        },
    ),
    good("variables", {"node0.sh": _node(0), "node1.sh": _node(1).replace("29500", "$PORT"), **_SCRIPT}),
    good(
        "accelerate launch with the same",
        {**_ACCELERATE, "node0.yaml": _ACC.format(r=0, p=29500), "node1.yaml": _ACC.format(r=1, p=29500)},
    ),
)  # fmt: skip

_SAID = {
    "nodes": "this node counts {here} nodes, and the first one {there}: one of them waits for nodes that nobody starts",
    "port": "this node meets the others at port {here}, and the first one at {there}: they never meet",
    "address": "this node meets the others at `{here}`, and the first one at `{there}`: they never meet",
    "backend": "this node meets by `{here}`, and the first one by `{there}`: they never meet",
    "id": "this node joins the job `{here}`, and the first one the job `{there}`: they never meet",
    "loopback": "node 0 tells all nodes to meet at `{here}`, which is each of them itself: they never meet",
    "missing": "the nodes wait for {here}, and there is no file for node {there}: nobody starts it",
    "rank": "two nodes of one job claim node rank {here}: they never meet",
}


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """What a node says differently from the first one."""
    torch = context.libraries.get("torch") or VersionFact()
    is_told = torch.is_known and covers(torch, ">=1.9,<2.4", "torch") == "yes"
    return (_finding(plan, found) for found in plan.differs if is_told or found.what != "loopback")


def _finding(plan: RunPlan, difference: NodeDifference) -> Finding:
    other = difference.other
    return META.finding(
        difference.location,
        _SAID[difference.what].format(here=difference.here, there=difference.there),
        hint="Set it once for all nodes: in a file that both source, or in one script with the rank as argument",
        related=(other.labelled(_related(difference)),),
        severity=Severity.WARNING if plan.command.in_docs or _is_harmless_today(difference) else None,
        facts={"what": difference.what, "here": difference.here, "there": difference.there},
    )


def _related(difference: NodeDifference) -> str:
    if difference.what == "missing":
        return "another node"
    return f"{_whom(difference)}: {difference.there}"


def _whom(difference: NodeDifference) -> str:
    return "another node" if difference.what == "loopback" else "the first node"


def _is_harmless_today(difference: NodeDifference) -> bool:
    """The first node, which counts for torch 2.13, waits for no more nodes than the others; or none was run as old."""
    here, there = difference.here, difference.there
    if difference.what == "missing":
        return True  # another file may start it
    if difference.what == "loopback":
        return True  # read in the sources of the old releases, and not run
    return difference.what == "nodes" and here.isdecimal() and there.isdecimal() and int(there) < int(here)
