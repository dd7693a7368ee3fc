"""A pod that is meant for nodes with GPUs asks for none.

**What.** A manifest of Kubernetes (a Job, PyTorchJob, MPIJob, JobSet, Pod, or the runtime of a TrainJob) starts a
training and puts its pods on nodes with GPUs, by a toleration of `nvidia.com/gpu` or a `nodeSelector`, and no container
has `nvidia.com/gpu` among its resources.

**Why it hurts.** The device plugin shows a container only the GPUs that it asks for. The processes find none: they stop
in `init_process_group("nccl")`, or train on the CPU with gloo on a node whose GPUs stay idle. Kubeflow Trainer takes
the number of processes of a node from this number, too, and starts one.

**Fix.** `resources: {limits: {nvidia.com/gpu: 8}}` in the container, or `resourcesPerNode` of the TrainJob.

**When it stays quiet.** For pods without a sign of GPUs, with any device or claim among the resources of a container,
with `NVIDIA_VISIBLE_DEVICES`, a `runtimeClassName` or a privileged container; for templates, for
bases of kustomize that an overlay patches, for parts of a GPU that an annotation asks for, for variables of a
ConfigMap, for nodes and scripts without GPUs, and for a TrainJob whose runtime is not in the project.

**Evidence.** The manual of Kubernetes ("Schedule GPUs"): a GPU is requested in `limits`.
https://github.com/NVIDIA/aicr/issues/2280
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL432",
    name="pod-without-gpu",
    kind="plan",
    severity=Severity.WARNING,
    summary="A pod that is meant for nodes with GPUs asks for none",
    depends_on_run=True,
    no_experiment="it takes a cluster of Kubernetes; which devices a container sees is in its manual",
    references=("https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",),
    needs=("no_gpu",),
)


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Pods that see no device."""
    pod = plan.no_gpu
    if pod is None:
        return
    yield META.finding(
        plan.command.location,
        "its pod is meant for nodes with GPUs, but no container asks for `nvidia.com/gpu`: it sees none",
        hint="Add `resources: {limits: {nvidia.com/gpu: N}}` to the container",
        related=(pod.sign,),
        severity=Severity.INFO if plan.command.in_docs else None,
        facts={"kind": pod.job},
    )


_TAINT = """\
      tolerations:
        - key: nvidia.com/gpu
          operator: Exists
"""
_POOL = "      nodeSelector:\n        cloud.google.com/gke-accelerator: nvidia-h100-80gb\n"
_LIMITS = "          resources:\n            limits:\n              %s\n"
_JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  template:
    spec:
%s      containers:
        - name: main
          image: team/train:1
          command: ["torchrun", "--nproc_per_node=8", "train.py"]
%s"""
_REPLICAS = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: train
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          tolerations:
            - key: nvidia.com/gpu
              operator: Exists
          containers:
            - name: pytorch
              image: team/train:1
              command:
                - torchrun
                - train.py
"""
_MPI = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: train
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
            - name: launcher
              image: team/train:1
              command: ["mpirun", "-np", "16", "python", "train.py"]
    Worker:
      replicas: 2
      template:
        spec:
          tolerations:
            - key: nvidia.com/gpu
              operator: Exists
          containers:
            - name: worker
              image: team/train:1
              resources:
                limits:
                  %s
"""
_OF_RUNTIME = """\
                      resources:
                        limits:
                          nvidia.com/gpu: 8
"""
_TRAINJOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: lm
spec:
  runtimeRef:
    name: torch-h100
  trainer:
    numNodes: 2
%s    command: [torchrun, train.py]
"""
_RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata:
  name: torch-h100
spec:
  mlPolicy:
    numNodes: 1
    torch: {}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            spec:
              template:
                spec:
                  nodeSelector:
                    node.kubernetes.io/instance-type: p5.48xlarge
                  containers:
                    - name: node
                      image: team/torch:2.9
"""
_SCRIPT = {"train.py": "import sys\nprint(sys.argv)\n"}


def _project(sign: str, resources: str = "") -> dict[str, str]:
    return {"k8s/job.yaml": _JOB % (sign, resources), **_SCRIPT}


def _kubeflow(resources: str = "", more: str = "") -> dict[str, str]:
    return {"k8s/job.yaml": _TRAINJOB % resources, "k8s/runtime.yaml": _RUNTIME + more, **_SCRIPT}


EXAMPLES = (
    bad("a toleration", _project(_TAINT), "k8s/job.yaml:14"),
    bad("a pool of nodes", _project(_POOL), "k8s/job.yaml:13"),
    bad("memory alone", _project(_POOL, _LIMITS % "memory: 64Gi"), "k8s/job.yaml:13"),
    bad("a replica of a PyTorchJob", {"job.yaml": _REPLICAS, **_SCRIPT}, "job.yaml:18"),
    bad("the runtime of a TrainJob", _kubeflow(), "k8s/job.yaml:10"),
    good("a limit", _project(_TAINT, _LIMITS % "nvidia.com/gpu: 8"), select="DSL432"),
    good("a part of a device", _project(_TAINT, _LIMITS % "nvidia.com/mig-1g.10gb: 1"), select="DSL432"),
    bad("the workers of an MPIJob", {"mpi.yaml": _MPI % "memory: 64Gi", **_SCRIPT}, "mpi.yaml:15"),
    good("the launcher of an MPIJob needs none", {
        "mpi.yaml": (_MPI % "nvidia.com/gpu: 8").replace("          tol", "          hostIPC: true\n          tol"),
        **_SCRIPT,
    }),
    good("a base that an overlay patches", {
        "k8s/base/job.yaml": _JOB % (_TAINT, ""), "k8s/base/kustomization.yaml": "resources:\n  - job.yaml\n",
        "k8s/h100/kustomization.yaml": "resources:\n  - ../base\npatches:\n  - path: gpus.yaml\n",
        "k8s/h100/gpus.yaml": "kind: Job\n", **_SCRIPT}),
    good("nodes without GPUs", _project('      nodeSelector:\n        nvidia.com/gpu.present: "false"\n')),
    good("a pool without GPUs", _project("      nodeSelector:\n        node-pool: no-gpu\n")),
    good("told to stay on the CPU", {
        "k8s/job.yaml": (_JOB % (_TAINT, "")).replace('.py"]', '.py", "--device", "cpu"]'), **_SCRIPT}),
    good("a script for the CPU", {
        **_project(_TAINT), "train.py": "import torch.distributed as dist\n\ndist.init_process_group('gloo')\n"}),
    good("no training", {
        "k8s/job.yaml": (_JOB % (_TAINT, "")).replace('"torchrun", "--nproc_per_node=8"', '"python"'),
        "train.py": "import datasets\n\ndatasets.load_dataset('c4').save_to_disk('/data/c4')\n"}),
    good("a part of a GPU by an annotation", {"k8s/job.yaml": (_JOB % (_POOL, "")).replace(
        "    spec:\n", '    metadata:\n      annotations:\n        gpu-fraction: "0.5"\n    spec:\n'), **_SCRIPT}),
    good("a part of a GPU by another name", _project(_TAINT, _LIMITS % "tencent.com/vcuda-core: 50")),
    good("variables of a map", _project(
        _TAINT, "          envFrom:\n            - configMapRef:\n                name: gpu-env\n")),
    good("no sign of GPUs", _project("")),
    good("resources of the TrainJob", _kubeflow("    resourcesPerNode:\n      limits:\n        nvidia.com/gpu: 8\n")),
    good("resources of the runtime", _kubeflow("", _OF_RUNTIME)),
)  # fmt: skip
