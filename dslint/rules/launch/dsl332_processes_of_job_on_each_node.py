"""**What.** A launcher is told to start, on each node, the processes of the whole job: `--nproc_per_node=$WORLD_SIZE`
with `WORLD_SIZE=$((NNODES * GPUS_PER_NODE))`.

**Why it hurts.** Two nodes of four GPUs start eight processes each. Those with a local rank above 3 ask for a GPU that
does not exist (`CUDA error: invalid device ordinal`), and the launcher stops all others.

**Fix.** Hand over the processes of one node: `--nproc_per_node=$GPUS_PER_NODE`. The launcher multiplies by itself.

**When it stays quiet.** For one node, when the number is no product with the number of nodes, when a variable is set
more than once or under a condition, and for `accelerate launch`, whose `--num_processes` counts the whole job.

**Evidence.** torch 2.13 `torchrun --help`: `--nproc-per-node`: number of workers per node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import Flag, LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.pernode import Written, written
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL332",
    name="processes-of-job-on-each-node",
    kind="launch",
    severity=Severity.WARNING,
    summary="The number of processes on each node is that of the whole job",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    needs=("/\\*/",),
    no_experiment="it takes as many GPUs as the job has; what an invalid device ordinal does is known",
)

_SCRIPT = {"train.py": "print()\n"}
_SET = "NNODES=%s\nGPUS=4\nWORLD_SIZE=%s\n"
_RUN = (
    "torchrun --nnodes=$NNODES --node_rank=$1 --nproc_per_node=%s --master_addr=10.0.0.1 --master_port=29500 train.py\n"
)
_PRODUCT = "$((NNODES * GPUS))"

EXAMPLES = (
    bad("the world size", {"run.sh": _SET % (2, _PRODUCT) + _RUN % "$WORLD_SIZE", **_SCRIPT}, "run.sh:4"),
    bad("nodes that are not known", {"run.sh": _SET % ("$2", "$(($GPUS*$NNODES))") + _RUN % "$WORLD_SIZE", **_SCRIPT},
        "run.sh:4"),
    bad("in the command", {"run.sh": "NNODES=2\nGPUS=4\n" + _RUN % _PRODUCT, **_SCRIPT}, "run.sh:3"),
    bad("by expr, and a variable between", {
        "run.sh": _SET % (2, "$(expr $NNODES \\* $GPUS)") + "N=$WORLD_SIZE\n" + _RUN % "${N}", **_SCRIPT,
    }, "run.sh:5"),
    bad("the nodes of Slurm", {
        "job.sh": "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\nTOTAL=$((SLURM_NNODES * 4))\n"
        "srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=$TOTAL --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500"
        " train.py\n",
        **_SCRIPT,
    }, "job.sh:5"),
    bad("deepspeed", {
        "run.sh": "NODES=2\nALL=$((8 * NODES))\n"
        "deepspeed --num_nodes $NODES --num_gpus $ALL --hostfile hosts train.py\n",
        "hosts": "a slots=8\nb slots=8\n", **_SCRIPT,
    }, "run.sh:3"),
    good("one node", {"run.sh": _SET % (1, _PRODUCT) + _RUN % "$WORLD_SIZE", **_SCRIPT}),
    good("the GPUs of a node", {"run.sh": _SET % (2, _PRODUCT) + _RUN % "$GPUS", **_SCRIPT}),
    good("divided again", {"run.sh": _SET % (2, _PRODUCT) + _RUN % "$((WORLD_SIZE / NNODES))", **_SCRIPT}),
    good("a variable of the platform", {"run.sh": "NNODES=2\n" + _RUN % "$WORLD_SIZE", **_SCRIPT}),
    good("the whole job of accelerate", {
        "run.sh": _SET % (2, _PRODUCT) + "accelerate launch --num_machines $NNODES --num_processes $WORLD_SIZE "
        "--machine_rank $1 --main_process_ip 10.0.0.1 --main_process_port 29500 train.py\n",
        **_SCRIPT,
    }),
    good("two processes for each GPU", {
        "run.sh": "NNODES=2\nGPUS=4\nN=$((GPUS * 2))\n" + _RUN % "$N", **_SCRIPT,
    }),
)  # fmt: skip

_FLAGS = {
    "torchrun": (("--nproc_per_node",), ("--nnodes",)),
    "deepspeed": (("--num_gpus", "--num_accelerators"), ("--num_nodes",)),
    "colossalai": (("--nproc_per_node",), ()),
}
# `$((A * B))`, `$(expr $A \* $B)`: two factors and nothing else.
_FACTOR = r"\$?\{?(\w+)\}?"
_PRODUCT_OF = re.compile(
    rf"""["']?(?:\$\(\(\s*{_FACTOR}\s*\*\s*{_FACTOR}\s*\)\)|\$\(\s*expr\s+{_FACTOR}\s+\\\*\s+{_FACTOR}\s*\))["']?"""
)
_NODES = re.compile(r"SLURM_(?:JOB_NUM_|N)NODES|PBS_NUM_NODES|(?:NUM_?|N)?NODES?_?(?:COUNT|NUM)?|N_NODES", re.I)
_ONE_VARIABLE = re.compile(r"""["']?\$\{?(\w+)\}?["']?""")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Processes of a node that are a product with the number of nodes."""
    del context
    for command in doc.commands:
        processes, nodes = (_flag(command, names) for names in _FLAGS.get(command.launcher, ((), ())))
        if processes is None or processes.value is None or command.nodes.get_or(2) < 2 or command.conditions:
            continue
        if command.nodes.is_absent or (nodes is None and not command.nodes.is_known):
            continue
        made = next(_products(doc, processes, nodes), None)
        if made is not None:
            yield META.finding(
                processes.location,
                f"`{processes.name}` counts the processes of one node, and this is the number of the whole job:"
                f" `{made.text}`",
                hint="Hand over the number of GPUs of one node",
                related=(made.location.labelled("the product"),) if made.location != processes.value.location else (),
                severity=Severity.INFO if doc.in_docs else None,
            )


def _flag(command: LaunchCommand, names: tuple[str, ...]) -> Flag | None:
    return command.launcher_flag(*names) if names else None


def _products(doc: LaunchDoc, processes: Flag, nodes: Flag | None) -> Iterator[Written]:
    """The product with the number of nodes that the value is, as a whole."""
    said = [] if nodes is None or nodes.value is None else list(written(doc, nodes.value))
    names = {match[1] for value in said if (match := _ONE_VARIABLE.fullmatch(value.text))}
    if processes.value is None:
        return
    for value in written(doc, processes.value):
        match = _PRODUCT_OF.fullmatch(value.text.strip())
        if match is not None:
            factors = [factor for factor in match.groups() if factor]
            if len(set(factors)) == 2 and any(f in names or _NODES.fullmatch(f) for f in factors):
                yield value
            return
        if not _ONE_VARIABLE.fullmatch(value.text.strip()):
            return
