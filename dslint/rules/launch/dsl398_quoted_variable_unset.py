"""**What.** A command line in single quotes, which another shell expands (`srun bash -c '...'`, `ssh host '...'`,
`bash -c '...'`), starts a run and asks for a variable that the script sets and does not export: `NODES=4` before
`srun bash -c 'torchrun --nnodes=$NODES ...'`. So does the variable of a loop around it.

**Why it hurts.** The single quotes keep the text as it is, and the shell in which it runs has no such variable: it is
empty there. A test fails for every task, an option swallows the next word, ranks take the wrong role, and the others
wait for them.

**Fix.** `export NODES=4`; for `ssh` double quotes, so that this shell puts the value in.

**When it stays quiet.** For variables that the text in quotes sets itself, sources or has a default for, that are
exported on any way to the command, by a directive (`#SBATCH --export`) or by the script that submits the job, or passed
by name (`-x NODES`, `--export=ALL,NODES=4`); for names that jobs have in their environment (`SLURM_...`, `PATH`); where
a file that is not here or `export "$names"` may set any name; and for containers.

**Evidence.** bash 5.2. https://github.com/PrimeIntellect-ai/prime-rl/pull/3225
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.unseen import Unseen
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL398",
    name="quoted-variable-unset",
    kind="launch",
    severity=Severity.WARNING,
    summary="A command line in single quotes asks for a variable that is set outside and not exported",
    fix="safe",
    references=("https://www.gnu.org/software/bash/manual/html_node/Single-Quotes.html",),
    no_experiment="bash alone decides it; the readers of the shell are compared with bash in the tests",
    needs=(r"/'[^'\n]*$|'[^'\n]*\$\{?[A-Za-z_]/",),
)

_SCRIPT = {"train.py": "import sys\nprint(sys.argv)\n", "serve.py": "import sys\nprint(sys.argv)\n"}
_HEAD = "#!/bin/bash\n#SBATCH --nodes=5\n#SBATCH --ntasks-per-node=1\nsource .venv/bin/activate\n"
_ROLE = """\
TEACHER=$((SLURM_NNODES - 1))
export NUM_NODES=$((SLURM_NNODES - 1))
srun bash -c '
    if [ "$SLURM_PROCID" -eq "$TEACHER" ]; then
        exec python serve.py
    fi
    torchrun --nnodes=4 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$SLURMD_NODENAME:29500 train.py
'
"""
_ONE = (
    "HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\nsrun%s bash -c 'torchrun --nnodes=5"
    " --nproc_per_node=8 --node_rank=$SLURM_NODEID --master_addr=$HEAD --master_port=29500 train.py'\n"
)
_SSH = """\
#!/bin/bash
for rank in 0 1; do
    ssh node$rank %storchrun --nnodes=2 --node_rank=$rank --master_addr=node0 --nproc_per_node=8 train.py%s &
done
wait
"""


def _job(text: str) -> dict[str, str]:
    return {"job.sbatch": _HEAD + text, **_SCRIPT}


EXAMPLES = (
    bad("the role of a task", _job(_ROLE), "job.sbatch:5", {"job.sbatch": _HEAD + "export " + _ROLE}),
    bad("the first host", _job(_ONE % ""), "job.sbatch:5", {"job.sbatch": _HEAD + "export " + _ONE % ""}),
    bad("an option with two forms", _job(_ONE.replace("$HEAD", "${HEAD}") % " --kill-on-bad-exit=1"), "job.sbatch:5"),
    bad("the variable of a loop", {"run.sh": _SSH % ("'", "'"), **_SCRIPT}, "run.sh:3"),
    bad("one shell here", {
        "run.sh": "LR=3e-4\nnohup bash -c 'torchrun --nproc_per_node=8 train.py --lr $LR' > log 2>&1 &\n", **_SCRIPT,
    }, "run.sh:1"),
    bad("other machines", {
        "run.sh": "PORT=29500\npdsh -w node[0-1] 'torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d"
        " --rdzv_endpoint=node0:$PORT train.py'\n", **_SCRIPT,
    }, "run.sh:1"),
    bad("read from a file", {
        "run.sh": "read -r LR < lr.txt\n"
        "mpirun -np 2 bash -c 'torchrun --standalone --nproc_per_node=8 train.py --lr $LR'\n", **_SCRIPT,
    }, "run.sh:1"),
    bad("a local name of a function", _job(
        "start() {\n  local HEAD=$1\n  " + _ONE.partition("\n")[2] % "" + "}\n"
        "start $(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"), "job.sbatch:6"),
    good("exported on one way", {
        "run.sh": "SEED=3\n[ -n \"$DEBUG\" ] && export SEED\n"
        "bash -c 'torchrun --standalone --nproc_per_node=8 train.py --seed $SEED'\n", **_SCRIPT}),
    good("exported by the script that submits it", {
        **_job("NODES=$SLURM_NNODES\n" + _ONE.partition("\n")[2].replace("nnodes=5", "nnodes=$NODES").replace(
            "$HEAD", "node0") % ""), "submit.sh": "export NODES=4\nsbatch job.sbatch\n"}),
    good("handed over by the call that submits it", {
        **_job("NODES=$SLURM_NNODES\n" + _ONE.partition("\n")[2].replace("nnodes=5", "nnodes=$NODES").replace(
            "$HEAD", "node0") % ""), "submit.sh": "id=$(sbatch --parsable --export=ALL,NODES=4 job.sbatch)\n"}),
    good("handed over by a directive", {
        "job.sbatch": _HEAD.replace("source", "#SBATCH --export=ALL,HEAD=node0\nsource") + _ONE % "", **_SCRIPT}),
    good("a default inside", _job(
        "HEAD=a\n" + _ONE.partition("\n")[2].replace("bash -c '", "bash -c ': \"${HEAD:=node0}\"; ") % "")),
    good("a file is sourced inside", _job(
        "HEAD=a\n" + _ONE.partition("\n")[2].replace("bash -c '", "bash -c '. ./node.env && ") % "")),
    good("exported", _job("export " + _ONE % "")),
    good("exported later", _job(_ONE.replace("\nsrun", "\nexport HEAD\nsrun") % "")),
    good("exported with others, on a second line", _job("export \\\n  A=1 \\\n  " + _ONE % "")),
    good("names in a variable", _job(_ONE.replace("\nsrun", '\nexport "${names[@]}"\nsrun') % "")),
    good("a file that is sourced where it is there", _job("[ -f a.env ] && source a.env\n" + _ONE % "")),
    good("handed on by name", _job(_ONE % ' --export=ALL,HEAD="$HEAD"')),
    good("in front of the command", _job(_ONE.replace("\nsrun", "\nHEAD=$HEAD srun") % "")),
    good("double quotes", {"run.sh": _SSH % ('"', '"'), **_SCRIPT}),
    good("set inside", _job("HEAD=a\n" + _ONE.partition("\n")[2].replace("bash -c '", "bash -c 'HEAD=node0; ") % "")),
    good("the quotes end for it", _job(_ONE.replace("$HEAD", "'$HEAD'") % "")),
    good("run by this shell", {
        "run.sh": "LR=3e-4\neval 'torchrun --nproc_per_node=8 train.py --lr $LR'\n", **_SCRIPT,
    }),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Variables that are empty where they are used."""
    del context
    told: set[str] = set()
    for found in doc.unseen:
        if found.name in told:
            continue
        told.add(found.name)
        yield _finding(doc, found)


def _finding(doc: LaunchDoc, found: Unseen) -> Finding:
    place = found.used if found.is_loop else found.assigned
    other = found.assigned if found.is_loop else found.used
    start = found.assigned.span.start
    is_put_in = found.is_loop or found.is_remote
    usable = not is_put_in and doc.source.text.startswith(f"{found.name}=", start)
    fix = Fix("Export it", (Edit(doc.source.path, Span(start, start), "export "),))
    return META.finding(
        place,
        f"`{found.name}` is {'set here' if found.is_remote else 'not exported'}, and the single quotes of"
        f" `{found.program}` leave it to another shell: it is empty there",
        hint="Use double quotes, so that this shell puts the value in" if is_put_in else "Write `export` before it",
        related=(other,),
        fix=fix if usable else None,
        severity=Severity.INFO if doc.in_docs else None,
        facts={"variable": found.name},
    )
