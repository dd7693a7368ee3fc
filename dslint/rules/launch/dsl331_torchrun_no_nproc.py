"""**What.** torchrun without `--nproc_per_node`, where the file gives it several GPUs: `CUDA_VISIBLE_DEVICES=0,1,2,3`,
`#SBATCH --gres=gpu:8`, `#SBATCH --gpus-per-node=8`.

**Why it hurts.** torchrun starts one process a node. One GPU works, the others are idle and paid for, and the global
batch is a fraction of what was planned.

**Fix.** `--nproc_per_node` with the number of GPUs, or `--nproc_per_node gpu`.

**When it stays quiet.** With `PET_NPROC_PER_NODE`, when words before the script cannot be read, in documentation, when
Slurm starts several tasks on a node, and where the file does not say how many GPUs there are.

**Evidence.** torch 2.13, `torch.distributed.run`: `--nproc-per-node` defaults to 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact, absent, known
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL331",
    name="torchrun-no-nproc",
    kind="launch",
    severity=Severity.WARNING,
    summary="torchrun starts one process where the file gives it several GPUs",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    needs=("CUDA_VISIBLE_DEVICES", "SBATCH_GPUS_PER_NODE"),
)

_SCRIPT = {"train.py": "print()\n"}
_RUN = "torchrun train.py\n"

EXAMPLES = (
    bad("four GPUs", {"run.sh": "CUDA_VISIBLE_DEVICES=0,1,2,3 " + _RUN, **_SCRIPT}, "run.sh:1"),
    bad("four GPUs, exported", {"run.sh": "export CUDA_VISIBLE_DEVICES=0,1,2,3\n" + _RUN, **_SCRIPT}, "run.sh:2"),
    bad("eight GPUs of Slurm", {"job.sh": "#!/bin/bash\n#SBATCH --gres=gpu:8\n\n" + _RUN, **_SCRIPT}, "job.sh:4"),
    good("the number is said", {
        "run.sh": "CUDA_VISIBLE_DEVICES=0,1,2,3 " + _RUN.replace("train", "--nproc_per_node 4 train"), **_SCRIPT,
    }),
    good("torchrun's own variable says it", {
        "run.sh": "export PET_NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3\n" + _RUN, **_SCRIPT,
    }),
    good("words that cannot be read", {
        "run.sh": "CUDA_VISIBLE_DEVICES=0,1,2,3 " + _RUN.replace("train", "$DISTRIBUTED_ARGS train"), **_SCRIPT,
    }),
    good("one GPU, and nobody says how many", {"run.sh": "CUDA_VISIBLE_DEVICES=3 " + _RUN + _RUN, **_SCRIPT}),
    good("an example in documentation", {"README.md": f"```bash\nCUDA_VISIBLE_DEVICES=0,1 {_RUN}```\n", **_SCRIPT}),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """One process, several GPUs."""
    del context
    if doc.in_docs:
        return
    for command in doc.commands:
        if command.launcher != "torchrun" or command.outer not in ("", "srun") or command.may_hide_launcher_flags():
            continue
        stated = command.launcher_flag("--nproc_per_node", "--local_ranks_filter") or command.script is None
        if stated or not command.variable("PET_NPROC_PER_NODE").is_absent or _several_tasks(command):
            continue
        gpus = _gpus(command)
        if gpus.get_or(1) > 1:
            yield META.finding(
                command.location,
                f"torchrun without `--nproc_per_node` starts 1 process, but has {gpus.get()} GPUs:"
                f" {gpus.get() - 1} stay idle",
                hint=f"Add `--nproc_per_node {gpus.get()}`",
                related=tuple(place.labelled(f"{gpus.get()} GPUs") for place in gpus.origins),
            )


def _gpus(command: LaunchCommand) -> Fact[int]:
    """The GPUs that the file gives the command; a variable of the shell wins over the directive."""
    devices = command.variable("CUDA_VISIBLE_DEVICES")
    if not devices.is_absent:
        ids = devices.get_or("").split(",")
        if all(part.strip().isdecimal() for part in ids):
            return known(len(set(ids)), *devices.origins[:1])
        return absent()
    asked = command.env.get("SBATCH_GPUS_PER_NODE", absent())
    return known(int(asked.get()), *asked.origins) if asked.get_or("").isdecimal() else absent()


def _several_tasks(command: LaunchCommand) -> bool:
    """Slurm may start the launcher itself once for each GPU."""
    names = ("SBATCH_NTASKS", "SBATCH_NTASKS_PER_NODE")
    directives = [command.env[name] for name in names if name in command.env]
    own = [flag for flag in command.outer_flags if "ntasks" in flag.name or flag.name == "-n"]
    return bool(own) or any(fact.get_or("0") != "1" for fact in directives)
