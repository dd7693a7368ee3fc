"""A number of processes that the machines of an accelerate config cannot share equally.

**What.** `num_processes` counts all processes of all machines. Each machine starts `num_processes // num_machines`.

**Why it hurts.** The rest is silently ignored: 3 processes on 2 machines are 2, and GPUs stay idle. A number
below that of the machines starts none.

**Fix.** Write GPUs of one machine x machines.

**When it stays quiet.** One machine; numbers that a flag of the command replaces or that cannot be read.

**Evidence.** `accelerate/utils/launch.py` (`prepare_deepspeed_cmd_env`), `prepare_multi_gpu_env`, run with such a file.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.words import counted
from dslint.model.accelerate.view import view_of
from dslint.model.context import Context
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL186",
    name="accelerate-processes-indivisible",
    kind="accelerate",
    severity=Severity.WARNING,
    summary="`num_processes` of an accelerate config is not a multiple of `num_machines`",
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
main_process_ip: 10.0.0.1
main_process_port: 29500
num_machines: 2
num_processes: 15
deepspeed_config:
  deepspeed_multinode_launcher: standard
  zero_stage: 2
"""
_RUN = "accelerate launch --config_file two.yaml --machine_rank $RANK train.py\n"

EXAMPLES = (
    bad("15 on 2 machines are 14", {"two.yaml": _FILE, "run.sh": _RUN}, "two.yaml:6"),
    bad("fewer than machines", {"two.yaml": _FILE.replace("15", "1")}, "two.yaml:6"),
    good("8 on each", {"two.yaml": _FILE.replace("15", "16"), "run.sh": _RUN}),
    good("a flag says another number", {
        "two.yaml": _FILE,
        "run.sh": _RUN.replace("train.py", "--num_processes 16 train.py"),
    }),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Divide."""
    view = view_of(doc, context)
    machines, processes = view.count("num_machines", 1), view.stated("num_processes")
    total = processes.get_or(0)
    if not view.starter.is_known or machines.get_or(1) < 2 or isinstance(total, bool) or not isinstance(total, int):
        return
    nodes = machines.get()
    if total < 1 or total % nodes == 0:
        return
    each = total // nodes
    yield META.finding(
        doc.value("/num_processes"),
        f"{counted(total, 'process')} cannot be shared equally by {nodes} machines: each starts {each}, "
        f"so {each * nodes} run",
        hint="Write processes per machine x machines",
        related=tuple(place.labelled(f"{nodes} machines") for place in machines.origins),
        severity=view.severity(Severity.WARNING),
        pointer="/num_processes",
    )
