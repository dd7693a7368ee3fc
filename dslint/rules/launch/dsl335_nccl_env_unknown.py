"""**What.** A variable in the name of NCCL that neither NCCL nor PyTorch reads: a misspelling
(`NCCL_SOCKET_IFNAM`), a `TORCH_` too much or too little, or a time-out such as `NCCL_TIMEOUT`.

**Why it hurts.** Nobody complains about a variable that nobody reads: NCCL picks the interface itself, the debug output
stays off, the time-out is that of the process group.

**Fix.** Write the name that was meant. The time-out of a collective is `init_process_group(timeout=...)`,
`--ddp_timeout` of transformers or `DEEPSPEED_TIMEOUT` (minutes).

A time-out is information only: some scripts read `NCCL_TIMEOUT` themselves.

**When it stays quiet.** For every name that a release of NCCL, RCCL or PyTorch has read, also old ones; for the names
of plug-ins (`NCCL_NET_*`, `NCCL_OFI_*`, `NCCL_UCX_*`, `NCCL_TUNER_*`), of tests and of builds (`NCCL_HOME`,
`NCCL_VERSION`); when the file uses the variable itself; and for unknown names that resemble none.

**Evidence.** The sources of NCCL 2.3 to 2.30 and of RCCL, `ProcessGroupNCCL.hpp` of torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.environment import Setting, name_span, settings
from dslint.model.launch.ncclnames import is_known, is_nccl, is_timeout, meant
from dslint.model.launch.traits import NCCL
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL335",
    name="nccl-env-unknown",
    kind="launch",
    severity=Severity.WARNING,
    summary="A variable in the name of NCCL that nobody reads",
    fix="safe",
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
    no_experiment="NCCL needs GPUs, and a variable that nobody reads does nothing that could be seen",
    needs=(NCCL,),
)

_RUN = "torchrun --nproc_per_node 8 train.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("a letter is missing", {"run.sh": "export NCCL_SOCKET_IFNAM=eth0\n" + _RUN, **_SCRIPT}, "run.sh:1",
        {"run.sh": "export NCCL_SOCKET_IFNAME=eth0\n" + _RUN}),
    bad("NCCL's own variable with the prefix of PyTorch", {"run.sh": "TORCH_NCCL_PROTO=Simple " + _RUN, **_SCRIPT},
        "run.sh:1", {"run.sh": "NCCL_PROTO=Simple " + _RUN}),
    bad("NCCL has no time-out", {"run.sh": "export NCCL_TIMEOUT=1800000\n" + _RUN, **_SCRIPT}, "run.sh:1 info"),
    good("names that are read", {
        "run.sh": "export NCCL_SOCKET_IFNAME=eth0 NCCL_IB_TIMEOUT=22 TORCH_NCCL_DUMP_ON_TIMEOUT=1\n" + _RUN, **_SCRIPT,
    }),
    good("names of plug-ins and builds", {
        "run.sh": "export NCCL_OFI_PROTOCOL=1 NCCL_NET_PLUGIN=ofi NCCL_UCX_TLS=dc NCCL_HOME=/opt NCCL_VERSION=2.20\n"
        + _RUN, **_SCRIPT,
    }),
    good("the file itself uses it", {
        "run.sh": "export NCCL_TIMEOUT=1800\n" + _RUN.replace("\n", " --ddp_timeout $NCCL_TIMEOUT\n"), **_SCRIPT,
    }),
    good("a name that is like no other", {"run.sh": "export NCCL_LAB_CLUSTER=blue\n" + _RUN, **_SCRIPT}),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Names that begin like a variable of NCCL and are none."""
    del context
    for setting in settings(doc):
        name = setting.name
        if not is_nccl(name) or is_known(name) or re.search(rf"\$\{{?{name}\b", doc.source.text):
            continue
        if is_timeout(name):
            yield META.finding(
                setting.location,
                f"NCCL and PyTorch read no variable `{name}`: the timeout of the process group does not change",
                hint="Set `timeout` of `init_process_group`, `--ddp_timeout` of transformers or `DEEPSPEED_TIMEOUT`",
                severity=Severity.INFO,
            )
        elif other := meant(name):
            yield META.finding(
                setting.location,
                f"NCCL and PyTorch read no variable `{name}`: `{setting.value}` has no effect",
                hint=f"Write `{other}`",
                fix=_fix(doc, setting, other),
                severity=Severity.INFO if doc.in_docs else None,
            )


def _fix(doc: LaunchDoc, setting: Setting, other: str) -> Fix | None:
    span = name_span(doc, setting)
    return Fix(f"Write `{other}`", (Edit(doc.source.path, span, other),)) if span is not None else None
