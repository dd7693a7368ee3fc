"""**What.** A launch file switches off a transport of NCCL: `NCCL_P2P_DISABLE=1` (NVLink and PCIe between GPUs),
`NCCL_IB_DISABLE=1` (InfiniBand and RoCE), `NCCL_SHM_DISABLE=1` (shared memory).

**Why it hurts.** It helps on the machine whose driver or container is broken, and costs most of the bandwidth on every
other one: the collectives go through the host or over plain sockets.

**Fix.** Say in a comment which machine needs it, or delete it.

**When it stays quiet.** In documentation, when a comment is on the line or directly above, and for values that a
condition decides.

**Evidence.** NCCL's documentation of its environment variables.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import is_explained, settings
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL339",
    name="nccl-transport-disabled",
    kind="launch",
    severity=Severity.INFO,
    summary="A launch file switches off a transport of NCCL and does not say why",
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
    no_experiment="transports between GPUs and hosts need them",
    needs=("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE"),
)

_RUN = "torchrun --nproc_per_node 8 train.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("no NVLink", {"run.sh": "export NCCL_P2P_DISABLE=1\n" + _RUN, **_SCRIPT}, "run.sh:1"),
    bad("no InfiniBand, on four nodes", {
        "run.sh": "export NCCL_IB_DISABLE=1\n"
        + _RUN.replace("torchrun", "torchrun --nnodes 4 --node_rank $RANK --master_addr $HOST0"), **_SCRIPT,
    }, "run.sh:1"),
    good("a comment says why", {
        "run.sh": "# RTX 4090: the driver has no peer access\nexport NCCL_P2P_DISABLE=1\n" + _RUN, **_SCRIPT,
    }),
    good("switched on", {"run.sh": "export NCCL_P2P_DISABLE=0\n" + _RUN, **_SCRIPT}),
    good("advice in documentation", {"README.md": f"```bash\nNCCL_P2P_DISABLE=1 {_RUN}```\n", **_SCRIPT}),
)  # fmt: skip

_LOSSES = {
    "NCCL_P2P_DISABLE": "GPUs of one machine use host memory, not NVLink or PCIe",
    "NCCL_IB_DISABLE": "nodes use plain sockets, not InfiniBand or RoCE",
    "NCCL_SHM_DISABLE": "processes without peer access use the network",
}


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Transports that are switched off without a word."""
    del context
    if doc.in_docs:
        return
    for setting in settings(doc):
        loss = _LOSSES.get(setting.name)
        if loss is not None and setting.is_certain and setting.value == "1" and not is_explained(doc, setting.location):
            yield META.finding(
                setting.location,
                f"`{setting.text}` costs bandwidth where the transport works: {loss}",
                hint="Say in a comment which machine needs it, or delete it",
            )
