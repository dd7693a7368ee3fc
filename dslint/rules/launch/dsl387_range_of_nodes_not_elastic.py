"""**What.** `torchrun --nnodes=1:4` with a static rendezvous: no `--rdzv_backend`, but `--node_rank` or
`--master_addr`.

**Why it hurts.** A static rendezvous knows no range: it waits for the largest number of nodes. One to three nodes are
said to be enough, and wait until the time-out.

**Fix.** `--rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500` without `--node_rank`, or a fixed `--nnodes=4`.

**When it stays quiet.** With a dynamic backend, for a range of one number, and where options may be hidden.

**Evidence.** torch 2.13, run: one agent of `--nnodes=1:2` with `--master_addr=127.0.0.1` waits; with `--nnodes=1:1`
it trains (`static_tcp_rendezvous.py` takes `max_nodes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.rendezvous import places, rendezvous
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL387",
    name="range-of-nodes-not-elastic",
    kind="launch",
    severity=Severity.WARNING,
    summary="A range of nodes with a static rendezvous, which waits for the largest number",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    no_experiment="an agent whose partners are missing waits: the experiment of DSL311",
    needs=("--nnodes",),
)

_SCRIPT = {"train.py": "print()\n"}
_STATIC = "torchrun --nnodes=%s --node_rank=$NODE_RANK --master_addr=$MASTER_ADDR --nproc_per_node=8 train.py\n"

EXAMPLES = (
    bad("one to four", {"run.sh": _STATIC % "1:4", **_SCRIPT}, "run.sh:1"),
    bad("without a rank", {
        "run.sh": "torchrun --nnodes 2:8 --master_addr $HEAD --nproc_per_node 8 --max_restarts 3 train.py\n", **_SCRIPT,
    }, "run.sh:1"),
    good("a dynamic rendezvous", {
        "run.sh": "torchrun --nnodes=1:4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 --nproc_per_node=8 train.py\n",
        **_SCRIPT,
    }),
    good("one number", {"run.sh": _STATIC % "4:4", **_SCRIPT}),
    good("a number", {"run.sh": _STATIC % "4", **_SCRIPT}),
)  # fmt: skip

_RANGE = re.compile(r"(\d+):(\d+)")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Ranges that a static rendezvous does not know."""
    del context
    for command in doc.commands:
        how, flag = rendezvous(command), command.launcher_flag("--nnodes")
        told = flag is not None and flag.value is not None and _RANGE.fullmatch(flag.value.text or "")
        if how is None or not told or not how.is_static or how.is_standalone or int(told[1]) >= int(told[2]):
            continue
        assert flag is not None
        yield META.finding(
            flag.location,
            f"a static rendezvous knows no range: {told[2]} nodes are waited for, however many there are",
            hint="Write `--rdzv_backend=c10d --rdzv_endpoint=...` without a node rank, or one number of nodes",
            related=places(command, "--node_rank", "--master_addr"),
            severity=Severity.INFO if doc.in_docs else None,
        )
