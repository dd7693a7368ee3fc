"""**What.** The config of `accelerate launch` and the environment of the command speak of different GPUs:
`num_processes` exceeds the number that `CUDA_VISIBLE_DEVICES` shows, or `gpu_ids` replaces it.

**Why it hurts.** Processes beyond the last visible GPU stop with `invalid device ordinal`, or two share one.
`gpu_ids` is written over the variable: the run takes the GPUs of the file, on which another one may work.

**Fix.** Pass `--num_processes` and `--gpu_ids` with the command, or `gpu_ids: all` in the file.

**When it stays quiet.** When the command passes the number or the GPUs itself, when a number is not known, on CPUs,
and when both agree.

**Evidence.** `accelerate/utils/launch.py` (`prepare_multi_gpu_env` writes `CUDA_VISIBLE_DEVICES` from `gpu_ids`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.devices import Visible, visible_devices
from dslint.model.plan.runplan import RunPlan
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL417",
    name="accelerate-devices-differ",
    kind="plan",
    severity=Severity.WARNING,
    summary="The config of `accelerate launch` and `CUDA_VISIBLE_DEVICES` of the command name different GPUs",
    versions=("accelerate>=0.20",),
    depends_on_run=True,
    no_experiment="which GPU a process gets shows on a machine with several GPUs only",
    needs=("accelerate",),
)

_FILE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_machines: 1\n"
    "num_processes: 4\n"
)
_RUN = "CUDA_VISIBLE_DEVICES=0,1 accelerate launch --config_file acc.yaml train.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("four processes, two GPUs", {"run.sh": _RUN, "acc.yaml": _FILE, **_SCRIPT}, "acc.yaml:5 warning"),
    bad("the file has GPUs of its own", {
        "run.sh": _RUN, "acc.yaml": _FILE.replace("4", "2") + 'gpu_ids: "2,3"\n', **_SCRIPT,
    }, "acc.yaml:6 warning"),
    good("as many", {"run.sh": _RUN, "acc.yaml": _FILE.replace("4", "2") + "gpu_ids: all\n", **_SCRIPT}),
    good("the command says it", {
        "run.sh": _RUN.replace("--config", "--num_processes 2 --config"), "acc.yaml": _FILE, **_SCRIPT,
    }),
    good("the same GPUs", {
        "run.sh": _RUN, "acc.yaml": _FILE.replace("4", "2") + "gpu_ids: 0,1\n", **_SCRIPT,
    }),
    good("on CPUs", {
        "run.sh": _RUN, "acc.yaml": _FILE.replace("MULTI_GPU", "MULTI_CPU") + "use_cpu: true\n", **_SCRIPT,
    }),
    good("two machines with two each", {
        "run.sh": _RUN,
        "acc.yaml": _FILE.replace("num_machines: 1", "num_machines: 2\nmachine_rank: 0\nmain_process_ip: a\n"
                                  "main_process_port: 29501\nrdzv_backend: c10d"),
        **_SCRIPT,
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Compare the file with the environment of its command."""
    doc, command = plan.accelerate, plan.command
    if doc is None or command.launcher != "accelerate" or not isinstance(doc.data, dict):
        return
    visible = visible_devices(command)
    flags = ("--gpu_ids", "--cpu", "--use_cpu")
    if visible is None or doc.get("/use_cpu") is True or any(command.launcher_flag(flag) for flag in flags):
        return
    ids = doc.get("/gpu_ids")
    if isinstance(ids, str) and ids not in ("all", ""):
        if [part.strip() for part in ids.split(",")] != list(visible.ids) and visible.numbers is not None:
            yield _replaced(plan, doc, ids, visible)
        return
    per_node = plan.processes_per_node.get_or(0)
    by_file = command.launcher_flag("--num_processes") is None and doc.has("/num_processes")
    if by_file and per_node > len(visible.ids):
        yield _too_many(plan, doc, per_node, visible)


def _replaced(plan: RunPlan, doc: DataDoc, ids: str, visible: Visible) -> Finding:
    return META.finding(
        doc.value("/gpu_ids"),
        f"`gpu_ids: {ids}` overrides `CUDA_VISIBLE_DEVICES={visible.text}` of the command: the run uses GPUs {ids}",
        hint="Set `gpu_ids: all`: the variable then counts",
        related=(*visible.origins[:1], plan.command.location.labelled("the command that starts this run")),
        severity=Severity.INFO if plan.command.in_docs else None,
        pointer="/gpu_ids",
    )


def _too_many(plan: RunPlan, doc: DataDoc, count: int, visible: Visible) -> Finding:
    shown = f"{len(visible.ids)} GPU{'s' if len(visible.ids) > 1 else ''}"
    return META.finding(
        doc.value("/num_processes"),
        f"the file starts {count} processes, but `CUDA_VISIBLE_DEVICES={visible.text}` shows {shown}: the others get"
        " `invalid device ordinal`",
        hint=f"Pass `--num_processes {len(visible.ids)}` with the command",
        related=(*visible.origins[:1], plan.command.location.labelled("the command that starts this run")),
        severity=Severity.INFO if plan.command.in_docs else None,
        pointer="/num_processes",
    )
