"""**What.** A script writes `os.environ["CUDA_VISIBLE_DEVICES"] = "2,3,4,5"` on its main path, and the job, pod or
container in which its command starts has fewer GPUs: their numbers begin at 0.

**Why it hurts.** Of the listed devices only those that exist are visible, up to the first one that does not.
Processes beyond them stop with `invalid device ordinal`, or there is no device at all.

**Fix.** Delete the line: the job decides which GPUs there are.

**When it stays quiet.** When the devices exist, the value is computed or is under a test, or nobody says how many
GPUs there are. Fewer devices than processes are DSL249.

**Evidence.** CUDA C++ Programming Guide: devices after an invalid one are not visible; a job of Slurm with device
constraints, a pod and a container number their GPUs from 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.slurmjob import machine_gpus
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL371",
    name="devices-of-script-missing",
    kind="plan",
    severity=Severity.WARNING,
    summary="A script chooses GPUs that its job does not have",
    depends_on_run=True,
    no_experiment="which devices a job has is up to the cluster",
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables",),
    needs=("own_devices",),
)

_TRAIN = """\
import os

os.environ["CUDA_VISIBLE_DEVICES"] = "%s"

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
"""
_JOB = "#!/bin/bash\n#SBATCH --gres=gpu:%s\n\ntorchrun --standalone --nproc_per_node=%s train.py\n"
_POD = """\
apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      containers:
        - name: main
          command: ["torchrun", "--nproc_per_node=2", "train.py"]
          resources:
            limits:
              nvidia.com/gpu: 2
"""

EXAMPLES = (
    bad("GPUs 2 to 5 of four", {"job.sh": _JOB % (4, 4), "train.py": _TRAIN % "2,3,4,5"}, "train.py:3 warning"),
    bad("one that is not there", {"job.sh": _JOB % (2, 2), "train.py": _TRAIN % "1, 2"}, "train.py:3 warning"),
    bad("a pod", {"job.yaml": _POD, "train.py": _TRAIN % "4,5"}, "train.py:3 warning"),
    bad("in the main function, a single process", {
        "job.sh": (_JOB % (1, 1)).replace("torchrun --standalone --nproc_per_node=1", "python"),
        "train.py": "import os\n\n\ndef main():\n    os.environ['CUDA_VISIBLE_DEVICES'] = '3'\n    print(os.environ)\n"
        "\n\nif __name__ == '__main__':\n    main()\n",
    }, "train.py:5 warning"),
    good("GPUs that are there", {"job.sh": _JOB % (4, 4), "train.py": _TRAIN % "3,2,1,0"}),
    good("nobody says how many", {
        "run.sh": "torchrun --standalone --nproc_per_node=4 train.py\n", "train.py": _TRAIN % "2,3,4,5",
    }),
    good("under a test", {
        "job.sh": _JOB % (2, 2),
        "train.py": (_TRAIN % "2,3").replace('os.environ["CUDA', 'if "DEBUG" in os.environ:\n    os.environ["CUDA'),
    }),
)  # fmt: skip


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Devices of the script beside those of the job."""
    gpus, own = machine_gpus(plan.command), plan.own_devices
    if own is None or not gpus.is_known or max(own.numbers) < gpus.get():
        return
    listed = ",".join(map(str, own.numbers))
    has = f"{gpus.get()} GPUs, 0 to {gpus.get() - 1}" if gpus.get() > 1 else "one GPU, number 0"
    yield META.finding(
        own.location,
        f"the script chooses the GPUs {listed}, but the job that starts it has {has}: some do not exist",
        hint="Delete the line: the job decides which GPUs there are",
        related=(*gpus.origins, plan.command.location.labelled("the command that starts this run")),
        severity=Severity.INFO if plan.command.in_docs else None,
        facts={"gpus": gpus.get()},
    )
