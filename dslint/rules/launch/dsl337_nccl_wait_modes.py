"""**What.** `TORCH_NCCL_ASYNC_ERROR_HANDLING=0`, `TORCH_NCCL_ENABLE_MONITORING=0` or `TORCH_NCCL_BLOCKING_WAIT=1` (or
the same under the names before torch 2.2) in a launch file.

**Why it hurts.** The first two switch off what ends a run that hangs: no watchdog aborts a collective that timed out,
no monitor aborts a watchdog that is stuck, and the job holds its GPUs until somebody looks. With the third the host
waits for every collective, so that nothing overlaps.

**Fix.** Delete the line. For a longer time-out set `timeout` of `init_process_group`; for a longer heartbeat
`TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC`.

**When it stays quiet.** For the values that PyTorch has by default, and when a comment on the line or above it says
why. In documentation it is information.

**Evidence.** `ProcessGroupNCCL.cpp` of torch 2.13; the documentation of its environment variables.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import is_explained, settings
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL337",
    name="nccl-wait-modes",
    kind="launch",
    severity=Severity.WARNING,
    summary="The watchdog of PyTorch's NCCL backend is switched off, or every collective blocks",
    references=("https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html",),
    no_experiment="the NCCL backend, which reads these variables, exists only in builds of torch for GPUs",
    needs=(
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "TORCH_NCCL_ENABLE_MONITORING",
        "TORCH_NCCL_BLOCKING_WAIT",
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_ENABLE_MONITORING",
        "NCCL_BLOCKING_WAIT",
    ),
)

_RUN = "torchrun --nproc_per_node 8 train.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("nothing aborts a hang", {"run.sh": "export TORCH_NCCL_ASYNC_ERROR_HANDLING=0\n" + _RUN, **_SCRIPT},
        "run.sh:1"),
    bad("no monitor", {"run.sh": "TORCH_NCCL_ENABLE_MONITORING=0 " + _RUN, **_SCRIPT}, "run.sh:1"),
    bad("every collective blocks", {"run.sh": "export TORCH_NCCL_BLOCKING_WAIT=1\n" + _RUN, **_SCRIPT}, "run.sh:1"),
    good("the defaults, said", {
        "run.sh": "export TORCH_NCCL_ASYNC_ERROR_HANDLING=3 TORCH_NCCL_ENABLE_MONITORING=1"
        " TORCH_NCCL_BLOCKING_WAIT=0\n" + _RUN, **_SCRIPT,
    }),
    good("a comment says why", {
        "run.sh": "export TORCH_NCCL_ENABLE_MONITORING=0  # no trace of the store at the end\n" + _RUN, **_SCRIPT,
    }),
    good("a variable that is not exported to anybody", {"run.sh": "# TORCH_NCCL_BLOCKING_WAIT=1\n" + _RUN, **_SCRIPT}),
)  # fmt: skip

_OFF = frozenset({"0", "n", "no", "f", "false"})
_ON = frozenset({"1", "y", "yes", "t", "true"})
_MODES = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": (
        frozenset({"0"}),
        "no watchdog aborts a collective that timed out: a hang holds the GPUs",
    ),
    "TORCH_NCCL_ENABLE_MONITORING": (_OFF, "nothing aborts a process whose watchdog is stuck: it hangs forever"),
    "TORCH_NCCL_BLOCKING_WAIT": (_ON, "the host waits for every collective: nothing overlaps"),
}


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Modes that take the end from a hang, or the overlap from the training."""
    del context
    for setting in settings(doc):
        name = setting.name if setting.name.startswith("TORCH_") else f"TORCH_{setting.name}"
        values, effect = _MODES.get(name, (frozenset(), ""))
        if setting.value.lower() in values and not is_explained(doc, setting.location):
            yield META.finding(
                setting.location,
                f"with `{setting.text}` {effect}",
                hint="Delete the setting, or explain it in a comment",
                severity=Severity.INFO if doc.in_docs else None,
            )
