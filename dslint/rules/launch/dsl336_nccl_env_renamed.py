"""**What.** A variable of PyTorch's NCCL backend under the name that it had before torch 2.2: `NCCL_BLOCKING_WAIT`,
`NCCL_ASYNC_ERROR_HANDLING`, `NCCL_DESYNC_DEBUG`, `NCCL_ENABLE_TIMING`,
`NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK`.

**Why it hurts.** Every rank prints a deprecation warning, and the old names will go. They never were variables of NCCL.

**Fix.** Put `TORCH_` in front. Where torch below 2.2 must work too, set both.

**When it stays quiet.** When the project pins torch below 2.2, and when the command sets the new name as well. Where
nobody says which torch is installed it is only information.

**Evidence.** `ProcessGroupNCCL.hpp` of torch 2.13 lists both names of each; `getCvarInt` of `c10d/Utils.hpp` warns. In
pytorch#114077 they were renamed.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.model.context import Context, VersionFact
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import name_span, settings
from dslint.model.launch.ncclnames import RENAMED
from dslint.model.versions.resolve import covers
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL336",
    name="nccl-env-renamed",
    kind="launch",
    severity=Severity.WARNING,
    summary="The name that a variable of PyTorch's NCCL backend had before torch 2.2",
    fix="safe",
    versions=("torch>=2.2",),
    references=("https://github.com/pytorch/pytorch/pull/114077", "https://github.com/ray-project/ray/issues/47286"),
    depends_on_run=True,
    no_experiment="the NCCL backend, which reads these variables, exists only in builds of torch for GPUs",
    needs=tuple(sorted(RENAMED)),
)

_RUN = "export NCCL_ASYNC_ERROR_HANDLING=1\ntorchrun --nproc_per_node 8 train.py\n"
_NEW = _RUN.replace("NCCL", "TORCH_NCCL")
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("torch 2.4 is pinned", {"run.sh": _RUN, "requirements.txt": "torch==2.4.0\n", **_SCRIPT}, "run.sh:1 warning",
        {"run.sh": _NEW}),
    bad("nobody says which torch", {"run.sh": _RUN, **_SCRIPT}, "run.sh:1 info", {"run.sh": _NEW}),
    good("the new name", {"run.sh": _NEW, "requirements.txt": "torch==2.4.0\n", **_SCRIPT}),
    good("an older torch", {"run.sh": _RUN, "requirements.txt": "torch==2.1.2\n", **_SCRIPT}),
    good("both names", {"run.sh": "export TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n" + _RUN, **_SCRIPT}),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Old names, where the installed torch may know the new ones."""
    torch = context.libraries.get("torch") or VersionFact()
    is_new = covers(torch, ">=2.2", "torch") if torch.is_known else "maybe"
    if is_new == "no":
        return
    for setting in settings(doc):
        new = f"TORCH_{setting.name}"
        if setting.name not in RENAMED or not setting.command.variable(new).is_absent:
            continue
        span = name_span(doc, setting)
        yield META.finding(
            setting.location,
            f"`{setting.name}` is called `{new}` since torch 2.2, which warns about the old name",
            hint=f"Write `{new}`",
            related=(torch.origin.labelled("the version of torch"),) if torch.origin is not None else (),
            fix=Fix(f"Write `{new}`", (Edit(doc.source.path, span, new),)) if span is not None else None,
            severity=None if is_new == "yes" and not doc.in_docs else Severity.INFO,
        )
