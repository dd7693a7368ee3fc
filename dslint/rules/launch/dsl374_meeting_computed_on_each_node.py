"""**What.** Each node of a run computes a part of the rendezvous by itself, and gets another one: `--rdzv_id=$RANDOM`
or `$(date +%s)`, `--master_port=$((RANDOM + 20000))`, `--master_addr=$(hostname -i)`.

**Why it hurts.** The nodes never meet: each waits for the others at its own address, at its own port or under its own
id, until the rendezvous times out. With one node all is well.

**Fix.** Compute the value once, where the job starts, and hand it to every node: `--rdzv_id=$SLURM_JOB_ID`, a port
made from the number of the job, the name of the first host.

**When it stays quiet.** For one node, where the batch script expands the value before `srun` starts the nodes, under
a condition (`if [ $NODE_RANK = 0 ]`), and for `--rdzv_id` with a static rendezvous, which does not read it.

**Evidence.** torch 2.13: two agents with different `--rdzv_id` at one c10d end point never form a group; the keys of
the store begin with the id (`c10d_rendezvous_backend.py`). Addresses and ports: the experiment of DSL312.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import Flag, LaunchCommand, canonical
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.meeting import meeting
from dslint.model.launch.pernode import runs_on_every_node, written
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL374",
    name="meeting-computed-on-each-node",
    kind="launch",
    severity=Severity.WARNING,
    summary="Each node computes its own id, port or address of the rendezvous, so that they never meet",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    no_experiment="what follows is the experiment of DSL312: nodes that wait at different places",
    needs=("--rdzv_id", "--master_port", "--master_addr", "--rdzv_endpoint", "--main_process_ip",
           "--main_process_port"),
)  # fmt: skip

_SCRIPT = {"train.py": "print()\n"}
_STATIC = "torchrun --nnodes=4 --node_rank=$NODE_RANK --nproc_per_node=8 --master_addr=%s --master_port=%s train.py\n"
_C10D = (
    "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_id=%s --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py%s\n"
)
_HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"

EXAMPLES = (
    bad("an id of its own", {"run.sh": _C10D % ("$RANDOM", ""), **_SCRIPT}, "run.sh:1"),
    bad("an id from the clock", {"run.sh": "ID=$(date +%s)\n" + _C10D % ("job-$ID", ""), **_SCRIPT}, "run.sh:1"),
    bad("a shell on each node", {"job.sbatch": _HEAD + "srun bash -c '" + _C10D % ("$RANDOM", "'"), **_SCRIPT},
        "job.sbatch:4"),
    bad("a port of its own", {
        "run.sh": "PORT=$((RANDOM % 1000 + 20000))\n" + _STATIC % ("$MASTER_ADDR", "$PORT"), **_SCRIPT,
    }, "run.sh:1"),
    bad("a free port", {
        "run.sh": "PORT=$(shuf -i 20000-30000 -n 1)\n" + _STATIC % ("$MASTER_ADDR", "$PORT"), **_SCRIPT,
    }, "run.sh:1"),
    bad("its own name", {
        "run.sh": "export MASTER_ADDR=$(hostname -i)\n" + _STATIC % ("$MASTER_ADDR", 29500), **_SCRIPT,
    }, "run.sh:1"),
    bad("its own name in the command", {"run.sh": _STATIC % ("$HOSTNAME", 29500), **_SCRIPT}, "run.sh:1"),
    good("the number of the job", {"run.sh": _C10D % ("$SLURM_JOB_ID", ""), **_SCRIPT}),
    good("computed once", {"job.sbatch": _HEAD + "ID=$RANDOM\nsrun " + _C10D % ("$ID", ""), **_SCRIPT}),
    good("the first node alone takes its name", {
        "run.sh": "if [ $NODE_RANK = 0 ]; then HEAD=$(hostname); fi\n" + _STATIC % ("$HEAD", 29500), **_SCRIPT,
    }),
    good("one node", {"run.sh": "torchrun --nnodes=1 --rdzv_id=$RANDOM --nproc_per_node=8 train.py\n", **_SCRIPT}),
    good("a static rendezvous reads no id", {
        "run.sh": (_STATIC % ("$MASTER_ADDR", 29500)).replace("train.py", "--rdzv_id=$RANDOM train.py"), **_SCRIPT,
    }),
)  # fmt: skip

_DRAWN = re.compile(
    r"\$\{?RANDOM\b|\bRANDOM\b.*\)\)|\$\$|(?:\$\(|`)\s*(?:date\b[^)`]*%[sSN]|uuidgen|shuf|mktemp|openssl rand)"
)
_FREE = re.compile(r"\$\((?:[^()]|\([^()]*\))*\b(?:shuf|socket|comm -23|get_free_port|free_port)\b|`[^`]*\bshuf\b")
_OWN_NAME = re.compile(
    r"(?:\$\(|`)\s*hostname(?:\s+-\w+|\s+--[\w-]+)*\s*(?:\|[^)`]*)?(?:\)|`)|\$\{?(?:HOSTNAME|SLURMD_NODENAME|HOST_IP|POD_IP)\b"
)
_ASKED = (
    (("--rdzv_id",), _DRAWN, "id", "hand the id of the job to every node, as in `--rdzv_id=$SLURM_JOB_ID`"),
    (("--master_port", "--main_process_port"), _DRAWN, "port", "compute the port once, where the job starts"),
    (("--master_port", "--main_process_port"), _FREE, "port", "compute the port once, where the job starts"),
    (("--master_addr", "--main_process_ip", "--rdzv_endpoint"), _OWN_NAME, "address",
     "hand the name of the first host to every node"),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Parts of the rendezvous of several nodes that every node computes."""
    del context
    for command in doc.commands:
        if command.launcher not in ("torchrun", "accelerate") or command.nodes.is_absent:
            continue
        if command.nodes.get_or(2) < 2 or command.hides_options or not runs_on_every_node(doc, command):
            continue
        yield from _of_command(doc, command)


def _of_command(doc: LaunchDoc, command: LaunchCommand) -> Iterator[Finding]:
    said: set[str] = set()
    for names, pattern, what, hint in _ASKED:
        flag = command.launcher_flag(*names)
        if flag is None or flag.value is None or what in said or not _is_read(command, flag):
            continue
        value = next((v for v in written(doc, flag.value) if pattern.search(v.text)), None)
        if value is not None:
            said.add(what)
            yield META.finding(
                value.location,
                f"every node computes its own {what} of the rendezvous, and they never meet",
                hint=hint[0].upper() + hint[1:],
                related=(flag.location.labelled(f"the {what}"),) if value.location != flag.value.location else (),
                severity=Severity.INFO if doc.in_docs else None,
                facts={"part": what},
            )


def _is_read(command: LaunchCommand, flag: Flag) -> bool:
    """The rendezvous reads the option: an id counts for c10d and etcd alone, a port of the static one only."""
    backend = meeting(command).backend.get_or("static")
    name = canonical(flag.name)
    if name == "--rdzv_id":
        return backend in ("c10d", "etcd", "etcd_v2")
    return command.launcher != "torchrun" or backend == "static" or name == "--rdzv_endpoint"
