"""**What.** A variable that NCCL has not read for years: `NCCL_TREE_THRESHOLD`, `NCCL_LL_THRESHOLD`,
`NCCL_IB_CUDA_SUPPORT`, `NCCL_CHECKS_DISABLE`, `NCCL_SINGLE_RING_THRESHOLD`.

**Why it hurts.** It has no effect, and readers take it for a setting that matters.

**Fix.** Delete it; `NCCL_ALGO` and `NCCL_PROTO` are what is left for experts.

**When it stays quiet.** In documentation.

**Evidence.** The sources of NCCL 2.3 to 2.30: the last ones that read `NCCL_TREE_THRESHOLD` and `NCCL_LL_THRESHOLD`
are 2.4.8, `NCCL_IB_CUDA_SUPPORT` 2.3.7; PyTorch 1.5 came with 2.4.8.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import settings
from dslint.model.launch.ncclnames import OBSOLETE
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL340",
    name="nccl-obsolete",
    kind="launch",
    severity=Severity.INFO,
    summary="A variable that NCCL no longer reads",
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
    no_experiment="a variable that nobody reads does nothing that could be seen",
    needs=tuple(sorted(OBSOLETE)),
)

_RUN = "torchrun --nproc_per_node 8 train.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("no tree threshold since 2.5", {"run.sh": "export NCCL_TREE_THRESHOLD=0\n" + _RUN, **_SCRIPT}, "run.sh:1"),
    good("what took its place", {"run.sh": "export NCCL_ALGO=Ring\n" + _RUN, **_SCRIPT}),
    good("history in documentation", {"README.md": f"```bash\nNCCL_LL_THRESHOLD=0 {_RUN}```\n", **_SCRIPT}),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Settings without a reader."""
    del context
    if doc.in_docs:
        return
    for setting in settings(doc):
        since = OBSOLETE.get(setting.name)
        if since is not None:
            yield META.finding(
                setting.location,
                f"`{setting.name}` has no effect since NCCL {since}",
                hint="Delete the setting",
            )
