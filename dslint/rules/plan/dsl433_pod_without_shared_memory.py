"""A container of Kubernetes trains with several processes in the shared memory that a pod has by default.

**What.** A manifest (Job, Pod, PyTorchJob, MPIJob, JobSet, Deployment ...) starts several training processes in a
container that asks for GPUs, and no volume is mounted at its `/dev/shm`; also one whose `volumes` have
memory that is mounted elsewhere. It is a warning where the loaders of the script have workers, also with one process
in each of several pods, and from eight processes on.

**Why it hurts.** The runtime of a pod gives it 64 MB of `/dev/shm`. Batches of `DataLoader` workers go through it, and
so does what NCCL hands from rank to rank where GPUs cannot reach each other directly. The run stops in the middle:
`DataLoader worker is killed by signal: Bus error`, or `NCCL WARN Call to posix_fallocate failed: No space left on
device`. No field of a pod says how large it is, only a volume does.

**Fix.** A volume `emptyDir: {medium: Memory}` under `volumes`, and `mountPath: /dev/shm` for it under `volumeMounts`.

**When it stays quiet.** One process in all; a container that asks for no GPU; with `hostIPC`, and where a field or an
annotation speaks of shared memory; templates, and bases of kustomize that an overlay patches. Fewer processes without
workers are an information: they may get along with 64 MB.

**Evidence.** https://github.com/kubeflow/pipelines/issues/6510; the manuals of PyTorch ("shm size") and NCCL
("Troubleshooting"), which ask for more; containerd's default of 64 MB (`oci/mounts.go`, `size=65536k`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.model.plan.sharedmemory import sharing
from dslint.rules.base import RuleMeta, bad, good

# NCCL takes 7 to 10 MB for each of the processes of a machine, so that these fill 64 MB alone.
_FILLS_IT = 8
META = RuleMeta(
    code="DSL433",
    name="pod-without-shared-memory",
    kind="plan",
    severity=Severity.INFO,
    depends_on_run=True,
    summary="several processes in a pod with GPUs and the 64 MB of shared memory that a pod has by default",
    no_experiment="it takes a cluster of Kubernetes, and the size of its shared memory is in the source of containerd",
    references=(
        "https://kubernetes.io/docs/concepts/storage/volumes/#emptydir",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        "https://github.com/kubeflow/pipelines/issues/6510",
    ),
    needs=("container",),
)


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Runs of several processes in a container at whose `/dev/shm` nothing is mounted."""
    box = plan.container
    if box is None or not box.is_pod:
        return
    has_workers, count = box.workers.is_known, sharing(plan)
    if count < 2 and not (has_workers and plan.world_size.get_or(0) > 1):
        return
    workers = tuple(place.labelled("the workers of each process") for place in box.workers.origins[:1])
    yield META.finding(
        box.place,
        "nothing is mounted at `/dev/shm`, which has only 64 MB in a pod: workers and ranks may stop with a bus error",
        hint="Mount a volume `emptyDir: {medium: Memory}` at `/dev/shm`",
        related=(plan.command.location.labelled("the processes"), *workers),
        severity=Severity.WARNING if has_workers or count >= _FILLS_IT else None,
    )


_SCRIPT = {"train.py": "print()\n"}
_LOADER = """\
from torch.utils.data import DataLoader

from data import made


def main():
    for batch in DataLoader(made(), batch_size=16, %s):
        print(batch)


main()
"""
_JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  template:
    spec:
%s      containers:
        - name: train
          image: team/train:1
          command: ["torchrun", "--standalone", "--nproc_per_node=%d", "train.py"]
          resources:
            limits:
              nvidia.com/gpu: %d
          volumeMounts:
            - name: data
              mountPath: %s
      volumes:
        - name: data
          %s
"""
_CLAIM = "persistentVolumeClaim: {claimName: data}"
_PYTORCHJOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: train
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 4
      template:
        spec:
          containers:
            - name: pytorch
              image: team/train:1
              args: ["torchrun", "--nnodes=4", "--nproc_per_node=1", "train.py"]
              resources:
                limits: {nvidia.com/gpu: 1}
%s"""
_MPIJOB = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: train
spec:
  slotsPerWorker: 4
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
            - name: launcher
              image: team/train:1
              command: ["mpirun", "-np", "8", "python", "train.py"]
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: worker
              image: team/train:1
              resources:
                limits: {nvidia.com/gpu: 4}
%s"""
_MOUNTED = """\
              volumeMounts:
                - {name: dshm, mountPath: /dev/shm}
          volumes:
            - {name: dshm, emptyDir: {medium: Memory}}
"""


EXAMPLES = (
    bad("a job of Kubernetes", {
        "job.yaml": _JOB % ("", 8, 8, "/data", _CLAIM), **_SCRIPT,
    }, "job.yaml:15 warning"),
    bad("a memory volume that is mounted elsewhere", {
        "job.yaml": _JOB % ("", 4, 4, "/shm", "emptyDir: {medium: Memory}"), "train.py": _LOADER % "num_workers=8",
    }, "job.yaml:15 warning"),
    bad("few processes of a pod, and no workers", {
        "job.yaml": _JOB % ("", 2, 2, "/data", _CLAIM), **_SCRIPT,
    }, "job.yaml:15 info"),
    bad("one process in each pod, with workers", {
        "job.yaml": _PYTORCHJOB % "", "train.py": _LOADER % "num_workers=8",
    }, "job.yaml:13 warning"),
    bad("the workers of mpirun", {
        "job.yaml": _MPIJOB % "", "train.py": _LOADER % "num_workers=4",
    }, "job.yaml:21 warning"),
    good("memory at its place", {
        "job.yaml": _JOB % ("", 8, 8, "/dev/shm", "emptyDir: {medium: Memory}"), **_SCRIPT,
    }),
    good("memory at its place, for several pods", {
        "job.yaml": _PYTORCHJOB % _MOUNTED, "mpi.yaml": _MPIJOB % _MOUNTED, "train.py": _LOADER % "num_workers=8",
    }),
    good("the memory of the machine", {
        "job.yaml": _JOB % ("      hostIPC: true\n", 8, 8, "/data", _CLAIM), **_SCRIPT,
    }),
    good("one process in each pod, without workers", {"job.yaml": _PYTORCHJOB % "", **_SCRIPT}),
    good("a base that is patched", {
        "job.yaml": _JOB % ("", 8, 8, "/data", _CLAIM), **_SCRIPT,
        "kustomization.yaml": "resources: [job.yaml]\npatches:\n  - path: shm.yaml\n",
    }),
)  # fmt: skip
