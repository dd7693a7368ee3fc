r"""**What.** `$SLURM_PROCID`, `$SLURM_NODEID` or `$SLURM_LOCALID` is given as a rank to a command that `srun` runs,
unquoted or in double quotes, so that the shell of the batch script puts its own value in.

**Why it hurts.** The batch script runs on the first node, as task 0. bash expands the variable there, once, and every
node gets `--node_rank 0`: all of them wait at the rendezvous, each as node 0.

**Fix.** Let the shell of the task expand it: `srun bash -c 'torchrun --node_rank $SLURM_PROCID ...'` in single quotes,
or `\$SLURM_PROCID` in double quotes. The fix puts the `\` in where `srun` starts a shell.

**When it stays quiet.** In single quotes and after `\`, where the value is only printed or names a file, with a
rendezvous that hands out the ranks itself (`--rdzv_backend c10d`), and in functions and scripts that the tasks run. On
one node nothing goes wrong yet: a warning.

**Evidence.** bash 5.2 with an `srun` that runs its command once for each task; torch 2.13 on two hosts with the same
node rank. Report: pytorch/pytorch#73656.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.shell.batch import FIRST_RANK, EarlyRank, early_ranks
from dslint.model.shell.slurm import sbatch_directives
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL316",
    name="slurm-rank-expanded-early",
    kind="launch",
    severity=Severity.ERROR,
    summary="The rank of a Slurm task is expanded in the batch script, so that all tasks get the same",
    fix="safe",
    references=("https://github.com/pytorch/pytorch/issues/73656", "https://slurm.schedmd.com/srun.html"),
    needs=(f"/{FIRST_RANK}/",),
)

_HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"
_ARGS = "--nnodes 2 --nproc_per_node 8 --master_addr $HOST0 --node_rank %s train.py"
_QUOTED = _HEAD + f'srun bash -c "torchrun {_ARGS}"\n'
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad(
        "in double quotes",
        {"job.sbatch": _QUOTED % "$SLURM_PROCID", **_SCRIPT},
        "job.sbatch:4 error",
        {"job.sbatch": _QUOTED % "\\$SLURM_PROCID"},
    ),
    bad("without quotes", {"job.sbatch": _HEAD + f"srun torchrun {_ARGS % '$SLURM_NODEID'}\n", **_SCRIPT},
        "job.sbatch:4 error"),
    bad(
        "by way of a variable",
        {
            "job.sbatch": _HEAD + f"NODE_RANK=$SLURM_PROCID\nsrun torchrun {_ARGS % '$NODE_RANK'}\n",
            **_SCRIPT,
        },
        "job.sbatch:5 error",
    ),
    bad(
        "in a command that is put together before",
        {"job.sbatch": _HEAD + f'RUN="torchrun {_ARGS % "$SLURM_PROCID"}"\nsrun bash -c "$RUN"\n', **_SCRIPT},
        "job.sbatch:4 error",
        {"job.sbatch": _HEAD + 'RUN="torchrun ' + _ARGS % "\\$SLURM_PROCID" + '"\nsrun bash -c "$RUN"\n'},
    ),
    bad(
        "in the environment that srun passes on",
        {"job.sbatch": _HEAD + "srun --export=ALL,NODE_RANK=$SLURM_NODEID bash task.sh\n"},
        "job.sbatch:4 error",
    ),
    bad(
        "exported for a script that no launcher starts",
        {"job.sbatch": _HEAD + "export RANK=$SLURM_PROCID\nsrun python train.py\n", **_SCRIPT},
        "job.sbatch:4 warning",
    ),
    good(
        "a launcher gives each process its own",
        {"job.sbatch": _HEAD + "export RANK=$SLURM_PROCID\nsrun torchrun --nnodes 2 --nproc_per_node 8"
         " --rdzv_backend c10d --rdzv_endpoint $HOST0:29500 train.py\n", **_SCRIPT},
    ),
    bad(
        "on one node it works until somebody adds a second",
        {"job.sbatch": (_QUOTED % "$SLURM_PROCID").replace("nodes=2", "nodes=1"), **_SCRIPT},
        "job.sbatch:4 warning",
        {"job.sbatch": (_QUOTED % "\\$SLURM_PROCID").replace("nodes=2", "nodes=1")},
    ),
    good(
        "in single quotes, and escaped",
        {
            "job.sbatch": _HEAD + f"srun bash -c 'torchrun {_ARGS}'\n" % "$SLURM_PROCID"
            + f'srun bash -c "torchrun {_ARGS}"\n' % "\\$SLURM_PROCID",
            **_SCRIPT,
        },
    ),
    good(
        "a rendezvous that numbers the nodes itself",
        {
            "job.sbatch": _HEAD + "srun torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint $HOST0:29500"
            " --node_rank $SLURM_PROCID train.py\n",
            **_SCRIPT,
        },
    ),
    good(
        "the rank is only printed",
        {"job.sbatch": _HEAD + 'srun bash -c "echo batch task $SLURM_PROCID; python train.py"\n', **_SCRIPT},
    ),
    good(
        "a script that srun starts",
        {"task.sh": f"export NODE_RANK=$SLURM_PROCID\ntorchrun {_ARGS}\n" % "$SLURM_PROCID", **_SCRIPT},
    ),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Ranks that bash expands before there are tasks."""
    del context
    done: set[Span] = set()
    for early in early_ranks(doc.shell):
        if early.span in done:
            continue
        done.add(early.span)
        alone = _nodes(doc, early) == "1" and not early.is_exported
        effect = f"all nodes get {early.use} 0"
        related = [doc.source.location(_first_line(doc, early.srun), "srun starts the tasks here")]
        if early.via is not None:
            related.append(doc.source.location(early.via, f"${early.variable} is expanded here"))
        yield META.finding(
            doc.source.location(early.span),
            f"`${early.variable}` is expanded by the batch script, not by the tasks of `srun`: {effect}"
            + (" (right for one node)" if alone else ""),
            hint=f"Write `\\${early.variable}`"
            if early.escapes
            else f"Let the tasks expand it: `srun bash -c '... ${early.variable} ...'`",
            related=tuple(related),
            fix=_fix(doc, early),
            severity=Severity.WARNING if doc.in_docs or alone or early.is_exported else Severity.ERROR,
            facts={"variable": early.variable, "use": early.use},
        )


def _nodes(doc: LaunchDoc, early: EarlyRank) -> str:
    """The number of nodes of the step, else of the job; empty when nobody says."""
    text = doc.source.text[early.srun.start : early.srun.end]
    own = re.search(r"\s(?:-N\s*|--nodes[= ])(\d+)\b", text.partition(" bash ")[0])
    fact = sbatch_directives(doc.shell).get("SBATCH_NODES")
    return own[1] if own else fact.get_or("") if fact is not None else ""


def _first_line(doc: LaunchDoc, span: Span) -> Span:
    end = doc.source.text.find("\n", span.start, span.end)
    line = doc.source.text[span.start : span.end if end < 0 else end].rstrip("\\ \t")
    return Span(span.start, span.start + len(line))


def _fix(doc: LaunchDoc, early: EarlyRank) -> Fix | None:
    if not early.escapes:
        return None
    at = Span(early.span.start, early.span.start)
    return Fix("Leave the variable to the shell of the task", (Edit(doc.source.path, at, "\\"),))
