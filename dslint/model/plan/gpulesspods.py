"""Pods of Kubernetes that are meant for nodes with GPUs and ask for none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dslint.core.source import Location, SourceFile
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.sources.yamldocuments import documents
from dslint.model.plan.pods import manifest_around, pod_of_workers
from dslint.model.plan.scriptrun import near_sources
from dslint.model.plan.tree import files_by_name
from dslint.model.workspace import Workspace
from dslint.parse.data import DataDoc

# Devices of a node by any vendor, and claims of them.
_DEVICE = re.compile(r"gpu|cuda|/mig-|neuron|habana|tpu|npu|xpu|ascend|rocm|mlu|dcu|claims|\{\{", re.IGNORECASE)
# A node with GPUs is asked for by name, or its taint is tolerated.
_NODE = re.compile(
    r"nvidia|gpu|amd\.com|accelerator|[\"' ](?:p[345]\w*|g[456]\w*)\.\w*\d*xlarge|[ah][12]00|gb200", re.I
)
# Without a request: the runtime of NVIDIA shows what this variable says, and a privileged container all devices.
_SHOWS_ALL = re.compile(r"NVIDIA_VISIBLE_DEVICES|privileged|runtimeClassName|hostPath.*/dev/nvidia|\{\{")
# A part of a device is asked for in an annotation, or a scheduler of its own gives it; a map may hold the variable.
_ELSEWHERE = re.compile(r"gpu-(?:fraction|memory|mem)|vgpu|runai|hami|configMapRef", re.IGNORECASE)
# A selector for nodes without GPUs.
_WITHOUT = re.compile(r"\b(?:no|non|not|without|cpu)(?:\b|[-_])|^(?:false|0|none)$", re.IGNORECASE)
# The processes are told to stay on the CPU.
_ON_CPU = re.compile(r"(?:--\w[\w-]*=)?(?:cpu|gloo)|--(?:use[-_])?cpu|--no[-_]cuda|--no[-_]gpu")
_NEEDS = re.compile(r"cuda|nccl|Trainer\(|Accelerator\(|deepspeed|torch\.distributed")
_LAUNCHERS = frozenset({"torchrun", "deepspeed", "accelerate", "python", "mpirun"})
_MOST_FILES = 60


@dataclass(frozen=True, slots=True)
class GpulessPod:
    """``sign`` is where the manifest says that the pod is meant for GPUs; ``job`` what resources belong to."""

    sign: Location
    job: str


def gpuless_pod(command: LaunchCommand, script: str | None, workspace: Workspace) -> GpulessPod | None:
    """The pod in which a command runs, where it has a sign of GPUs and no container of it asks for one."""
    if command.launcher not in _LAUNCHERS:
        return None
    found = manifest_around(command.location, workspace)
    if found is None or _stays_on_cpu(command, script, workspace):
        return None
    source, doc, at = found
    if at.startswith("/spec/trainer"):
        return _of_trainer(doc, source, workspace)
    return _of_pod(doc, pod_of_workers(doc, at.partition("/containers/")[0])) if "/containers/" in at else None


def _stays_on_cpu(command: LaunchCommand, script: str | None, workspace: Workspace) -> bool:
    """The command or its script says that it uses no GPU; plain Python that says nothing of one may need none."""
    if any(_ON_CPU.fullmatch(word.text or "") for word in command.words):
        return True
    source = workspace.read(script) if script is not None and script.endswith(".py") else None
    texts = [found.text for found in near_sources(source, workspace)] if source is not None else []
    if any("gloo" in text for text in texts) and not any("nccl" in text for text in texts):
        return True
    return command.launcher == "python" and bool(texts) and not any(map(_NEEDS.search, texts))


def _of_pod(doc: DataDoc, at: str, also: str = "") -> GpulessPod | None:
    """The pod with this specification; ``also`` is what else belongs to it."""
    pod = doc.get(at)
    if not isinstance(pod, dict) or _asks(pod) or _SHOWS_ALL.search(json.dumps(pod, default=str) + also):
        return None
    around = (doc.get(at.rpartition("/")[0] + "/metadata"), doc.get("/metadata"), pod)
    selected = pod.get("nodeSelector")
    values = selected.items() if isinstance(selected, dict) else ()
    if _ELSEWHERE.search(json.dumps(around, default=str)) or any(_WITHOUT.search(str(v)) for _, v in values):
        return None
    sign = next(_signs(doc, at), None)
    return GpulessPod(sign, str(doc.get("/kind"))) if sign is not None else None


def _asks(pod: dict[str, Any]) -> bool:
    """A container, or the pod, asks for a device."""
    parts = [pod.get("resources"), pod.get("resourceClaims") and "claims"]
    for name in ("containers", "initContainers"):
        listed = pod.get(name)
        parts += [part.get("resources") for part in listed or () if isinstance(part, dict)]
    return any(_DEVICE.search(json.dumps(part, default=str)) for part in parts if part)


def _signs(doc: DataDoc, at: str) -> Iterator[Location]:
    """Where the pod is put on nodes with GPUs."""
    tolerations = doc.get(f"{at}/tolerations")
    for number, item in enumerate(tolerations if isinstance(tolerations, list) else ()):
        key = item.get("key") if isinstance(item, dict) else None
        if isinstance(key, str) and re.search(r"\bgpu\b", key):
            yield doc.value(f"{at}/tolerations/{number}/key", "it may run on nodes with GPUs")
    for key, pointer, value in doc.children(f"{at}/nodeSelector"):
        if _NODE.search(f" {key} ") or _NODE.search(f" {value} "):
            yield doc.value(pointer, "its nodes have GPUs")


def _of_trainer(doc: DataDoc, source: SourceFile, workspace: Workspace) -> GpulessPod | None:
    """A TrainJob of Kubeflow: its own resources, else those of its runtime in the project."""
    own, overrides = doc.get("/spec/trainer/resourcesPerNode"), doc.get("/spec/podTemplateOverrides")
    name = doc.get("/spec/runtimeRef/name")
    if own or overrides or doc.has("/spec/podSpecOverrides") or not isinstance(name, str):
        return None
    for runtime in _runtimes(source.path, workspace):
        if runtime.get("/metadata/name") == name:
            pods = [p for p in runtime.values if p.startswith("/spec/template") and p.endswith("/spec/containers")]
            found = [
                _of_pod(runtime, pod.rpartition("/")[0], json.dumps(doc.get("/spec"), default=str)) for pod in pods
            ]
            return found[0] if len(found) == 1 else None
    return None


def _runtimes(path: str, workspace: Workspace) -> Iterator[DataDoc]:
    """The training runtimes that manifests of the project define."""
    names = files_by_name(path, workspace)
    paths = [p for name in names if name.endswith((".yaml", ".yml")) for p in names[name]]
    for found in paths[:_MOST_FILES] if len(paths) <= _MOST_FILES else ():
        source = workspace.read(found)
        if source is not None and "TrainingRuntime" in source.text:
            docs = documents(source, lambda text: "TrainingRuntime" in text)
            yield from (doc for doc in docs if str(doc.get("/kind", "")).endswith("TrainingRuntime"))
