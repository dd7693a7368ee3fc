"""**What.** A script for several nodes starts `torchrun` with a number as `--node_rank`. It is a warning where the
project starts the command on several nodes with these very words: in a loop of `ssh` or `kubectl exec` over hosts, by
`pdsh`, `xargs ... ssh {}`, `srun` or `mpirun`, also through a script that is called there. So it is with the
`--machine_rank` of accelerate launch, that of `deepspeed --no_ssh` and `NODE_RANK=0` of Lightning, and with a variable
that the shell of the loop expands, while nothing in the loop gives it another value.

**Why it hurts.** Started on a second node as it is, the script claims the same rank again: that node fails to bind the
port of node 0, or waits at it forever.

**Fix.** `--node_rank $NODE_RANK`, or an argument of the script.

**When it stays quiet.** When the rank differs from node to node, or is not known. When nobody says of how many nodes a
run is, and each host of the loop meets at itself. The information also when the name
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
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.everynode import expanded_once, repeated_at, turns_of
from dslint.model.launch.fornode import is_for_one_node
from dslint.model.launch.meeting import meeting
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
    needs=("--node_rank", "--machine_rank", "PET_NODE_RANK", "NODE_RANK"),
    depends_on_run=True,
)

_EVERY = 'for host in a b; do\n  ssh $host "cd /work && %s" &\ndone\n'
_HOSTS = "HOSTS=(a b)\nfor i in ${!HOSTS[@]}; do\n"
_HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"
_NODE = "torchrun --nnodes $1 --node_rank %s --master_addr $2 --nproc_per_node 8 train.py\n"
_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun --nnodes 2 --node_rank %s --master_addr 10.0.0.1 --nproc_per_node 8 train.py\n"
_UNKNOWN = "torchrun --nnodes $N --node_rank %s --master_addr $MASTER --nproc_per_node 8 train.py"
# The file starts other nodes, too: in another service of a compose file, in another step.
_ONE_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?::?-\d+)?\}")
_LOOPBACK = re.compile(r"localhost$|127\.|::1$", re.IGNORECASE)
# Their processes read the number of their node in a variable.
_BY_VARIABLE = ("lightning", "python", "composer", "swift", "llamafactory")
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
    bad("a number of nodes that the file of hosts says", {
        "run.sh": 'mapfile -t HOSTS < hosts.txt\nfor H in "${HOSTS[@]}"; do\n  ssh "$H" "cd /work && \\\n'
        f'    {_UNKNOWN % 0}" > $H.log 2>&1 &\ndone\n', **_SCRIPT,
    }, "run.sh:4 warning"),
    bad("a variable of the shell around", {
        "run.sh": f'while read h; do\n  ssh -n $h "{_UNKNOWN % "$RANK"}" &\ndone < hosts\n', **_SCRIPT,
    }, "run.sh:2 warning"),
    bad("a function that the loop calls", {
        "run.sh": f'start() {{\n  ssh $1 "{_UNKNOWN % 0}" &\n}}\nfor h in $(cat hosts); do start $h; done\n', **_SCRIPT,
    }, "run.sh:2 warning"),
    bad("lines for the shell of the host", {
        "run.sh": f"for h in a b; do\n  ssh $h 'bash -s' <<'EOF' &\n{_UNKNOWN % 0}\nEOF\ndone\n", **_SCRIPT,
    }, "run.sh:3 warning"),
    bad("xargs", {
        "run.sh": f'cat hosts | xargs -P 8 -I{{}} ssh {{}} "{_UNKNOWN % 0}"\n', **_SCRIPT,
    }, "run.sh:1 warning"),
    bad("pods", {
        "run.sh": f"for pod in a-0 a-1; do\n  kubectl exec $pod -- {_RUN.strip() % 0} &\ndone\n", **_SCRIPT,
    }, "run.sh:2 warning"),
    bad("accelerate launch", {
        "run.sh": _EVERY % "accelerate launch --num_machines 2 --num_processes 16 --machine_rank 0 --main_process_ip a"
        " --main_process_port 29500 train.py", **_SCRIPT,
    }, "run.sh:2 warning"),
    bad("the variable of Lightning", {
        "run.sh": _EVERY % "NODE_RANK=0 MASTER_ADDR=a MASTER_PORT=29500 python train.py", **_SCRIPT,
    }, "run.sh:2 warning"),
    good("a variable of the host", {
        "run.sh": f'while read h; do\n  ssh -n $h "{_UNKNOWN % chr(92)}$RANK" &\ndone < hosts\n', **_SCRIPT,
    }),
    good("a variable that the loop counts", {
        "run.sh": f'while read h; do\n  ssh -n $h "{_UNKNOWN % "$RANK"}" &\n  let RANK+=1\ndone < hosts\n', **_SCRIPT,
    }),
    good("each host alone", {
        "run.sh": f'for h in $(cat hosts); do\n  ssh $h "{_UNKNOWN.replace("$MASTER", "$h") % 0}" &\ndone\n', **_SCRIPT,
    }),
    good("a loop over settings", {
        "run.sh": f'for lr in 1 2; do\n  ssh $OTHER "{_UNKNOWN % 1} --lr $lr"\ndone\n', **_SCRIPT,
    }),
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
        stated = meeting(command).node_rank
        if _counts_by_rank(command) and not stated.is_absent:
            ranks.setdefault(place_in_text(command), {}).setdefault(stated.get_or(""), command)
    for place, found in ranks.items():
        (rank, command), *others = found.items()
        # The turns of a loop whose words are known are commands of their own.
        cause = repeated_at(doc, command, place) if (rank.isdigit() or not rank) and not others else None
        flag = command.launcher_flag("--node_rank", "--machine_rank")
        shown = rank or _expanded(doc, command, flag)
        if cause is None or not shown or not _is_several(doc, command, cause):
            continue
        inner = (flag.location.labelled(f"{flag.name} {shown}"),) if flag is not None and command.called_from else ()
        nodes = command.nodes.get_or(None)
        number = f"`{shown}`, which this shell replaces by one number" if not rank else f"{rank} of {nodes}"
        yield META.finding(
            place if command.called_from or flag is None else flag.location,
            f"every node is started as node {number if nodes or not rank else rank}: they claim the same ranks, and"
            " never meet",
            hint="Take the rank from the loop, from a variable of the node, or from an argument of the script",
            related=(*inner, *(() if cause == place else (cause.labelled("starts it on each node"),))),
            severity=Severity.INFO if doc.in_docs else Severity.WARNING,
            facts={"nodes": nodes} if nodes else {},
        )


def _counts_by_rank(command: LaunchCommand) -> bool:
    """The processes of the command know their ranks by the number of the node alone."""
    if command.launcher == "torchrun":
        how = rendezvous(command)
        return how is not None and how.is_static and not how.is_standalone
    if command.launcher == "deepspeed":
        return command.launcher_flag("--no_ssh") is not None
    if command.launcher == "accelerate":
        return command.launcher_flag("--rdzv_backend", "--deepspeed_hostfile") is None
    return command.launcher in _BY_VARIABLE and not {"RANK", "WORLD_SIZE"} & set(command.env)


def _expanded(doc: LaunchDoc, command: LaunchCommand, flag: Flag | None) -> str:
    """The variable that is the rank, where the shell of the loop gives its one value to all hosts."""
    word = flag.value if flag is not None else None
    found = _ONE_VARIABLE.fullmatch(word.raw) if word is not None and word.text is None else None
    if found is None or command.called_from or not expanded_once(doc, command.location, found[1] or found[2]):
        return ""
    return f"${found[1] or found[2]}"


def _is_several(doc: LaunchDoc, command: LaunchCommand, cause: Location) -> bool:
    """The run has several nodes, or a number of them that somebody states, and they meet at one of them."""
    address = meeting(command).address
    if command.nodes.is_known or (command.nodes.is_absent and command.launcher not in _BY_VARIABLE):
        return command.nodes.get_or(0) > 1
    if address.is_absent or _LOOPBACK.match(address.get_or("")):
        return False
    # `MASTER_ADDR=$host`: each is the first node of a run of its own.
    turns, text = turns_of(doc, cause), doc.source.text[cause.span.start : cause.span.end]
    own = re.search(rf"(?:addr|ip|endpoint)[ =][\"']?\$\{{?{turns}\b", text, re.IGNORECASE) if turns else None
    return own is None
