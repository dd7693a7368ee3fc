"""DeepSpeed's launcher, which reaches all machines from one, is started on each of them.

**What.** `accelerate launch` gets the number of machines and its own number from variables that the cluster sets on
each machine (`--num_machines $WORLD_SIZE --machine_rank $RANK`), its config is one of DeepSpeed, and nothing says
`deepspeed_multinode_launcher: standard`. The default is `pdsh`: one start on the first machine, and a hostfile for the
others. There is no hostfile. Or `srun` starts `deepspeed --hostfile hosts` on every node of a job without `--no_ssh`.

**Why it hurts.** Without a hostfile each `deepspeed` goes on `with local resources only`: every machine trains a model
of its own, and all write into the same output folder. With a hostfile, every node starts the processes of all nodes,
and the second ones stop with `EADDRINUSE`, or share the GPUs.

**Fix.** `deepspeed_multinode_launcher: standard` in the config, or `--deepspeed_multinode_launcher standard`. For
`deepspeed`: start it once, or `--no_ssh --node_rank $SLURM_NODEID --master_addr ...`.

**When it stays quiet.** For one machine, for a number that is stated (DSL187 and DSL355 say the same of it), without
`--machine_rank`, with a hostfile or a launcher that cannot be read, and
where a test of the rank lets one machine on.

**Evidence.** `prepare_deepspeed_cmd_env` of accelerate 1.15 and `runner.py` of DeepSpeed 0.19.8, run for DSL187 and
DSL355. https://github.com/hiyouga/LlamaFactory/issues/176
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.accelerate.plans import view_of_plan
from dslint.model.accelerate.view import SECTION, AccelerateView
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.slurmjob import step_tasks
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL431",
    name="reaching-launcher-on-each-machine",
    kind="plan",
    severity=Severity.WARNING,
    summary="DeepSpeed's launcher for all machines is started on each of them",
    versions=("accelerate>=0.11",),
    depends_on_run=True,
    no_experiment="it takes several machines; what the launcher does without a hostfile is the experiment of DSL355",
    references=("https://github.com/hiyouga/LlamaFactory/issues/176",),
    needs=("accelerate", "--hostfile", "-H"),
)


# What a test asks that lets one machine or one task on, and sends the others elsewhere.
_RANK = re.compile(r"RANK\b|PROCID\b|NODEID\b|NODE_ID\b|\bLOCALID\b|hostname|HOSTNAME|MASTER", re.IGNORECASE)


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """Machines that variables number, and the launcher that wants one start."""
    command = plan.command
    if any(_RANK.search(test) for test in command.guards):
        return  # the first machine alone comes here
    view = view_of_plan(plan, context)
    if view is not None:
        yield from _by_accelerate(command, view)
    elif command.launcher == "deepspeed" and command.outer == "srun":
        yield from _by_srun(command)


def _by_accelerate(command: LaunchCommand, view: AccelerateView) -> Iterator[Finding]:
    starter = view.starter.get_or("torchrun")
    machines = view.count("num_machines", 1)
    if starter == "torchrun" or not view.is_deepspeed or not view.fact("deepspeed_hostfile").is_absent:
        return
    flag = command.launcher_flag("--num_machines", "--num-machines")
    if flag is None or not machines.is_unknown or not view.flag("machine_rank").is_unknown:
        return
    at = f"{SECTION}/deepspeed_multinode_launcher"
    yield META.finding(
        flag.location,
        f"each machine starts this, but `{starter}` wants one start and a hostfile: each machine trains alone",
        hint="Set `deepspeed_multinode_launcher: standard` in the config of accelerate",
        related=(view.key(at if view.doc.has(at) else SECTION, "the config of DeepSpeed"),),
        severity=Severity.INFO if command.in_docs else None,
        facts={"starter": starter},
    )


def _by_srun(command: LaunchCommand) -> Iterator[Finding]:
    hosts = command.launcher_flag("-H", "--hostfile")
    alone = command.launcher_flag("--no_ssh", "--node_rank", "--no_local_rank", "--launcher")
    tasks = step_tasks(command)
    if hosts is None or (hosts.value is not None and hosts.value.text == "/dev/null"):
        return
    if alone is not None or command.may_hide_launcher_flags() or command.conditions:
        return
    if tasks.total.get_or(1) < 2 or tasks.nodes.get_or(1) < 2:
        return
    yield META.finding(
        hosts.location,
        f"`srun` starts `deepspeed` {tasks.total.get()} times, and each starts the processes of all machines by ssh",
        hint="Start it once, without `srun`, or add `--no_ssh --node_rank $SLURM_NODEID --master_addr ...`",
        related=tuple(tasks.total.origins[:2]),
        severity=Severity.INFO if command.in_docs else None,
        facts={"starter": "srun"},
    )


_FILE = """\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  gradient_accumulation_steps: 4
  zero_stage: 2
distributed_type: DEEPSPEED
machine_rank: 0
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
_RUN = (
    "accelerate launch --config_file ds.yaml %s \\\n"
    '    --num_processes $((WORKERS * 8)) --main_process_ip "$HOST0" --main_process_port 29500 train.py\n'
)
_EACH = '--num_machines "$WORKERS" --machine_rank "$INDEX"'
_SCRIPT = "from accelerate import Accelerator\n\naccelerator = Accelerator()\nprint(accelerator.device)\n"
_ENGINE = "import deepspeed\n\nfrom mine import model\n\ndeepspeed.initialize(model=model, config='ds.json')\n"
_JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=%s\nsrun deepspeed --hostfile hosts %strain.py\n"


def _project(words: str, file: str = _FILE) -> dict[str, str]:
    return {"run.sh": _RUN % words, "ds.yaml": file, "train.py": _SCRIPT}


def _slurm(options: str = "", tasks: int = 1) -> dict[str, str]:
    return {"job.sh": _JOB % (tasks, options), "hosts": "a slots=8\nb slots=8\n", "train.py": _ENGINE,
            "ds.json": '{"train_batch_size": 16}\n'}  # fmt: skip


EXAMPLES = (
    bad("the cluster numbers the machines", _project(_EACH), "run.sh:1"),
    bad("variables of Slurm", _project("--num_machines $SLURM_NNODES --machine_rank $SLURM_NODEID"), "run.sh:1"),
    bad("arguments of the script", _project("--num_machines=$1 --machine_rank=$2"), "run.sh:1"),
    bad("a launcher by name", _project(
        _EACH, _FILE.replace("  zero_stage", "  deepspeed_multinode_launcher: openmpi\n  zero_stage")), "run.sh:1"),
    bad("srun around deepspeed", _slurm(), "job.sh:4"),
    good("torchrun on each machine", _project(
        _EACH, _FILE.replace("  zero_stage", "  deepspeed_multinode_launcher: standard\n  zero_stage"))),
    good("said by the command", _project(_EACH + " --deepspeed_multinode_launcher standard")),
    good("a hostfile", _project(
        _EACH, _FILE.replace("  zero_stage", "  deepspeed_hostfile: hosts\n  zero_stage")), select="DSL431"),
    good("the first machine alone starts it", _project("--num_machines $WORKERS --machine_rank 0"), select="DSL431"),
    good("without DeepSpeed", _project(_EACH, _FILE.replace("DEEPSPEED", "MULTI_GPU")), select="DSL431"),
    good("the other machines wait for its ssh", {
        **_project(_EACH),
        "run.sh": f'if [ "$RANK" -eq 0 ]; then\n  {_RUN % _EACH}else\n  /usr/sbin/sshd -D\nfi\n',
    }),
    good("the other machines go on to something else", {
        **_project(_EACH), "run.sh": '[[ "$NODE_RANK" == 0 ]] || exec /usr/sbin/sshd -D\n' + _RUN % _EACH}),
    good("the other tasks end", {**_slurm(), "job.sh": _JOB.partition("srun")[0] % 1 + "srun bash -c '[[ $SLURM_PROCID"
                                 " -eq 0 ]] || exit 0; deepspeed --hostfile hosts train.py'\n"}),
    good("the other tasks end, in a script of its own", {
        **_slurm(), "job.sh": _JOB.partition("srun")[0] % 1 + "srun bash node.sh\n",
        "node.sh": 'if [ "$SLURM_NODEID" != 0 ]; then\n  exit 0\nfi\ndeepspeed --hostfile hosts train.py\n'}),
    good("an editor of YAML writes the launcher", {
        **_project(_EACH), "run.sh": "yq -i '.deepspeed_config.deepspeed_multinode_launcher = \"standard\"' ds.yaml\n"
        + _RUN % _EACH}),
    good("without ssh", _slurm("--no_ssh --node_rank $SLURM_NODEID --master_addr $HEAD "), select="DSL431"),
)  # fmt: skip
