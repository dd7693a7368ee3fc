"""**What.** A run on several machines writes its checkpoints below `/tmp` or `/dev/shm`, which each machine has for
itself.

**Why it hurts.** DeepSpeed writes one part for each rank, and the file `latest` on the first machine only: what is
written to disks of their own cannot be loaded again, and a resumed run waits for files that are elsewhere.

**Fix.** A folder on a file system that all machines share; or `"checkpoint": {"use_node_local_storage": true}` in the
config with the same machines in the same order on resume.

**When it stays quiet.** On one machine, for folders that are not known, and when the config or `--save_on_each_node`
says that local disks are meant.

**Evidence.** `DeepSpeedEngine.save_checkpoint` in `deepspeed/runtime/engine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL418",
    name="output-on-one-machine",
    kind="plan",
    severity=Severity.INFO,
    summary="A run on several machines writes its checkpoints to a disk of each machine",
    references=("https://www.deepspeed.ai/docs/config-json/#checkpoint-options",),
    depends_on_run=True,
    no_experiment="it takes two machines with disks of their own",
    needs=("--output_dir", "--save_dir", "--save", "--checkpoint_dir", "--ckpt_dir", "--work_dir", "--save_path"),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = (
    "torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $HEAD:29500 train.py"
    " --output_dir /tmp/out\n"
)

EXAMPLES = (
    bad("/tmp on two machines", {"run.sh": _RUN, **_SCRIPT}, "run.sh:1 info"),
    good("one machine", {"run.sh": "torchrun --nproc_per_node 8 train.py --output_dir /tmp/out\n", **_SCRIPT}),
    good("a shared folder", {"run.sh": _RUN.replace("/tmp", "/mnt/shared"), **_SCRIPT}),
    good("a folder that is not known", {"run.sh": _RUN.replace("/tmp", "$OUT"), **_SCRIPT}),
    good("each machine is meant to save", {"run.sh": _RUN.replace("/out", "/out --save_on_each_node True"), **_SCRIPT}),
)

_FLAGS = ("--output_dir", "--save_dir", "--save", "--checkpoint_dir", "--ckpt_dir", "--work-dir", "--save_path")
_LOCAL = ("/tmp/", "/dev/shm/", "/var/tmp/")


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """The folder of the checkpoints of a run on several machines."""
    command = plan.command
    flag = command.script_flag(*_FLAGS)
    text = flag.value.text if flag is not None and flag.value is not None else None
    if flag is None or flag.value is None or text is None or plan.nodes.get_or(1) < 2:
        return
    if not f"{text}/".startswith(_LOCAL) or command.script_flag("--save_on_each_node") is not None:
        return
    if plan.config is not None and plan.config.get("/checkpoint/use_node_local_storage"):
        return
    yield META.finding(
        flag.value.location,
        f"`{text}` is local to each of the {plan.nodes.get()} machines: the parts of a checkpoint lie on"
        " different disks",
        hint="Write to a file system that all machines share",
        related=tuple(o.labelled("the number of machines") for o in plan.nodes.origins),
    )
