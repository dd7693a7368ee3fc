"""**What.** `torchrun` runs on several nodes that are not told who they are or where to meet: `--node_rank` or
`--master_addr` is missing, or the backend is c10d and `--rdzv_endpoint` is missing. The number of nodes may come from
a script that calls the one with the command: then the finding is at the call.

**Why it hurts.** Without `--node_rank` every node believes it is node 0; without an address every node looks for the
others at its own loopback. Nobody says a word: each node waits until the rendezvous times out. torchrun does not read
`MASTER_ADDR`, `RANK` or `NODE_RANK` for this, only its options and `PET_MASTER_ADDR`, `PET_NODE_RANK`.

**Fix.** `--nnodes 2 --node_rank $NODE_RANK --master_addr $HOST0 --master_port 29500` on every node, or
`--rdzv_backend c10d --rdzv_endpoint $HOST0:29500`.

**When it stays quiet.** With `PET_*` variables, when an option may be hidden (`$ARGS`), with a range of nodes (`1:4`),
for node 0 without an address (it is the address) and for other nodes that the same file starts beside it, with
`--standalone` (DSL313), and for a piece of a command without a script in documentation. Where the number of nodes is a
variable it is a warning, and only for a node rank without an address, or where a loop of `ssh` over hosts or `pdsh`
starts the same words on all.

**Evidence.** torch 2.13 on two hosts (network namespaces): both agents wait in `next_rendezvous` until they are killed.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.everynode import repeated_at
from dslint.model.launch.rendezvous import Rendezvous, owners_of_loopback, places, rendezvous
from dslint.model.launch.traits import NODES
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL311",
    name="torchrun-multinode-incomplete",
    kind="launch",
    depends_on_run=True,
    severity=Severity.ERROR,
    summary="torchrun on several nodes that are not told their rank or where to meet",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    needs=(NODES,),
)

_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad(
        "two nodes, and nothing else",
        {"run.sh": "torchrun --nnodes 2 --nproc_per_node 8 train.py\n", **_SCRIPT},
        "run.sh:1 error",
    ),
    bad(
        "an address, but no rank",
        {"run.sh": "torchrun --nnodes=2 --nproc_per_node=8 --master_addr=$HOST0 train.py\n", **_SCRIPT},
        "run.sh:1 error",
    ),
    bad(
        "torchrun does not read MASTER_ADDR",
        {
            "run.sh": "export MASTER_ADDR=$1\nNODES=4\n"
            "torchrun --nnodes $NODES --node_rank $RANK --nproc_per_node 8 train.py\n",
            **_SCRIPT,
        },
        "run.sh:3 error",
    ),
    bad(
        "the platform says how many nodes",
        {"run.sh": "torchrun --nnodes $WORLD_SIZE --node_rank $RANK --nproc_per_node 8 train.py\n", **_SCRIPT},
        "run.sh:1 warning",
    ),
    bad(
        "c10d without an end point",
        {"run.sh": "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d train.py\n", **_SCRIPT},
        "run.sh:1 error",
    ),
    bad(
        "in documentation",
        {"README.md": "```bash\ntorchrun --nnodes 2 --nproc_per_node 8 train.py\n```\n", **_SCRIPT},
        "README.md:2 warning",
    ),
    bad(
        "a script that another one calls with the number of nodes",
        {
            "all.sh": "bash node.sh 2 8\n",
            "node.sh": "torchrun --nnodes $1 --nproc_per_node $2 --master_addr host0 train.py\n",
            **_SCRIPT,
        },
        "all.sh:1 error",
    ),
    bad(
        "a loop over hosts whose number is not known",
        {
            "run.sh": 'mapfile -t HOSTS < "$1"\nfor HOST in "${HOSTS[@]}"; do\n'
            '    ssh "$HOST" "cd /work && torchrun --nnodes=${#HOSTS[@]} --nproc_per_node=8 --rdzv_backend=static '
            '--master_addr=${HOSTS[0]} train.py" &\ndone\n',
            **_SCRIPT,
        },
        "run.sh:3 warning",
    ),
    bad(
        "the same words by pdsh",
        {
            "run.sh": 'NODES=$(wc -l < hosts)\npdsh -w "$LIST" "torchrun --nnodes $NODES --nproc_per_node 8 '
            '--master_addr $HOST0 train.py"\n',
            **_SCRIPT,
        },
        "run.sh:2 warning",
    ),
    good(
        "a loop over hosts that counts them",
        {
            "run.sh": 'mapfile -t HOSTS < "$1"\nfor RANK in "${!HOSTS[@]}"; do\n    ssh "${HOSTS[$RANK]}" "cd /work && '
            'torchrun --nnodes=${#HOSTS[@]} --node_rank=$RANK --nproc_per_node=8 --master_addr=${HOSTS[0]} train.py" '
            "&\ndone\n",
            **_SCRIPT,
        },
    ),
    good(
        "a piece of a command in documentation",
        {"README.md": "Set the number of nodes:\n\n```bash\nsrun torchrun --nnodes 2\n```\n"},
    ),
    good(
        "a script that is called with the rank too, or on one node",
        {
            "all.sh": "bash node.sh 2 8 $RANK\nbash one.sh 1 8\n",
            "node.sh": "torchrun --nnodes $1 --nproc_per_node $2 --node_rank $3 --master_addr host0 train.py\n",
            "one.sh": "torchrun --nnodes $1 --nproc_per_node $2 --master_addr host0 train.py\n",
            **_SCRIPT,
        },
    ),
    good(
        "complete",
        {
            "run.sh": "torchrun --nnodes 2 --node_rank $RANK --master_addr $HOST0 --nproc_per_node 8 train.py\n"
            "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $HOST0:29500 train.py\n",
            **_SCRIPT,
        },
    ),
    good(
        "one node, a default of one node, and a number that nobody knows",
        {
            "run.sh": "torchrun --nnodes 1 --nproc_per_node 8 train.py\n"
            "torchrun --nnodes ${NNODES:-1} --nproc_per_node 8 train.py\n"
            "torchrun --nnodes $NNODES --nproc_per_node 8 train.py\n",
            **_SCRIPT,
        },
    ),
    good(
        "node 0 is the address itself",
        {"node0.sh": "torchrun --nnodes 2 --node_rank 0 --master_port 29600 --nproc_per_node 8 train.py\n", **_SCRIPT},
    ),
    good(
        "all nodes on one machine",
        {
            "test.sh": "torchrun --nnodes 2 --node-rank 0 --nproc-per-node 2 train.py &\n"
            "torchrun --nnodes 2 --node-rank 1 --nproc-per-node 2 train.py\n",
            **_SCRIPT,
        },
    ),
    good(
        "the variables that torchrun reads, and options in a variable",
        {
            "run.sh": "torchrun --nnodes 2 $RDZV_ARGS --nproc_per_node 8 train.py\n"
            "export PET_NODE_RANK=$RANK PET_MASTER_ADDR=$HOST0\n"
            "torchrun --nnodes 2 --nproc_per_node 8 train.py\n",
            **_SCRIPT,
        },
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Multi-node commands whose nodes cannot find each other."""
    del context
    owners = owners_of_loopback(doc.commands)
    for number, command in enumerate(doc.commands):
        how = rendezvous(command)
        if how is None or how.is_standalone or (doc.in_docs and command.script is None):
            continue
        missing = _missing(how)
        nodes = command.nodes
        if not missing or nodes.is_absent or nodes.get_or(2) < 2:
            continue
        if missing == ["--master_addr"] and owners - {number}:
            continue
        if nodes.is_unknown and not (how.is_static and _is_variable(command) and _starts_several(doc, command, how)):
            continue
        yield _finding(doc, command, how, missing)
    for command in doc.called:
        how = None if command.conditions else rendezvous(command)
        # Where the number stands in the called script itself, that script is told.
        given = any(place.path == doc.source.path for place in command.nodes.origins)
        if how is None or how.standalone is not None or not given or command.nodes.get_or(0) < 2:
            continue
        if missing := _missing(how):
            yield _finding(doc, command, how, missing)


def _missing(how: Rendezvous) -> list[str]:
    if how.backend.is_unknown:
        return []
    if not how.is_static:
        return ["--rdzv_endpoint"] if how.endpoint.is_absent else []
    missing = ["--node_rank"] if how.node_rank.is_absent else []
    if how.master_addr.is_absent and how.endpoint.is_absent and how.node_rank.get_or("") != "0":
        missing.append("--master_addr")
    return missing


def _starts_several(doc: LaunchDoc, command: LaunchCommand, how: Rendezvous) -> bool:
    """Return whether an unknown number of nodes is several: each has a rank, or a loop over hosts starts them all."""
    return how.node_rank.is_unknown or repeated_at(doc, command, command.location) is not None


def _program(command: LaunchCommand) -> str:
    return next((w.text for w in command.words if w.text == "torch.distributed.launch"), None) or "torchrun"


def _is_variable(command: LaunchCommand) -> bool:
    """``--nnodes $WORLD_SIZE``, not a range and not a computed default."""
    flag = command.launcher_flag("--nnodes")
    return flag is not None and flag.value is not None and flag.value.text is None


def _finding(doc: LaunchDoc, command: LaunchCommand, how: Rendezvous, missing: list[str]) -> Finding:
    names = " and ".join(f"`{name}`" for name in missing)
    effects = {
        "--node_rank": "each node believes it is node 0",
        "--master_addr": "each looks for the others on its loopback",
        "--rdzv_endpoint": "each looks for the others on its loopback",
    }
    nodes = command.nodes
    where = f"on {nodes.get()} nodes" if nodes.is_known else "on more than one node"
    address = command.variable("MASTER_ADDR")
    unread = " (it does not read `MASTER_ADDR`)" if "--master_addr" in missing and address.origins else ""
    here = (command.launcher_flag("--nnodes") or command.words[0]).location
    call = command.called_from[:1]
    return META.finding(
        call[0] if call else here,
        f"{_program(command)} {where} without {names}: {' and '.join(effects[name] for name in missing)}{unread}, and"
        " all time out",
        hint="Add `--rdzv_endpoint HOST0:PORT`"
        if not how.is_static
        else f"Add {names} on every node, or use `--rdzv_backend c10d --rdzv_endpoint HOST0:PORT`",
        related=(*(here,)[: len(call)], *places(command, "--nnodes", "--node_rank", "--rdzv_backend")[1:]),
        severity=Severity.WARNING if doc.in_docs or not nodes.is_known else Severity.ERROR,
        facts={"missing": " ".join(missing), "nodes": nodes.get_or(None)},
    )
