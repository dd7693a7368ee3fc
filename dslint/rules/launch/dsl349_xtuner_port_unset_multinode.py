"""**What.** `NNODES` is above 1 for `xtuner train`, but `PORT` or `ADDR` is not set.

**Why it hurts.** Without `PORT` every node draws its own random port, without `ADDR` every node takes 127.0.0.1 for
the first node. The nodes never meet: after the time-out (600 s for torchrun's static rendezvous) node 0 says `Timed
out ... waiting for clients. 1/2 clients joined`, and every other node `The client socket has timed out`.

**Fix.** Set `PORT`, `ADDR` (the address of node 0) and `NODE_RANK` on every node, with the same port and address.

**When it stays quiet.** With `--launcher slurm` (XTuner then reads Slurm's variables), when the file sets the variable
in a way that cannot be read, and when it sources another file.

**Evidence.** XTuner `entry_point.py`, `cli`: `random.randint(20000, 29999)` and `os.environ.get("ADDR", "127.0.0.1")`;
both messages observed with torch 2.13 and two nodes on different ports.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.xtuner import asks_for_slurm, multi_node_origins, trains
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL349",
    name="xtuner-port-unset-multinode",
    kind="launch",
    severity=Severity.ERROR,
    summary="XTuner on several nodes without a common port and address",
    references=("https://github.com/InternLM/xtuner/issues/666",),
    needs=("xtuner",),
)

EXAMPLES = (
    bad(
        "the address is set, the port is not",
        {
            "run.sh": "export XTUNER_DATASET_TIMEOUT=120\n"
            "NPROC_PER_NODE=8 NNODES=2 NODE_RANK=$1 ADDR=10.0.0.1 xtuner train c.py --launcher pytorch\n"
        },
        "run.sh:2 error",
    ),
    bad(
        "exported variables, neither is set",
        {
            "run.sh": "export NNODES=8\nexport NPROC_PER_NODE=8\nexport XTUNER_DATASET_TIMEOUT=120\n"
            "xtuner train c.py --launcher pytorch\n"
        },
        "run.sh:4 error",
    ),
    good(
        "all of them are set",
        {
            "run.sh": "export XTUNER_DATASET_TIMEOUT=120\nNPROC_PER_NODE=8 NNODES=2 NODE_RANK=$1 PORT=29600 ADDR=$HOST0"
            " xtuner train c.py --launcher pytorch\n"
        },
    ),
    good("one node", {"run.sh": "NPROC_PER_NODE=8 NNODES=1 xtuner train c.py\n"}),
    good(
        "another file sets them",
        {
            "run.sh": "source cluster.sh\nexport XTUNER_DATASET_TIMEOUT=120\n"
            "NPROC_PER_NODE=8 NNODES=2 xtuner train c.py --launcher pytorch\n"
        },
    ),
    good(
        "Slurm starts the processes",
        {"run.sh": "export XTUNER_DATASET_TIMEOUT=120\nNNODES=2 srun -N 2 -n 16 xtuner train c.py --launcher slurm\n"},
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Multi-node commands of XTuner without a rendezvous."""
    del context
    for command in doc.commands:
        nodes = command.variable("NNODES")
        if not trains(command) or asks_for_slurm(command) or not nodes.is_known or command.may_hide_flags(operands=1):
            continue
        if not nodes.get().isdigit() or int(nodes.get()) < 2:
            continue
        missing = [name for name in ("PORT", "ADDR") if command.variable(name).is_absent]
        if not missing:
            continue
        names = " and ".join(f"`{name}`" for name in missing)
        effects = {"PORT": "each node draws its own port", "ADDR": "each takes 127.0.0.1 for node 0"}
        yield META.finding(
            command.location,
            f"`xtuner train` on {nodes.get()} nodes without {names}: "
            f"{' and '.join(effects[name] for name in missing)}, so they never meet",
            hint="Set `PORT`, `ADDR` (of node 0) and `NODE_RANK` on every node",
            related=multi_node_origins(command),
            severity=Severity.WARNING if doc.in_docs else Severity.ERROR,
            facts={"missing": " and ".join(missing), "nodes": int(nodes.get())},
        )
