"""**What.** A debugging switch in a committed launch file: `NCCL_DEBUG=INFO` or `TRACE`, `CUDA_LAUNCH_BLOCKING=1`,
`TORCH_DISTRIBUTED_DEBUG=DETAIL`.

**Why it hurts.** `NCCL_DEBUG` fills the logs of every rank; `CUDA_LAUNCH_BLOCKING` runs one kernel after the other;
`TORCH_DISTRIBUTED_DEBUG=DETAIL` puts collectives of its own before each collective.

**Fix.** Delete it when the search is over; `NCCL_DEBUG=WARN` may stay.

**When it stays quiet.** In documentation, and for values that a condition decides.

**Evidence.** NCCL's documentation: these variables are for debugging and should not be retained in scripts; the
documentations of CUDA and of `torch.distributed`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import settings
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL338",
    name="nccl-debug-left-on",
    kind="launch",
    severity=Severity.INFO,
    summary="A debugging switch of NCCL, CUDA or `torch.distributed` in a launch file",
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
    no_experiment="what it costs shows on GPUs only",
    needs=("NCCL_DEBUG", "CUDA_LAUNCH_BLOCKING", "TORCH_DISTRIBUTED_DEBUG"),
)

_RUN = "torchrun --nproc_per_node 8 train.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("every rank tells everything", {"run.sh": "export NCCL_DEBUG=INFO\n" + _RUN, **_SCRIPT}, "run.sh:1"),
    bad("one kernel after the other", {"run.sh": "CUDA_LAUNCH_BLOCKING=1 " + _RUN, **_SCRIPT}, "run.sh:1"),
    bad("more collectives", {"run.sh": "export TORCH_DISTRIBUTED_DEBUG=DETAIL\n" + _RUN, **_SCRIPT}, "run.sh:1"),
    good("warnings only", {"run.sh": "export NCCL_DEBUG=WARN CUDA_LAUNCH_BLOCKING=0\n" + _RUN, **_SCRIPT}),
    good("advice in documentation", {"README.md": f"```bash\nexport NCCL_DEBUG=INFO\n{_RUN}```\n", **_SCRIPT}),
    good("on request", {"run.sh": 'if [ -n "$DEBUG" ]; then export NCCL_DEBUG=INFO; fi\n' + _RUN, **_SCRIPT}),
)  # fmt: skip

_COSTS = {
    ("NCCL_DEBUG", "info"): "every rank logs what NCCL does",
    ("NCCL_DEBUG", "trace"): "every rank logs each step of NCCL",
    ("CUDA_LAUNCH_BLOCKING", "1"): "the host waits for every kernel",
    ("TORCH_DISTRIBUTED_DEBUG", "detail"): "ranks compare every collective before it runs",
}


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Switches that a search for a mistake left behind."""
    del context
    if doc.in_docs:
        return
    for setting in settings(doc):
        cost = _COSTS.get((setting.name, setting.value.lower()))
        if cost is not None and setting.is_certain:
            yield META.finding(
                setting.location, f"`{setting.text}` is for debugging: {cost}", hint="Delete it after debugging"
            )
