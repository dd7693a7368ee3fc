"""**What.** A batch script asks Slurm for several nodes (`#SBATCH --nodes=2`) and starts `torchrun --nnodes 2` without
`srun`: also `xtuner train` with `NNODES`, `accelerate launch --multi_gpu --num_machines 2`, `deepspeed --no_ssh`.

**Why it hurts.** Slurm runs a batch script on the first node of the job alone. One agent starts and waits for those
of the other nodes, which nobody starts: no word is said until the rendezvous times out, while all nodes are paid for.

**Fix.** `srun --ntasks-per-node=1 torchrun ...`, where a rank of the node is read on that node (`srun bash -c
'torchrun --node_rank $SLURM_NODEID ...'`) or not needed (`--rdzv_backend c10d --rdzv_endpoint $HEAD:29500`).

**When it stays quiet.** Where the text starts anything with `srun`, `ssh`, `pdsh`, `mpirun` or the like, hands work to
`sbatch`, or starts several nodes on one machine (`srun hostname` inside `$( )` only asks for a name, and `xargs kill`
reaches no node); for one node, for numbers that are not known, and when options may be hidden.

**Evidence.** Slurm's manual of `sbatch`: it runs a single copy of the batch script, on the first of the nodes. torch
2.13, run: an agent whose partner is missing waits in the rendezvous; with a time of 1 s it gives up.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.otherhosts import reaches_other_hosts
from dslint.model.launch.rendezvous import places
from dslint.model.launch.slurmjob import job_nodes
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_script, place_in_text

META = RuleMeta(
    code="DSL356",
    name="batch-launch-on-one-node",
    kind="launch",
    severity=Severity.ERROR,
    summary="A Slurm job of several nodes starts a launcher for all of them on the first node alone",
    depends_on_run=True,
    references=("https://slurm.schedmd.com/sbatch.html",),
    needs=("SBATCH_NODES",),
)

_SCRIPT = {"train.py": "print()\n"}
_HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:8\n"
_HOST = 'HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
_RUN = (
    "torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $HEAD:29500 \\\n"
    "    train.py\n"
)
_STATIC = "torchrun --nnodes 2 --node_rank %s --master_addr $HEAD --master_port 29500 --nproc_per_node 8 train.py%s\n"

_BOTH = """\
[ -z "$MASTER_PORT" ] && MASTER_PORT=10087
[ -z "$MASTER_IP" ] && MASTER_IP=127.0.0.1
torchrun --nnodes=${SLURM_NNODES:-1} --node_rank=${SLURM_NODEID:-0} --nproc_per_node=8 \\
    --master_addr=$MASTER_IP --master_port=$MASTER_PORT train.py $1
"""


def _job(text: str, head: str = _HEAD + _HOST) -> dict[str, str]:
    return {"job.sbatch": head + text, **_SCRIPT}


EXAMPLES = (
    bad("two nodes, one torchrun", _job(_RUN), "job.sbatch:6 error"),
    bad("a number, a static rendezvous, an address by srun", _job(
        "IP=$(srun --nodes=1 --ntasks=1 -w $HEAD hostname --ip-address)\n" + _STATIC % ("$SLURM_NODEID", ""),
    ), "job.sbatch:7 error"),
    bad("the module", _job(_RUN.replace("torchrun", "python -m torch.distributed.run")), "job.sbatch:6 error"),
    bad("accelerate", _job(
        "accelerate launch --multi_gpu --num_machines 2 --num_processes 16 --machine_rank $SLURM_NODEID \\\n"
        "    --main_process_ip $HEAD --main_process_port 29500 train.py\n",
    ), "job.sbatch:6 error"),
    bad("each node has a hostfile", _job(
        "deepspeed --hostfile hosts --no_ssh --node_rank $SLURM_NODEID --master_addr $HEAD train.py\n",
    ), "job.sbatch:6 error"),
    bad("a script that the job calls", {
        **_job("bash node.sh 2 $HEAD\n"),
        "node.sh": _RUN.replace("$SLURM_NNODES", "$1").replace("$HEAD", "$2"),
    }, "job.sbatch:6 error"),
    bad("a script that works on one node and on several, from where the job was submitted", {
        **_job('cd "$SLURM_SUBMIT_DIR"\nbash node.sh data\n', _HEAD), "node.sh": _BOTH}, "job.sbatch:6 error"),
    bad("below that folder", {
        **_job('cd ${SLURM_SUBMIT_DIR}/scripts\nbash node.sh data\n', _HEAD), "scripts/node.sh": _BOTH,
        "scripts/train.py": "print()\n"}, "job.sbatch:6 error", select="DSL356"),
    good("the same on every node", {
        **_job('cd "$SLURM_SUBMIT_DIR"\nsrun bash node.sh data\n', _HEAD), "node.sh": _BOTH}),
    bad("words that are like the names of programs that reach other nodes", _job(
        "pgrep -f train.py | xargs -r kill -9\nhead -n 1 README.md | xargs\necho data parallel training\n"
        + _RUN.replace("train.py", "train.py --backend ray --config conf/ray/base.yaml"),
    ), "job.sbatch:9 error"),
    good("srun", _job("srun " + _RUN)),
    good("a script of its own for each node", _job(
        "scontrol show hostnames $SLURM_JOB_NODELIST | tail -n 1 | xargs -I{} ./join.sh {}\n" + _RUN,
    )),
    good("ray on all nodes", _job("./join.sh 'ray start --address $HEAD:6379'\nray job submit -- sleep 1\n" + _RUN)),
    good("srun with a shell on each node", _job("srun bash -c '" + _RUN.replace("$HEAD", "$0").rstrip() + "' $HEAD\n")),
    good("ssh to each node", _job(
        "RANK=0\nfor host in $(scontrol show hostnames $SLURM_JOB_NODELIST); do\n"
        f'  ssh $host "cd $PWD; {(_STATIC % ("$RANK", "")).strip()}" &\n  RANK=$((RANK + 1))\ndone\nwait\n',
    )),
    good("one node", _job(_RUN.replace("$SLURM_NNODES", "1"), _HEAD.replace("=2", "=1") + _HOST)),
    good("one node of the job", _job(_RUN, _HEAD.replace("=2", "=1") + _HOST)),
    good("nobody says how many nodes", _job(_RUN, "#!/bin/bash\n" + _HOST)),
    good("the script starts itself on every node", _job(
        'if [ -z "$SLURM_STEP_ID" ]; then\n  srun bash "$0"\n  exit\nfi\n' + _RUN,
    )),
    good("a script that srun calls", {
        **_job("srun bash node.sh 2 $HEAD\n"),
        "node.sh": _RUN.replace("$SLURM_NNODES", "$1").replace("$HEAD", "$2"),
    }),
    good("DeepSpeed reaches the nodes itself", _job("deepspeed --hostfile hosts --master_addr $HEAD train.py\n")),
    good("two nodes on one machine", _job(_STATIC % (0, " &") + _STATIC % (1, ""))),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Launchers for several nodes that one node starts."""
    del context
    found = [c for c in (*doc.commands, *doc.called) if _waits_for_others(c, doc)]
    if not found or reaches_other_hosts(doc.shell):
        return
    ranks = {
        flag.value.text for c in found if (flag := c.launcher_flag("--node_rank", "--machine_rank")) and flag.value
    }
    if len(ranks - {None}) > 1:
        return
    for command in found:
        job = job_nodes(command).get()
        yield META.finding(
            place_in_text(command) if command.called_from else (command.argv or command.words)[0].location,
            f"Slurm runs this script only on the first of {job} nodes: `{command.launcher}` waits for"
            f" {_partners(command)}, which nobody starts",
            hint=f"Start it on every node: `srun --ntasks-per-node=1 {command.launcher} ...`, with the rank of the node"
            " read on the node",
            related=(
                *job_nodes(command).origins[:1],
                *place_in_script(command),
                *places(command, "--nnodes", "--num_machines", "--no_ssh"),
            ),
            severity=Severity.WARNING if doc.in_docs else None,
            facts={"launcher": command.launcher, "nodes": job},
        )


def _waits_for_others(command: LaunchCommand, doc: LaunchDoc) -> bool:
    """The command is one of several that must be started, each on its node."""
    job = job_nodes(command)
    if command.outer or command.guards or command.may_hide_launcher_flags() or job.get_or(1) < 2:
        return False
    if not any(place.path == doc.source.path for place in job.origins):
        return False
    if command.launcher == "deepspeed":
        return command.launcher_flag("--no_ssh") is not None and command.launcher_flag("-H", "--hostfile") is not None
    if command.nodes.get_or(1) < 2:
        return False
    if command.launcher == "accelerate":
        by_torchrun = command.launcher_flag("--multi_gpu", "--use_fsdp") is not None
        return by_torchrun and command.launcher_flag("--config_file") is None
    return command.launcher == "xtuner" or (
        command.launcher == "torchrun" and command.launcher_flag("--standalone") is None
    )


def _partners(command: LaunchCommand) -> str:
    nodes = command.nodes.get_or(0)
    if nodes < 2:
        return "the other nodes"
    return "the other node" if nodes == 2 else f"{nodes - 1} other nodes"
