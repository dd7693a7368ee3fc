"""A command that replaces `num_machines` of an accelerate config and leaves its `num_processes`.

**What.** `num_processes` counts the processes of all machines together. The file says it for its own `num_machines`,
and the command passes `--num_machines` with another number, and no `--num_processes`.

**Why it hurts.** The processes of the file are shared by more machines: with `num_processes: 8` for one machine and
`--num_machines 2` each machine starts 4, and half of all GPUs idle. With fewer machines each starts more processes
than it has GPUs.

**Fix.** Pass both: `--num_machines 2 --num_processes 16`.

**When it stays quiet.** Where the numbers agree, are not known, or come out as many processes a machine as before; on
CPUs.

**Evidence.** `prepare_multi_gpu_env` of accelerate 1.15: `nproc_per_node` is `num_processes // num_machines`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.accelerate.view import view_of
from dslint.model.context import Context
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL362",
    name="accelerate-machines-of-flag",
    kind="accelerate",
    severity=Severity.WARNING,
    summary="`--num_machines` replaces that of an accelerate config, whose `num_processes` is for other machines",
    depends_on_run=True,
    no_experiment="which GPUs idle shows on several machines only",
    references=("https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py",),
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
main_process_ip: 10.0.0.1
main_process_port: 29500
num_machines: %s
num_processes: %s
"""
_RUN = "accelerate launch --config_file acc.yaml --machine_rank $RANK %strain.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("two machines instead of one", {
        "acc.yaml": _FILE % (1, 8), "run.sh": _RUN % "--num_machines 2 ", **_SCRIPT,
    }, "acc.yaml:6 warning"),
    bad("one instead of four", {
        "acc.yaml": _FILE % (4, 32), "run.sh": _RUN % "--num_machines=1 ", **_SCRIPT,
    }, "acc.yaml:6 warning"),
    bad("a variable with a number", {
        "acc.yaml": _FILE % (2, 16), "run.sh": "NODES=4\n" + _RUN % "--num_machines $NODES ", **_SCRIPT,
    }, "acc.yaml:6 warning"),
    bad("a file without machines", {
        "acc.yaml": (_FILE % (1, 4)).replace("num_machines: 1\n", ""), "run.sh": _RUN % "--num_machines 4 ", **_SCRIPT,
    }, "acc.yaml:5 warning"),
    good("both", {
        "acc.yaml": _FILE % (1, 8), "run.sh": _RUN % "--num_machines 2 --num_processes 16 ", **_SCRIPT,
    }),
    good("the same number", {"acc.yaml": _FILE % (2, 16), "run.sh": _RUN % "--num_machines 2 ", **_SCRIPT}),
    good("a number that is not known", {"acc.yaml": _FILE % (1, 8), "run.sh": _RUN % "--num_machines $N ", **_SCRIPT}),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Compare the machines of the command with those of the file."""
    view = view_of(doc, context)
    total, told = view.stated("num_processes").get_or(0), view.count("num_machines", 1)
    own = doc.get("/num_machines", 1)
    if view.flag("num_machines").is_absent or not view.starter.is_known or not told.is_known:
        return
    if type(total) is not int or type(own) is not int or total < 2 or own < 1 or told.get() in (own, 0):
        return
    before, each = total // own, total // told.get()
    machines = f"{told.get()} machines" if told.get() > 1 else "1 machine"
    yield META.finding(
        doc.value("/num_processes"),
        f"`num_processes: {total}` means {before} for each of {own} in this file, but `--num_machines` makes it"
        f" {machines} with {each} each",
        hint=f"Pass `--num_processes {before * told.get()}` as well",
        related=told.origins,
        severity=view.severity(Severity.WARNING),
        pointer="/num_processes",
    )
