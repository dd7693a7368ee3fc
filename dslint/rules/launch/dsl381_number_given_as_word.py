"""**What.** A variable of NCCL that is read as a number is given a word: `NCCL_P2P_DISABLE=true`,
`NCCL_IB_DISABLE=True`, `TORCH_NCCL_ASYNC_ERROR_HANDLING=true`.

**Why it hurts.** NCCL reads its switches with `strtoll`: a word is no number, the default counts, and a line in the
log at `NCCL_DEBUG=INFO` says so. Peer-to-peer or InfiniBand stay on, as if the line were not there. PyTorch stops at
its own numbers: `Invalid value for environment variable: TORCH_NCCL_ASYNC_ERROR_HANDLING`.

**Fix.** Write `1` or `0`.

**When it stays quiet.** For variables that hold names (`NCCL_ALGO`, `NCCL_IB_HCA`), for the switches of PyTorch,
which know `true`, and for values that are not known.

**Evidence.** NCCL's `param.cc` (`ncclLoadParam`); `getCvarInt` and `getCvarBool` of torch 2.13 (`c10d/Utils.hpp`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import settings, value_span
from dslint.model.launch.ncclnames import is_known
from dslint.model.launch.traits import NCCL
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL381",
    name="number-given-as-word",
    kind="launch",
    severity=Severity.WARNING,
    summary="A variable that NCCL reads as a number is given a word, and has no effect",
    fix="safe",
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
    no_experiment="NCCL needs GPUs, and a variable that it does not take does nothing that could be seen",
    needs=(NCCL,),
)

_RUN = "torchrun --standalone --nproc_per_node 8 train.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("a word for a switch", {"run.sh": "export NCCL_P2P_DISABLE=true\n" + _RUN, **_SCRIPT}, "run.sh:1",
        {"run.sh": "export NCCL_P2P_DISABLE=1\n" + _RUN}),
    bad("in front of the command", {"run.sh": "NCCL_IB_DISABLE=True " + _RUN, **_SCRIPT}, "run.sh:1",
        {"run.sh": "NCCL_IB_DISABLE=1 " + _RUN}),
    bad("off", {"run.sh": "export NCCL_NVLS_ENABLE=off\n" + _RUN, **_SCRIPT}, "run.sh:1",
        {"run.sh": "export NCCL_NVLS_ENABLE=0\n" + _RUN}),
    bad("a number of PyTorch", {"run.sh": "TORCH_NCCL_ASYNC_ERROR_HANDLING=true " + _RUN, **_SCRIPT}, "run.sh:1",
        {"run.sh": "TORCH_NCCL_ASYNC_ERROR_HANDLING=1 " + _RUN}),
    good("numbers", {"run.sh": "export NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=0\n" + _RUN, **_SCRIPT}),
    good("names", {"run.sh": "export NCCL_ALGO=Ring NCCL_IB_HCA=mlx5 NCCL_P2P_LEVEL=NVL\n" + _RUN, **_SCRIPT}),
    good("a switch of PyTorch", {"run.sh": "export TORCH_NCCL_DESYNC_DEBUG=true\n" + _RUN, **_SCRIPT}),
)  # fmt: skip

_WORDS = {"true": "1", "yes": "1", "on": "1", "false": "0", "no": "0", "off": "0"}
# PyTorch reads these with `getCvarInt`, and all its others as switches or texts.
_INTEGERS = frozenset(
    {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
        "TORCH_NCCL_TRACE_BUFFER_SIZE",
        "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC",
        "TORCH_NCCL_COORD_CHECK_MILSEC",
        "NCCL_ASYNC_ERROR_HANDLING",
    }
)
_SWITCH = re.compile(
    r"NCCL_\w*(?:_DISABLE|_ENABLE|_READ|_ALLOC\w*|_HOST_ENABLE|_IS_GLOBAL)|NCCL_IB_PCI_RELAXED_ORDERING"
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Words where a number is read."""
    del context
    for setting in settings(doc):
        number = _WORDS.get(setting.value.strip().lower())
        name = setting.name
        if number is None or not is_known(name):
            continue
        stops = name in _INTEGERS
        if not stops and (name.startswith("TORCH_") or not _SWITCH.fullmatch(name)):
            continue
        span = value_span(doc, setting)
        effect = "PyTorch stops with `Invalid value`" if stops else "NCCL keeps its default"
        yield META.finding(
            setting.location,
            f"`{name}` is read as a number, and `{setting.value}` is none: {effect}",
            hint=f"Write `{number}`",
            fix=Fix(f"Write `{number}`", (Edit(doc.source.path, span, number),)) if span is not None else None,
            severity=Severity.INFO if doc.in_docs else None,
            facts={"variable": name},
        )
