"""Several machines in an accelerate config and no address at which they meet.

**What.** Each machine starts its own processes, which meet at `main_process_ip`. Without it accelerate passes the
text `None` as the host.

**Why it hurts.** `The IPv6 network addresses of (None, 29500) cannot be retrieved`, again and again: every machine
waits for the others and nothing starts.

**Fix.** `main_process_ip: <address of the machine with rank 0>`, or `--main_process_ip` in the command.

**When it stays quiet.** One machine; launchers of DeepSpeed, which have a hostfile; a flag of the command that passes
the address or cannot be read; a rendezvous of another kind (`rdzv_backend`). Where no command of the project names
the file it is a warning.

**Evidence.** `accelerate/utils/launch.py` (`prepare_deepspeed_cmd_env`), `prepare_multi_gpu_env`; run with accelerate
1.15: the command was stopped after 25 s of waiting.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.accelerate.view import view_of
from dslint.model.context import Context
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL188",
    name="accelerate-address-missing",
    kind="accelerate",
    severity=Severity.ERROR,
    summary="An accelerate config for several machines without the address at which they meet",
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 2
num_processes: 16
deepspeed_config:
  deepspeed_multinode_launcher: standard
  zero_stage: 2
"""
_DDP = _FILE[: _FILE.index("deepspeed_config")].replace("DEEPSPEED", "MULTI_GPU")
_RUN = "accelerate launch --config_file two.yaml --machine_rank $RANK train.py\n"
_WITH = _RUN.replace("train.py", "--main_process_ip $MASTER train.py")

EXAMPLES = (
    bad("nobody says it", {"two.yaml": _FILE, "run.sh": _RUN}, "two.yaml:3 error"),
    bad("null", {"two.yaml": _FILE + "main_process_ip:\n", "run.sh": _RUN}, "two.yaml:8 error"),
    bad("data parallelism", {"two.yaml": _DDP, "run.sh": _RUN}, "two.yaml:3 error"),
    bad("no command is known", {"two.yaml": _FILE}, "two.yaml:3 warning"),
    good("the command passes it", {"two.yaml": _FILE, "run.sh": _WITH}),
    good("the file says it", {"two.yaml": _FILE + "main_process_ip: 10.0.0.1\n", "run.sh": _RUN}),
    good("one machine", {"one.yaml": _DDP.replace("num_machines: 2", "num_machines: 1"), "run.sh": _RUN}),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Machines that torchrun starts, and their address."""
    view = view_of(doc, context)
    machines = view.count("num_machines", 1)
    if machines.get_or(1) < 2 or view.starter.get_or("") != "torchrun":
        return
    # A file cannot replace the backend: the command has a default of its own.
    if not view.fact("main_process_ip").is_absent or not view.flag("rdzv_backend").is_absent:
        return
    pointer = "/main_process_ip" if doc.has("/main_process_ip") else "/num_machines"
    yield META.finding(
        view.key(pointer),
        f"{machines.get()} machines and no `main_process_ip`: each waits at a host named `None`, and none starts",
        hint="Set `main_process_ip` to the address of the machine with rank 0, or pass `--main_process_ip`",
        severity=view.severity(Severity.ERROR, Severity.WARNING),
        pointer=pointer,
    )
