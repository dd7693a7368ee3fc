"""**What.** A launcher starts another number of processes on a machine than the file around it gives the machine
GPUs: a pod or container of Kubernetes (`nvidia.com/gpu: 4`), a service of docker compose (`count`, `device_ids`),
`docker run --gpus`, a task of SkyPilot or dstack (`accelerators: A100:4`), a job of PBS (`ngpus=4`) or LSF (`-gpu
num=4`). The launcher may be in a script that the file calls. Under `dslint run`, the GPUs of this machine count.

**Why it hurts.** With more processes than GPUs the last ones stop with `invalid device ordinal`, or two share a GPU
and NCCL refuses it (`Duplicate GPU detected`). With fewer, GPUs are paid for and idle: that is an info, for a run may
spread its model.

**Fix.** Make both numbers agree; `--nproc_per_node gpu` takes what is there.

**When it stays quiet.** When one of the numbers is not known or only a default, where `CUDA_VISIBLE_DEVICES` divides
the GPUs, for a single process, and on CPUs. Jobs of Slurm are DSL320.

**Evidence.** The documentation of the device plugin and of docker compose: a container sees these devices alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.devices import VISIBLE
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.slurmjob import PER_NODE, gpus_per_node, machine_gpus
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.calls import place_in_script, place_in_text, started_by, stated_processes

META = RuleMeta(
    code="DSL360",
    name="gpus-vs-processes",
    kind="launch",
    severity=Severity.WARNING,
    summary="Another number of processes on a machine than its pod, container or job has GPUs",
    depends_on_run=True,
    no_experiment="which devices a container or job sees is up to the cluster, and the source is its documentation",
    references=(
        "https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",
        "https://docs.docker.com/compose/how-tos/gpu-support/",
        "https://docs.skypilot.co/en/latest/reference/yaml-spec.html",
    ),
    needs=("MACHINE_GPUS", "PBSJOB_GPUS_PER_NODE", "BSUB_GPUS_PER_HOST"),
)

_SCRIPT = {"train.py": "print()\n"}
_POD = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  template:
    spec:
      containers:
        - name: main
          image: team/train:1
          command: %s
          resources:
            limits:
              nvidia.com/gpu: %s
"""
_COMPOSE = """\
services:
  train:
    build: .
    ipc: host
    command: %s
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              %s
              capabilities: [gpu]
"""
_SKY = "resources:\n  accelerators: %s\nrun: |\n  %s\n"
_RUN = "torchrun --standalone --nproc_per_node %s train.py"


def _words(count: int) -> str:
    return "[" + ", ".join(f'"{word}"' for word in (_RUN % count).split()) + "]"


EXAMPLES = (
    bad("a pod", {"job.yaml": _POD % (_words(8), 4), **_SCRIPT}, "job.yaml:11 warning"),
    bad("a shell in a pod, a text", {"job.yaml": _POD % (f'["bash", "-c", "{_RUN % 8}"]', '"4"'), **_SCRIPT},
        "job.yaml:11 warning"),
    bad("devices of a service", {
        "docker-compose.yml": _COMPOSE % ("bash run.sh", 'device_ids: ["0", "1", "2", "3"]'),
        "run.sh": f"#!/bin/bash\n{_RUN % 8}\n",
        **_SCRIPT,
    }, "docker-compose.yml:5 warning"),
    bad("the count of a service", {"compose.yaml": _COMPOSE % (_RUN % 4, "count: 2"), **_SCRIPT},
        "compose.yaml:5 warning"),
    bad("SkyPilot", {"task.yaml": _SKY % ("A100:4", "torchrun --nproc_per_node=8 train.py"), **_SCRIPT},
        "task.yaml:4 warning"),
    bad("half of SkyPilot's idle", {"task.yaml": _SKY % ("{H100: 8}", "deepspeed --num_gpus 4 train.py"), **_SCRIPT},
        "task.yaml:4 info"),
    bad("docker run", {"run.sh": f"docker run --ipc=host --gpus '\"device=0,1\"' image {_RUN % 4}\n", **_SCRIPT},
        "run.sh:1 warning"),
    bad("PBS", {"job.pbs.sh": f"#!/bin/bash\n#PBS -l select=1:ncpus=32:ngpus=4\n{_RUN % 8}\n", **_SCRIPT},
        "job.pbs.sh:3 warning"),
    bad("LSF", {"job.sh": f'#!/bin/bash\n#BSUB -n 1\n#BSUB -gpu "num=2:mode=shared"\n{_RUN % 4}\n', **_SCRIPT},
        "job.sh:4 warning"),
    good("as many", {"job.yaml": _POD % (_words(4), 4), **_SCRIPT}),
    good("a service with as many", {
        "docker-compose.yml": _COMPOSE % ("bash run.sh", 'device_ids: ["0", "1", "2", "3"]'),
        "run.sh": f"#!/bin/bash\n{_RUN % 4}\n",
        **_SCRIPT,
    }),
    good("what is there", {"job.yaml": _POD % (_words(0).replace('"0"', '"gpu"'), 4), **_SCRIPT}),
    good("the variable of SkyPilot", {
        "task.yaml": _SKY % ("A100:4", "torchrun --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE train.py"), **_SCRIPT,
    }),
    good("all GPUs of a service", {"compose.yaml": _COMPOSE % (_RUN % 4, "count: all"), **_SCRIPT}),
    good("no GPU at all", {"compose.yaml": "services:\n  t:\n    command: " + _RUN % 4 + "\n", **_SCRIPT}),
    good("one process", {"job.yaml": _POD % (_words(1), 4), **_SCRIPT}),
    good("chunks of PBS that may share a node", {
        "job.sh": f"#!/bin/bash\n#PBS -l select=2:ncpus=32:ngpus=4\n{_RUN % 8}\n", **_SCRIPT,
    }),
)  # fmt: skip


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Processes of a machine beside its GPUs."""
    del context
    for command in started_by(doc):
        if command.launcher not in (*PER_NODE, "srun", "mpirun") or VISIBLE in command.env or _is_on_cpus(command):
            continue
        gpus, count = machine_gpus(command), stated_processes(command)
        if not gpus_per_node(command).is_absent or not gpus.is_known or count is None or count in (1, gpus.get()):
            continue
        more = count > gpus.get()
        effect = "the last ones have no device" if more else f"{gpus.get() - count} of them stay idle"
        place = place_in_text(command)
        yield META.finding(
            place,
            f"{count} processes on a machine with {gpus.get()} GPU{'s' if gpus.get() > 1 else ''}: {effect}",
            hint="Make both numbers agree",
            related=(*gpus.origins, *place_in_script(command), *command.processes_per_node.origins),
            severity=Severity.WARNING if more and not doc.in_docs else Severity.INFO,
            facts={"processes": count, "gpus": gpus.get()},
        )


def _is_on_cpus(command: LaunchCommand) -> bool:
    """The command asks for CPUs: several processes need no device each."""
    backend = command.script_flag("--backend", "--dist_backend", "--dist-backend")
    told = backend is not None and backend.value is not None and backend.value.text == "gloo"
    return told or command.launcher_flag("--cpu", "--use_cpu") is not None
