"""**What.** A command line in single quotes, which another shell expands (`srun bash -c '...'`, `ssh host '...'`,
`bash -c '...'`), starts a run and asks for a variable that the script sets and does not export: `NODES=4` before
`srun bash -c 'torchrun --nnodes=$NODES ...'`. So does the variable of a loop around it.

**Why it hurts.** The single quotes keep the text as it is, and the shell in which it runs has no such variable: it is
empty there. A test fails for every task, an option swallows the next word, ranks take the wrong role, and the others
wait for them.

**Fix.** `export NODES=4`; for `ssh` double quotes, so that this shell puts the value in.

**When it stays quiet.** For variables that the text in quotes sets itself or has a default for, that are exported
anywhere, or passed by name (`-x NODES`, `--export=ALL,NODES=4`); for names that jobs have in their environment
(`SLURM_...`, `PATH`); in scripts that source others, export names out of a variable or set `set -a`; and for
containers.

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
    usable = not found.is_loop and doc.source.text.startswith(f"{found.name}=", start)
    fix = Fix("Export it", (Edit(doc.source.path, Span(start, start), "export "),))
    return META.finding(
        place,
        f"`{found.name}` is not exported, and the single quotes of `{found.program}` leave it to another shell:"
        " it is empty there",
        hint="Use double quotes, so that this shell puts the value in" if found.is_loop else "Write `export` before it",
        related=(other,),
        fix=fix if usable else None,
        severity=Severity.INFO if doc.in_docs else None,
        facts={"variable": found.name},
    )
