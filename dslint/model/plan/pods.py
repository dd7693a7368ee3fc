"""Manifests of Kubernetes around commands: the document, the container, and what of it is certain."""

from __future__ import annotations

import json
import posixpath
import re
from typing import Any

from dslint.core.source import Location, SourceFile
from dslint.model.launch.sources.yamldocuments import documents
from dslint.model.plan.tree import files_by_name
from dslint.model.workspace import Workspace
from dslint.parse.data import DataDoc

_MANIFEST = re.compile(r"^kind:", re.MULTILINE)
_KUSTOMIZATION = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_PATCHES = re.compile(r"^(?:patches\w*|components|replacements|transformers):", re.MULTILINE)
_CONTAINER = re.compile(r"(?P<pod>.*)/containers/\d+")
# Fields of an operator, annotations and settings by which a pod gets shared memory elsewhere.
_SHARES = re.compile(r"shm|shared-?memory|hostIPC", re.IGNORECASE)
_MOST_FILES = 60


def manifest_around(place: Location, workspace: Workspace) -> tuple[SourceFile, DataDoc, str] | None:
    """The document of a manifest that holds a place, and the pointer of what stands there.

    ``None`` for templates, for what an overlay of kustomize may change, and for other files.
    """
    source = workspace.read(place.path) if place.path.endswith((".yaml", ".yml")) else None
    if source is None or "apiVersion" not in source.text or "{{" in source.text or _is_patched(place.path, workspace):
        return None
    for doc in documents(source, lambda text: _MANIFEST.search(text) is not None):
        around = [p for p, span in doc.values.items() if span.start <= place.span.start < span.end]
        at = max(around, key=len, default="")
        if at and not doc.problems:
            return source, doc, at
    return None


def _is_patched(path: str, workspace: Workspace) -> bool:
    """A base of kustomize, beside overlays that may add the resources."""
    names = files_by_name(path, workspace)
    found = [other for name in _KUSTOMIZATION for other in names.get(name, ())]
    if posixpath.dirname(path) not in map(posixpath.dirname, found):
        return False
    texts = [source.text for other in found[:_MOST_FILES] if (source := workspace.read(other)) is not None]
    return any(map(_PATCHES.search, texts))


def pod_of_workers(doc: DataDoc, at: str) -> str:
    """The pod whose processes ``mpirun`` starts: those of the workers of an MPIJob."""
    worker = at.replace("/Launcher/", "/Worker/")
    is_apart = "/mpiReplicaSpecs/" in at and doc.get("/spec/runLauncherAsWorker") is not True
    return worker if is_apart and doc.has(worker) else at


def without_shared_memory(place: Location, workspace: Workspace) -> Location | None:
    """Where the container of a command mounts its volumes, where it has GPUs and certainly none of them at `/dev/shm`.

    The runtime of a pod then gives it 64 MB, as Docker does.
    """
    found = manifest_around(place, workspace)
    inner = _CONTAINER.match(found[2]) if found is not None else None
    if found is None or inner is None:
        return None
    doc, at = found[1], inner[0]
    pod = pod_of_workers(doc, inner["pod"])
    if pod != inner["pod"]:
        at = f"{pod}/containers/0"
    container = doc.get(at)
    if not isinstance(container, dict) or "gpu" not in json.dumps(container.get("resources"), default=str):
        return None
    mounts = container.get("volumeMounts") or []
    places = [str(mount.get("mountPath")).rstrip("/") for mount in mounts if isinstance(mount, dict)]
    if len(places) < len(mounts) or {"/dev/shm", "/dev", "/run/shm"} & {*places}:
        return None
    if _SHARES.search(json.dumps(_without_volumes(doc.data), default=str)):
        return None
    key = f"{at}/volumeMounts" if doc.has(f"{at}/volumeMounts") else f"{at}/image"
    return doc.key(key) if doc.has(key) else doc.value(at)


def _without_volumes(data: Any) -> Any:
    """The manifest without its volumes: one that is called `dshm` and mounted nowhere helps nobody."""
    if isinstance(data, dict):
        return {key: _without_volumes(item) for key, item in data.items() if key not in ("volumes", "volumeMounts")}
    return [_without_volumes(item) for item in data] if isinstance(data, list) else data
