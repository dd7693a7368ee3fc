"""**What.** `deepspeed --num_nodes` asks for several nodes, and no hostfile says which.

**Why it hurts.** DeepSpeed learns of other nodes from a hostfile alone (`--hostfile`, else `/job/hostfile`). Without
one it stops: `ValueError: Num nodes is >1 but no extra nodes available via hostfile`.

**Fix.** `--hostfile FILE` with a line `host slots=8` for each node. Where every node starts its own command (Slurm,
Kubernetes), use torchrun, or `--no_ssh --node_rank N --master_addr HOST` with the hostfile.

**When it stays quiet.** When the file mentions a hostfile anywhere, when a document of the project tells its readers to
write `/job/hostfile`, when options may be hidden, and for a number that is not known. In documentation it is an info.

**Evidence.** DeepSpeed 0.19.8 `runner.py::main`, run.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.assumptions import assumed
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.rendezvous import places
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL325",
    name="deepspeed-num-nodes-no-hostfile",
    kind="plan",
    severity=Severity.WARNING,
    summary="deepspeed is asked for several nodes and no hostfile names them",
    references=("https://www.deepspeed.ai/getting-started/#resource-configuration-multi-node",),
    needs=("hostfile",),
)

_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad(
        "two nodes, no hostfile",
        {"run.sh": "NODES=2\ndeepspeed --num_nodes $NODES --num_gpus 8 train.py\n", **_SCRIPT},
        "run.sh:2 warning",
    ),
    bad(
        "in documentation",
        {"README.md": "```bash\ndeepspeed --num_nodes=4 train.py\n```\n", **_SCRIPT},
        "README.md:2 info",
    ),
    good("a hostfile", {"run.sh": "deepspeed --hostfile hosts --num_nodes 2 train.py\n", **_SCRIPT}),
    good(
        "the file that DeepSpeed looks for by itself",
        {"run.sh": "make_hosts > /job/hostfile\ndeepspeed --num_nodes 2 train.py\n", **_SCRIPT},
    ),
    good(
        "the README says what to write there",
        {
            "scripts/run.sh": "deepspeed --num_nodes 2 train.py\n",
            "README.md": "Write the machines into `/job/hostfile`, one a line.\n",
            **_SCRIPT,
        },
    ),
    good("one node", {"run.sh": "deepspeed --num_nodes 1 --num_gpus 8 train.py\n", **_SCRIPT}),
    good("options that are not known", {"run.sh": "deepspeed --num_nodes 2 $DS_ARGS train.py\n", **_SCRIPT}),
)


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Several nodes that nobody names."""
    problem, command = plan.hostfile, plan.command
    if problem is None or problem.kind != "unnamed":
        return
    yield META.finding(
        problem.location,
        f"deepspeed is asked for {problem.text} nodes, but no hostfile names them: it stops with `ValueError: Num nodes"
        " is >1`",
        hint="Add `--hostfile FILE` with a line `host slots=8` for each node; `/job/hostfile` is read by default",
        related=places(command, "--num_nodes")[1:],
        severity=Severity.INFO if command.in_docs else Severity.WARNING,
        assumptions=(assumed("files-are-here", "/job/hostfile"),),
        facts={"nodes": int(problem.text)},
    )
