"""**What.** The ranks of a batch job meet at the host from which the job was submitted: `--rdzv_endpoint
$SLURM_SUBMIT_HOST:29500`, `export MASTER_ADDR=$PBS_O_HOST`, also through a variable of the file. Or the script that
submits the job hands its own name over: `sbatch --export=ALL,MASTER_ADDR=$(hostname) job.sh`.

**Why it hurts.** That is the login node, where no process of the job runs: nobody opens the store there. All nodes try
to connect to it, and give up when the rendezvous times out.

**Fix.** `$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)`; the first line of `$PBS_NODEFILE`.

**When it stays quiet.** For a default that another variable may replace, when nobody uses the name as an address,
when the job sets the variable itself, when the script that submits starts ranks, too, and for a name that goes into a
command.

**Evidence.** The manuals: `SLURM_SUBMIT_HOST` is "the hostname of the machine from which `sbatch` was invoked",
`PBS_O_HOST` "the host on which `qsub` was executed". https://github.com/aws-samples/aws-hpc-tutorials/pull/448
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand, Word
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.pernode import written
from dslint.model.shell.batchjob import is_batch_script
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL397",
    name="meeting-at-submitting-host",
    kind="launch",
    severity=Severity.WARNING,
    depends_on_run=True,
    summary="The ranks of a batch job meet at the host from which it was submitted",
    references=("https://slurm.schedmd.com/sbatch.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES",),
    no_experiment="it takes a queue; what follows is the experiment of DSL312",
    needs=(
        r"/(?:SLURM_SUBMIT_HOST|PBS_O_HOST|LSB_SUB_HOST|SGE_O_HOST)\b/",
        r"/\b(?:sbatch|qsub)\b[^\n]*\bMASTER_ADDR=/",
        r"/\bMASTER_ADDR=[^\n]*\b(?:sbatch|qsub)\b/",
    ),
)

_SCRIPT = {"train.py": "import sys\nprint(sys.argv)\n"}
_HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"
_ONE_NODE = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n"
_C10D = (
    "srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d \\\n"
    "    --rdzv_endpoint=%s:29500 train.py\n"
)
_ENV = "srun python train.py\n"


def _job(text: str, head: str = _HEAD) -> dict[str, str]:
    return {"job.sbatch": head + text, **_SCRIPT}


EXAMPLES = (
    bad("in the command", _job(_C10D % "$SLURM_SUBMIT_HOST"), "job.sbatch:5"),
    bad("through a variable", _job('export HEAD="${SLURM_SUBMIT_HOST}"\n' + _C10D % "$HEAD"), "job.sbatch:4"),
    bad("its number", _job("HEAD=$(getent hosts $SLURM_SUBMIT_HOST | cut -d' ' -f1)\n" + _C10D % "${HEAD}"),
        "job.sbatch:4"),
    bad("the variable of the group", _job("export MASTER_ADDR=$SLURM_SUBMIT_HOST\nexport MASTER_PORT=29500\n" + _ENV),
        "job.sbatch:4"),
    bad("an option of the script", _job(_ENV.replace("train.py", "train.py --dist_url tcp://$SLURM_SUBMIT_HOST:29500")),
        "job.sbatch:4"),
    bad("the launcher of accelerate, in a job of PBS", _job(
        "accelerate launch --num_machines 2 --num_processes 16 --machine_rank $R --main_process_ip $PBS_O_HOST \\\n"
        "    --main_process_port 29500 train.py\n", "#!/bin/bash\n#PBS -l select=2:ngpus=8\n"), "job.sbatch:3"),
    bad("handed over by the submitting script", {
        "submit.sh": "sbatch --export=ALL,MASTER_ADDR=$(hostname) job.sbatch\n", **_job(_ENV),
    }, "submit.sh:1"),
    bad("in front of sbatch", {"submit.sh": "MASTER_ADDR=`hostname -i` sbatch job.sbatch\n", **_job(_ENV)},
        "submit.sh:1"),
    bad("the variable of bash", {
        "submit.sh": "sbatch --nodes=2 --export ALL,MASTER_PORT=29500,MASTER_ADDR=$HOSTNAME job.sbatch\n", **_job(_ENV),
    }, "submit.sh:1"),
    bad("behind the script, through a name of its own", {
        "submit.sh": "sbatch --export=ALL,MASTER_ADDR=$(hostname -s) --nodes=2 job.sbatch\n",
        **_job("srun torchrun --nnodes=2 --node_rank=$SLURM_NODEID --nproc_per_node=8 --master_addr=$MASTER_ADDR"
               " --master_port=29500 train.py\n"),
    }, "submit.sh:1"),
    good("the job computes its own", {
        "submit.sh": "sbatch --export=ALL,MASTER_ADDR=$(hostname) job.sbatch\n",
        **_job("export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n" + _ENV),
    }),
    good("nobody in the job asks for it", {
        "submit.sh": "MASTER_ADDR=$(hostname) sbatch job.sbatch\n",
        **_job("torchrun --standalone --nproc_per_node=8 train.py\n", _ONE_NODE),
    }),
    good("rank 0 runs here", {
        "run.sh": "MASTER_ADDR=$(hostname) MASTER_PORT=29501 sbatch job.sbatch\ntorchrun --nnodes=2 --node_rank=0"
        " --nproc_per_node=8 --master_addr=$(hostname) --master_port=29501 train.py\n",
        **_job("torchrun --nnodes=2 --node_rank=1 --nproc_per_node=8 --master_addr=$MASTER_ADDR"
               " --master_port=$MASTER_PORT train.py\n", _ONE_NODE),
    }),
    good("a usage text", {"help.sh": "cat <<EOF\nsbatch --export=ALL,MASTER_ADDR=$(hostname) job.sbatch\nEOF\n",
                          **_job(_ENV)}),
    good("the login node is left out", _job(
        'export MASTER_ADDR=$(sort -u $PBS_NODEFILE | grep -v "$PBS_O_HOST" | head -1)\nmpirun -np 2 python train.py\n',
        "#!/bin/bash\n#PBS -l select=2:ngpus=8\n")),
    good("another host", {"submit.sh": "sbatch --export=ALL,MASTER_ADDR=$HEAD job.sbatch\n", **_job(_ENV)}),
    good("a job submits the next one", {
        "next.sbatch": "#!/bin/bash\n#SBATCH -N 1\nMASTER_ADDR=$(hostname) sbatch job.sbatch\n", **_job(_ENV),
    }),
    good("the first node", _job(
        'HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n' + _C10D % "$HEAD")),
    good("a default", _job("export MASTER_ADDR=${HEAD:-$SLURM_SUBMIT_HOST}\n" + _ENV)),
    good("a line of a log", _job("HOST=$SLURM_SUBMIT_HOST\necho from $HOST\n" + _C10D % "$HEAD")),
    good("an option that is no address", _job(_ENV.replace("train.py", "train.py --submitted $SLURM_SUBMIT_HOST"))),
)  # fmt: skip

_SUBMITTED = re.compile(r"\$\{?(SLURM_SUBMIT_HOST|PBS_O_HOST|LSB_SUB_HOST|SGE_O_HOST)\b")
_OWN_NAME = re.compile(r"[\"']?(?:\$\(hostname[^)]*\)|`hostname[^`]*`|\$HOSTNAME|\$\{HOSTNAME\})[\"']?")
# The name goes into a command: what comes out is another host, unless it is looked up or cut.
_INTO = re.compile(r"(?:\$\((?!\()|`)(?P<command>[^)`]*)$")
_KEEPS = re.compile(r"\s*(?:getent|dig|host|nslookup|echo|printf)\b[^|]*")
_ELSE = re.compile(r":?[-=]\$|:-|\|\|")
_OPTION = re.compile(r"--?(?:master[-_]addr\w*|rdzv[-_]endpoint|main[-_]process[-_]ip|dist[-_]url|\w*init[-_]method)")
# What reads the variable itself: torchrun and its kin hand out an address of their own.
_BY_VARIABLE = ("srun", "mpirun", "python", "swift", "llamafactory", "composer")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Addresses that name the login node."""
    del context
    told: set[Location] = set()
    yield from _handed_over(doc)
    for command in doc.commands:
        for word in _addresses(doc, command):
            for value in written(doc, word):
                found = _SUBMITTED.search(value.text)
                if found is None or _ELSE.search(value.text) or value.location in told:
                    continue
                into = _INTO.search(value.text, 0, found.start())
                if into is not None and not _KEEPS.fullmatch(into["command"]):
                    continue
                told.add(value.location)
                yield META.finding(
                    value.location,
                    f"`{found[1]}` is the login node, where no rank runs: all wait for a store that nobody opens there",
                    hint='Name a node of the job: `$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)`'
                    if found[1].startswith("SLURM")
                    else "Name the first node of the job",
                    related=(command.location.labelled("the ranks that meet there"),),
                    severity=Severity.INFO if doc.in_docs else None,
                    facts={"variable": found[1]},
                )


def _handed_over(doc: LaunchDoc) -> Iterator[Finding]:
    """The name of this machine, given to a job; a text that is no job itself runs where jobs are submitted."""
    # Rank 0 runs here, and the queue gives the others.
    for call in doc.submissions if not (doc.commands or is_batch_script(doc.shell)) else ():
        value, place = call.handed.get("MASTER_ADDR", ("", None))
        if place is None or not _OWN_NAME.fullmatch(value) or "SBATCH_NODELIST" in call.facts:
            continue
        jobs = [command for command in doc.called if command.called_from[0] == call.name]
        if call.script is not None and (call.sets is None or "MASTER_ADDR" in call.sets):
            continue  # the job computes its own
        if not any(_by_variable(command) for command in jobs):
            continue
        yield META.finding(
            place,
            "this is the name of the login node, where no rank runs: all wait for a store that nobody opens there",
            hint='Compute it in the job: `$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)`',
            severity=Severity.INFO if doc.in_docs else None,
            facts={"variable": "MASTER_ADDR"},
        )


def _by_variable(command: LaunchCommand) -> bool:
    """The ranks meet where the variable says."""
    flags = (*command.launcher_flags, *command.script_flags)
    named = any(f.value is not None and _OPTION.fullmatch(f.name) and "MASTER_ADDR" in f.value.raw for f in flags)
    return named or (command.launcher in _BY_VARIABLE and not any(_OPTION.fullmatch(flag.name) for flag in flags))


def _addresses(doc: LaunchDoc, command: LaunchCommand) -> Iterator[Word]:
    """The words that tell the ranks where they meet."""
    for flag in (*command.launcher_flags, *command.script_flags):
        if flag.value is not None and _OPTION.fullmatch(flag.name):
            yield flag.value
    if command.launcher in _BY_VARIABLE and "MASTER_ADDR" in command.env and "MASTER_ADDR=" in doc.shell.text:
        yield Word(None, "$MASTER_ADDR", command.location)
