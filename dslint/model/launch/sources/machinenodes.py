"""The machines on which a YAML file starts a command: the facts ``MACHINE_NODES`` and, for MPI, ``MACHINE_SLOTS``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.core.fact import known
from dslint.core.source import SourceFile
from dslint.model.launch.launchers.counts import MACHINE_GPUS, MACHINE_NODES, MACHINE_SLOTS, WORKER_GPUS, WORKER_SLOTS
from dslint.model.launch.sources.machinegpus import Facts, of_container
from dslint.model.launch.sources.volcano import is_volcano, tasks_of
from dslint.parse.data import DataDoc

_WORKERS = "/spec/mpiReplicaSpecs/Worker"


def of_resource(source: SourceFile, doc: DataDoc, pod: str) -> Facts:
    """The pods that run the container at ``pod`` in one job of Kubernetes."""
    kind = doc.get("/kind")
    if kind == "JobSet":
        found = re.match(r"/spec/replicatedJobs/\d+", pod)
        at = found[0] if found is not None else ""
        return _numbers(source, doc, [f"{at}/replicas", f"{at}/template/spec/parallelism"]) if at else {}
    if kind == "Job" and is_volcano(doc):
        return _volcano(source, doc, pod)
    if kind == "Job" and doc.get("/spec/completionMode") == "Indexed":
        return _numbers(source, doc, ["/spec/parallelism"])
    if kind == "MPIJob" and "/Launcher/" in pod:
        slots = doc.get("/spec/slotsPerWorker", 1)
        total = _product(source, doc, [f"{_WORKERS}/replicas", "/spec/slotsPerWorker"], MACHINE_SLOTS) if slots else {}
        return {**total, **_of_worker(source, doc)}
    if kind == "PyTorchJob" and not doc.has("/spec/elasticPolicy"):
        return _pytorch(source, doc)
    if kind == "TrainJob":
        return _numbers(source, doc, ["/spec/trainer/numNodes"])
    return {}


def _of_worker(source: SourceFile, doc: DataDoc) -> Facts:
    """The slots of a worker, one where the job names none, and its GPUs, where it is one container."""
    at = f"{_WORKERS}/template/spec/containers"
    containers = doc.get(at)
    gpus = (
        of_container(source, doc, f"{at}/0/resources") if isinstance(containers, list) and len(containers) == 1 else {}
    )
    count = gpus.get(MACHINE_GPUS)
    if count is None:
        return {}
    slots = _product(source, doc, ["/spec/slotsPerWorker"], WORKER_SLOTS)
    if not slots and not doc.has("/spec/slotsPerWorker"):
        slots = {WORKER_SLOTS: known("1", doc.key("/spec", "no `slotsPerWorker`: one slot"))}
    return {**slots, WORKER_GPUS: count} if slots else {}


def _volcano(source: SourceFile, doc: DataDoc, pod: str) -> Facts:
    """The pods of all tasks with GPUs, for a pod of one of them."""
    places = [f"/spec/tasks/{number}" for number in range(len(tasks_of(doc)))]
    own = [at for at in places if of_container(source, doc, f"{at}/template/spec/containers/0/resources")]
    counts = [doc.get(f"{at}/replicas") for at in own]
    if not any(pod.startswith(f"{at}/") for at in own) or not all(type(count) is int for count in counts):
        return {}
    labels = [source.location(doc.values[f"{at}/replicas"], f"replicas: {doc.get(f'{at}/replicas')}") for at in own]
    return {MACHINE_NODES: known(str(sum(count for count in counts if isinstance(count, int))), *labels)}


def _pytorch(source: SourceFile, doc: DataDoc) -> Facts:
    specs = doc.get("/spec/pytorchReplicaSpecs")
    places = [f"/spec/pytorchReplicaSpecs/{name}/replicas" for name in specs] if isinstance(specs, dict) else []
    given = [doc.get(place) for place in places]
    if not given or not all(type(count) is int for count in given):
        return {}
    labels = [source.location(doc.values[place], f"replicas: {doc.get(place)}") for place in places]
    return {MACHINE_NODES: known(str(sum(count for count in given if isinstance(count, int))), *labels)}


def of_skypilot(source: SourceFile, doc: DataDoc) -> Facts:
    """``num_nodes`` of a task."""
    return _numbers(source, doc, ["/num_nodes"])


def _numbers(source: SourceFile, doc: DataDoc, places: list[str]) -> Facts:
    return _product(source, doc, places, MACHINE_NODES)


def _product(source: SourceFile, doc: DataDoc, places: list[str], name: str) -> Facts:
    """The numbers that stand there multiplied, one for each that is missing; nothing where one is no number."""
    there = [place for place in places if doc.has(place)]
    numbers = list(_whole(doc, there))
    if not there or len(numbers) != len(there):
        return {}
    total = 1
    for number in numbers:
        total *= number
    labels = [source.location(doc.values[place], f"{place.rpartition('/')[2]}: {doc.get(place)}") for place in there]
    return {name: known(str(total), *labels)}


def _whole(doc: DataDoc, places: list[str]) -> Iterator[int]:
    for place in places:
        number = doc.get(place)
        if type(number) is int and number > 0 and place in doc.values:
            yield number
