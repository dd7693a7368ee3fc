"""`main_process_port: 0` in an accelerate config for several machines.

**What.** Port 0 means "any free port", and every machine draws one of its own.

**Why it hurts.** The machine with rank 0 listens on one port, the others call another: they never meet and the run
hangs until the rendezvous times out. On one machine 0 is right.

**Fix.** A fixed port, the same for all machines, such as the default 29500 (safe fix).

**When it stays quiet.** One machine; a flag of the command that passes another port or cannot be read; a missing
port, which is 29500 everywhere.

**Evidence.** `accelerate/utils/launch.py` (`prepare_deepspeed_cmd_env`) calls `get_free_port()`; run twice, it gives
two ports.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.model.accelerate.view import view_of
from dslint.model.context import Context
from dslint.model.yamledits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL189",
    name="accelerate-port-zero",
    kind="accelerate",
    severity=Severity.ERROR,
    summary="Each machine draws a port of its own: `main_process_port: 0` with several machines",
    fix="safe",
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
main_process_ip: 10.0.0.1
main_process_port: 0
num_machines: 2
num_processes: 16
deepspeed_config:
  deepspeed_multinode_launcher: standard
  zero_stage: 2
"""

EXAMPLES = (
    bad("two machines", {"two.yaml": _FILE}, "two.yaml:4", fixed={"two.yaml": _FILE.replace(": 0\n", ": 29500\n")}),
    good("one machine", {"one.yaml": _FILE.replace("num_machines: 2", "num_machines: 1")}),
    good("the default port", {"two.yaml": _FILE.replace("main_process_port: 0\n", "")}),
    good("a flag says another", {
        "two.yaml": _FILE,
        "run.sh": "accelerate launch --config_file two.yaml --machine_rank $R --main_process_port 29501 train.py\n",
    }),
)  # fmt: skip

_KEY = "/main_process_port"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Machines that torchrun starts, and their port."""
    view = view_of(doc, context)
    machines, port = view.count("num_machines", 1), view.stated("main_process_port")
    if machines.get_or(1) < 2 or view.starter.get_or("") != "torchrun" or not port.is_known:
        return
    if port.get() != 0 or isinstance(port.get(), bool):
        return
    edits = replace_value(doc, _KEY, "29500")
    yield META.finding(
        doc.value(_KEY),
        f"`main_process_port: 0` lets each of {machines.get()} machines choose its own port: they never meet",
        hint="Write one port for all machines, such as 29500",
        fix=Fix("Write the default port, 29500", edits) if edits else None,
        severity=view.severity(Severity.ERROR),
        pointer=_KEY,
    )
