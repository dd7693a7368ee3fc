"""A `machine_rank` in an accelerate config that no machine can have.

**What.** The ranks of the machines count from 0 to `num_machines - 1`.

**Why it hurts.** The machine with rank 0 waits for one that never comes, and the one with the wrong rank for its
place: the run hangs until the rendezvous times out.

**Fix.** 0 in the file, and `--machine_rank` on each machine.

**When it stays quiet.** One machine, where the rank is not used; a flag of the command that passes the rank or cannot
be read.

**Evidence.** `accelerate/utils/launch.py` (`prepare_deepspeed_cmd_env`) hands the rank to torchrun as `--node_rank`
without a check.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.accelerate.view import view_of
from dslint.model.context import Context
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL190",
    name="accelerate-machine-rank",
    kind="accelerate",
    severity=Severity.ERROR,
    summary="`machine_rank` of an accelerate config is not below `num_machines`",
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
machine_rank: 2
main_process_ip: 10.0.0.1
num_machines: 2
num_processes: 16
"""
_RUN = "accelerate launch --config_file two.yaml --machine_rank $RANK train.py\n"

EXAMPLES = (
    bad("counted from 1", {"two.yaml": _FILE}, "two.yaml:3"),
    good("the last rank", {"two.yaml": _FILE.replace("rank: 2", "rank: 1")}),
    good("each machine passes its own", {"two.yaml": _FILE, "run.sh": _RUN}),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Compare rank and machines."""
    view = view_of(doc, context)
    machines, rank = view.count("num_machines", 1), view.stated("machine_rank").get_or(0)
    if machines.get_or(1) < 2 or view.starter.get_or("") != "torchrun":
        return
    if isinstance(rank, bool) or not isinstance(rank, int) or 0 <= rank < machines.get():
        return
    yield META.finding(
        doc.value("/machine_rank"),
        f"`machine_rank` is {rank}, but the ranks of {machines.get()} machines are 0 to {machines.get() - 1}:"
        " they wait "
        "for each other forever",
        hint="Write 0 and pass `--machine_rank` on each machine",
        severity=view.severity(Severity.ERROR),
        pointer="/machine_rank",
    )
