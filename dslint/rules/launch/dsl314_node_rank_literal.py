"""**What.** A script for several nodes starts `torchrun` with a number as `--node_rank`. It is a warning where the
project starts the command on several nodes with these very words: in a loop of `ssh` over hosts, by `pdsh`, `srun` or
`mpirun`, also through a script that is called there.

**Why it hurts.** Started on a second node as it is, the script claims the same rank again: that node fails to bind the
port of node 0, or waits at it forever.

**Fix.** `--node_rank $NODE_RANK`, or an argument of the script.

**When it stays quiet.** When the rank differs from node to node, or is not known. The information also when the name
of the file says which node it is for (`node0.sh`, `master.sh`), when the file starts other nodes too, in documentation,
and where the rank comes from a variable.

**Evidence.** torch 2.13 on two hosts with the same node rank: they never meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.everynode import repeated_at
from dslint.model.launch.fornode import is_for_one_node
from dslint.model.launch.rendezvous import places, rendezvous
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_text

META = RuleMeta(
    code="DSL314",
    name="node-rank-literal",
    kind="launch",
    severity=Severity.INFO,
    summary="A script for several nodes has one node rank in it",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    needs=("--node_rank",),
    depends_on_run=True,
)

_EVERY = 'for host in a b; do\n  ssh $host "cd /work && %s" &\ndone\n'
_HOSTS = "HOSTS=(a b)\nfor i in ${!HOSTS[@]}; do\n"
_HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"
_NODE = "torchrun --nnodes $1 --node_rank %s --master_addr $2 --nproc_per_node 8 train.py\n"
_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nnodes 2 --node_rank %s --master_addr 10.0.0.1 --nproc_per_node 8 train.py\n"
# The file starts other nodes, too: in another service of a compose file, in another step.
_RANKS = re.compile(r"--node[-_]rank[=\s\"',]+(\d+)")

EXAMPLES = (
    bad("every node that runs it is node 0", {"run.sh": _RUN % 0, **_SCRIPT}, "run.sh:1 info"),
    bad("a loop over hosts", {"run.sh": _EVERY % _RUN.strip() % 0, **_SCRIPT}, "run.sh:2 warning"),
    bad("a script on each host", {
        "run.sh": _HOSTS + '  ssh -n ${HOSTS[$i]} "cd /work && bash node.sh 2 a" &\ndone\n', "node.sh": _NODE % 0,
        **_SCRIPT,
    }, "run.sh:3 warning"),
    bad("pdsh", {"run.sh": f'pdsh -w a,b "cd /work && {_RUN.strip() % 0}"\n', **_SCRIPT}, "run.sh:1 warning"),
    bad("srun", {"job.sbatch": f"{_HEAD}srun {_RUN % 0}", **_SCRIPT}, "job.sbatch:4 warning"),
    bad("mpirun", {
        "run.sh": "mpirun -np 2 --host a,b bash node.sh 2 a\n", "node.sh": _NODE % 0, **_SCRIPT,
    }, "run.sh:1 warning"),
    bad("a script for each task", {
        "job.sbatch": _HEAD + "srun bash node.sh 2 a\n", "node.sh": _NODE % 0, **_SCRIPT,
    }, "job.sbatch:4 warning"),
    good("the rank of the loop", {
        "run.sh": _HOSTS + '  ssh ${HOSTS[$i]} "cd /work && bash node.sh 2 a $i" &\ndone\n', "node.sh": _NODE % "$3",
        **_SCRIPT,
    }),
    good("a counter", {
        "run.sh": "i=0\n" + (_EVERY % _RUN.strip() % "$i").replace("done", "  i=$((i+1))\ndone"), **_SCRIPT,
    }),
    good("a test of the host", {
        "run.sh": "for host in $HOSTS; do\n  if [ $host = a ]; then\n"
        f'    ssh $host "{_RUN.strip() % 0}" &\n  else\n    ssh $host "{_RUN.strip() % 1}" &\n  fi\ndone\n', **_SCRIPT,
    }),
    good("each node by its name", {
        "job.sbatch": f"{_HEAD}srun -w $FIRST {_RUN.strip() % 0} &\nsrun -w $OTHER {_RUN % 1}", **_SCRIPT,
    }),
    good("the task knows its node", {
        "job.sbatch": f"{_HEAD}srun bash -c '{_RUN.strip() % '$SLURM_NODEID'}'\n", **_SCRIPT,
    }),
    good("a variable, and a default", {"run.sh": _RUN % "$NODE_RANK" + _RUN % "${NODE_RANK:-0}", **_SCRIPT}),
    good("one file for each node", {"train_node0.sh": _RUN % 0, "train_node1.sh": _RUN % 1, **_SCRIPT}),
    good("one file for all nodes", {"run.sh": "ssh a " + (_RUN % 0)[:-1] + " &\nssh b " + _RUN % 1, **_SCRIPT}),
    good("one node", {"run.sh": "torchrun --nnodes 1 --node_rank 0 --nproc_per_node 8 train.py\n", **_SCRIPT}),
    good("documentation shows node 0", {"README.md": f"```bash\n{_RUN % 0}```\n", **_SCRIPT}),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Numbers as node ranks in a script that several nodes share."""
    del context
    repeated = list(_repeated(doc))
    yield from repeated
    if repeated or doc.in_docs or is_for_one_node(doc.source.path) or len(set(_RANKS.findall(doc.source.text))) > 1:
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


def _repeated(doc: LaunchDoc) -> Iterator[Finding]:
    """Yield the commands that one line starts on several nodes with the same rank."""
    ranks: dict[Location, dict[str, LaunchCommand]] = {}
    for command in (*doc.commands, *doc.called):
        how = rendezvous(command)
        if how is not None and how.is_static:
            ranks.setdefault(place_in_text(command), {}).setdefault(how.node_rank.get_or(""), command)
    for place, found in ranks.items():
        (rank, command), *others = found.items()
        # The turns of a loop whose words are known are commands of their own.
        cause = repeated_at(doc, command, place) if rank.isdigit() and not others else None
        if cause is None or command.nodes.get_or(1) < 2:
            continue
        flag = command.launcher_flag("--node_rank")
        inner = (flag.location.labelled(f"{flag.name} {rank}"),) if flag is not None and command.called_from else ()
        yield META.finding(
            place if command.called_from or flag is None else flag.location,
            f"every node is started as node {rank} of {command.nodes.get()}: they claim the same ranks, and never meet",
            hint="Take the rank from the loop, from a variable of the node, or from an argument of the script",
            related=(*inner, *(() if cause == place else (cause.labelled("starts it on each node"),))),
            severity=Severity.INFO if doc.in_docs else Severity.WARNING,
            facts={"nodes": command.nodes.get()},
        )
