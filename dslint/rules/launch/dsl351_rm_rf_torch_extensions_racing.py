"""**What.** `rm -rf ~/.cache/torch_extensions` inside a command that `srun`, `mpirun` or `pdsh` starts several times.

**Why it hurts.** Every task deletes the folder in which another one is building the kernels of DeepSpeed, or has just
loaded them: `ninja: error`, `cannot open shared object file`, or a lock that nobody removes.

**Fix.** Delete the folder once, before the processes start, or give each node a folder of its own with
`TORCH_EXTENSIONS_DIR`.

**When it stays quiet.** In front of the launcher, in a command that starts once, and in comments.

**Evidence.** `torch/utils/cpp_extension.py` builds below this folder under a lock file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Span
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL351",
    name="rm-rf-torch-extensions-racing",
    kind="launch",
    severity=Severity.INFO,
    summary="Every task deletes the folder in which the others build their kernels",
    references=("https://github.com/deepspeedai/DeepSpeedExamples/issues/842",),
    no_experiment="a matter of timing between the builds of several nodes",
    needs=("/torch_extensions|TORCH_EXTENSIONS_DIR/",),
)

_RUN = "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint h0:29500 train.py"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("every task deletes it", {
        "job.sh": f'srun -N 2 bash -c "rm -rf ~/.cache/torch_extensions; {_RUN}"\n', **_SCRIPT,
    }, "job.sh:1"),
    good("once, before", {"job.sh": f"rm -rf ~/.cache/torch_extensions\nsrun -N 2 {_RUN}\n", **_SCRIPT}),
    good("in a comment", {"job.sh": f"# srun rm -rf ~/.cache/torch_extensions\nsrun -N 2 {_RUN}\n", **_SCRIPT}),
    good("another folder", {"job.sh": f'srun -N 2 bash -c "rm -rf /tmp/logs; {_RUN}"\n', **_SCRIPT}),
)  # fmt: skip

_DELETES = re.compile(r"\brm\s+-\w*r\w*\s+(?:-\w+\s+)*[\"']?\S*(?:torch_extensions|TORCH_EXTENSIONS_DIR)\S*")
_SPREADS = re.compile(r"(?:^|[;&|(]\s*)(?:srun|mpirun|mpiexec|pdsh|clush)\b")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Deletions inside a command of which several copies run."""
    del context
    if "torch_extensions" not in doc.source.text.lower() or doc.shell.anchor is not None or not doc.commands:
        return
    stack = [doc.shell.root]
    while stack:
        node = stack.pop()
        if node.type != "command":
            stack.extend(node.named_children)
            continue
        raw = doc.shell.raw(node)
        found = _DELETES.search(raw) if _SPREADS.match(raw) else None
        if found is not None:
            start = doc.shell.span(node).start + found.start()
            yield META.finding(
                doc.source.location(Span(start, start + len(found[0]))),
                "every task deletes the folder in which the others build or load the kernels of DeepSpeed",
                hint="Delete it once, before the tasks start",
            )
