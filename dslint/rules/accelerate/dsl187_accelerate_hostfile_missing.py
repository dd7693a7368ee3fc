"""Several machines in an accelerate config, started by DeepSpeed's launcher without a hostfile.

**What.** With `num_machines` above 1, accelerate hands over to the `deepspeed` command, with the launcher
`deepspeed_multinode_launcher` (default `pdsh`). That command knows the machines from a hostfile only, and accelerate
passes `--hostfile None` when `deepspeed_hostfile` is missing; the default `/job/hostfile` is not looked at then.

**Why it hurts.** `Unable to find hostfile, will proceed with training with local resources only`: the run continues
with `num_processes // num_machines` processes on **one machine only**, with a fraction of the global batch. The other
machines idle, and nothing fails.

**Fix.** `deepspeed_multinode_launcher: standard` and the command on each machine with `--machine_rank` (unsafe fix),
or `deepspeed_hostfile: <path>`.

**When it stays quiet.** The launcher `standard`; a hostfile in the file or passed as a flag, flags that cannot be
read. Where no command of the project names the file it is a warning.

**Evidence.** Run with accelerate 1.15 and DeepSpeed 0.19.8, for `pdsh`, `slurm`, `nossh` alike: a config of 2
machines x 2 processes starts 2 processes with `WORLD_SIZE=2`. https://github.com/huggingface/accelerate/issues/2601,
https://github.com/deepspeedai/DeepSpeedExamples/issues/381
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.accelerate.view import SECTION, AccelerateView, view_of
from dslint.model.context import Context
from dslint.model.yamledits import insert_member, replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL187",
    name="accelerate-hostfile-missing",
    kind="accelerate",
    severity=Severity.ERROR,
    summary="An accelerate config for several machines that runs on one machine only, for want of a hostfile",
    fix="unsafe",
    references=(
        "https://github.com/huggingface/accelerate/issues/2601",
        "https://github.com/deepspeedai/DeepSpeedExamples/issues/381",
    ),
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
machine_rank: 0
main_process_ip: 10.0.0.1
main_process_port: 29500
num_machines: 2
num_processes: 16
deepspeed_config:
  # split everything
  zero_stage: 3
  zero3_save_16bit_model: true
"""
_STANDARD = _FILE + "  deepspeed_multinode_launcher: standard\n"
_RUN = "accelerate launch --config_file two.yaml --machine_rank $RANK train.py\n"

EXAMPLES = (
    bad("the default launcher", {"two.yaml": _FILE, "run.sh": _RUN}, "two.yaml:6 error",
        fixed={"two.yaml": _STANDARD}),
    bad("a launcher by name", {"two.yaml": _STANDARD.replace("standard", "openmpi"), "run.sh": _RUN},
        "two.yaml:12 error", fixed={"two.yaml": _STANDARD}),
    bad("no command is known", {"two.yaml": _FILE}, "two.yaml:6 warning"),
    good("torchrun on each machine", {"two.yaml": _STANDARD, "run.sh": _RUN}),
    good("a hostfile in the file", {"two.yaml": _FILE + "  deepspeed_hostfile: hosts\n", "run.sh": _RUN}),
    good("a hostfile from the command", {
        "two.yaml": _FILE,
        "run.sh": _RUN.replace("train.py", "--deepspeed_hostfile hosts train.py"),
    }),
    good("one machine", {"one.yaml": _FILE.replace("num_machines: 2", "num_machines: 1")}),
    good("torchrun starts other types", {
        "ddp.yaml": _FILE[: _FILE.index("deepspeed_config")].replace("DEEPSPEED", "MULTI_GPU"),
    }),
)  # fmt: skip

_LAUNCHER = f"{SECTION}/deepspeed_multinode_launcher"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Machines, launcher, hostfile."""
    view = view_of(doc, context)
    machines = view.count("num_machines", 1)
    starter = view.starter.get_or("torchrun")
    if machines.get_or(1) < 2 or not view.is_deepspeed or starter == "torchrun":
        return
    if not view.fact("deepspeed_hostfile").is_absent:
        return
    pointer = _LAUNCHER if doc.has(_LAUNCHER) else "/num_machines"
    run = _what_runs(view, machines.get())
    yield META.finding(
        view.key(pointer),
        f"{machines.get()} machines, launcher `{starter}`, but no `deepspeed_hostfile`: DeepSpeed {run} on one"
        " machine only",
        hint="Set `deepspeed_multinode_launcher: standard` and run the command on each machine, or name a hostfile",
        related=tuple(p.labelled(f"{machines.get()} machines") for p in machines.origins if p != view.key(pointer)),
        fix=_fix(view),
        severity=view.severity(Severity.ERROR, Severity.WARNING),
        pointer=pointer,
        facts={"launcher": starter},
    )


def _what_runs(view: AccelerateView, machines: int) -> str:
    total = view.count("num_processes", 0).get_or(0)
    return f"starts {total // machines} of {total} processes" if total >= machines else "starts"


def _fix(view: AccelerateView) -> Fix | None:
    doc = view.doc
    if doc.has(_LAUNCHER):
        edits = replace_value(doc, _LAUNCHER, "standard")
    else:
        edits = insert_member(doc, SECTION, "deepspeed_multinode_launcher", "standard")
    return Fix("Set `deepspeed_multinode_launcher: standard`", edits, Safety.UNSAFE) if edits else None
