"""**What.** A job script sets a variable about its machine (`NCCL_IB_HCA`, `NCCL_SOCKET_IFNAME`,
`CUDA_VISIBLE_DEVICES`, `NNODES`), and a script that it calls or sources then sets it to a fixed value of its own.

**Why it hurts.** What the job says is lost. NCCL looks for network cards of another cluster, finds none and sends the
gradients over TCP, or stops; processes take GPUs that the job has left to others; a job of four nodes trains on one.

**Fix.** `export NCCL_IB_HCA=${NCCL_IB_HCA:-rdma0,rdma1}` in the script that is called: its value is then a default.

**When it stays quiet.** For the same value, for defaults and values that contain the old one, when the script that
calls sets the variable after it has sourced the other, and for the network variables of a run on one node.

**Evidence.** https://github.com/ROCm/Megatron-LM/pull/132. What a command finds in its environment is compared with
bash itself in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.traits import NCCL
from dslint.model.shell.overwriting import overwritten
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL330",
    name="variable-overwritten",
    kind="launch",
    severity=Severity.WARNING,
    summary="A script that is called or sourced overwrites a variable of its job with a fixed value",
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
    depends_on_run=True,
    no_experiment="it takes several network cards, nodes or GPUs; the variables themselves are compared with bash",
    needs=(
        NCCL,
        "GLOO_SOCKET_IFNAME",
        "UCX_NET_DEVICES",
        "FI_PROVIDER",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "MASTER_ADDR",
        "NNODES",
        "NODE_RANK",
    ),
)

_SCRIPT = {"train.py": "print()\n"}
_TORCHRUN = "torchrun --nnodes=2 --node_rank=$NODE_RANK --master_addr=$HEAD --nproc_per_node=8 train.py\n"
_JOB = (
    "#!/bin/bash\n#SBATCH --nodes=2\nexport NCCL_IB_HCA=mlx5_0,mlx5_1\n"
    "srun bash -c 'NODE_RANK=$SLURM_NODEID bash run.sh'\n"
)
_OWN = "export NCCL_IB_HCA=rdma0,rdma1\n"

EXAMPLES = (
    bad("a script that a job calls", {"job.sbatch": _JOB, "run.sh": _OWN + _TORCHRUN, **_SCRIPT}, "run.sh:1"),
    bad("a file that is sourced", {
        "env.sh": "export NCCL_SOCKET_IFNAME=ib0\n",
        "run.sh": "export NCCL_SOCKET_IFNAME=eno1\nsource ./env.sh\n" + _TORCHRUN, **_SCRIPT,
    }, "env.sh:1"),
    bad("in front of the call", {
        "all.sh": "CUDA_VISIBLE_DEVICES=4,5 bash run.sh\n",
        "run.sh": "export CUDA_VISIBLE_DEVICES=0,1\ntorchrun --standalone --nproc_per_node=2 train.py\n", **_SCRIPT,
    }, "run.sh:1"),
    bad("a script behind another one", {
        "job.sbatch": _JOB.replace("run.sh", "middle.sh"), "middle.sh": "set -e\nbash run.sh\n",
        "run.sh": _OWN + _TORCHRUN, **_SCRIPT,
    }, "run.sh:1"),
    good("a default", {
        "job.sbatch": _JOB, "run.sh": "export NCCL_IB_HCA=${NCCL_IB_HCA:-rdma0,rdma1}\n" + _TORCHRUN, **_SCRIPT,
    }),
    good("a default by a test", {
        "job.sbatch": _JOB, "run.sh": '[ -n "$NCCL_IB_HCA" ] || ' + _OWN + _TORCHRUN, **_SCRIPT,
    }, select="DSL330"),
    good("the job says it last", {
        "env.sh": _OWN, "run.sh": "source ./env.sh\nexport NCCL_IB_HCA=mlx5_0\n" + _TORCHRUN, **_SCRIPT,
    }),
    good("the same value", {"job.sbatch": _JOB, "run.sh": "export NCCL_IB_HCA=mlx5_0,mlx5_1\n" + _TORCHRUN, **_SCRIPT}),
    good("one card more", {
        "job.sbatch": _JOB, "run.sh": "export NCCL_IB_HCA=$NCCL_IB_HCA,mlx5_2\n" + _TORCHRUN, **_SCRIPT,
    }),
)  # fmt: skip

_NETWORK = ("NCCL_", "GLOO_", "TP_", "UCX_", "FI_")


def check(doc: LaunchDoc, _context: Context) -> Iterator[Finding]:
    """Variables of a job that do not reach its processes."""
    said = set()
    for command in (*doc.commands, *doc.called):
        for name, last, first in overwritten(command.env):
            if (name.startswith(_NETWORK) and command.nodes.get_or(2) < 2) or (name, last) in said:
                continue
            said.add((name, last))
            yield META.finding(
                last,
                f"this overwrites the `{name}` of the script that calls it, whose value is lost",
                hint=f"Make it a default: `{name}=${{{name}:-...}}`",
                related=(first.labelled("set here before"),),
                severity=Severity.INFO if doc.in_docs or command.in_docs else None,
            )
