"""Addresses of pods in manifests of Kubernetes: the names that JobSets, Jobs and StatefulSets give their pods.

A pod is found as ``HOSTNAME.SUBDOMAIN``, where the subdomain is the name of a headless service.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.source import Location, SourceFile, Span
from dslint.model.launch.lostaddresses import LostAddress
from dslint.model.launch.sources.volcano import is_volcano, tasks_of
from dslint.model.launch.sources.yamldocuments import documents
from dslint.parse.data import DataDoc

_KINDS = re.compile(r"^kind:\s*[\"']?(?:JobSet|Job|StatefulSet)\b", re.MULTILINE)
# ``--master_addr=X``, ``MASTER_ADDR=X``, ``--rdzv_endpoint X:29500``; a value of the environment is read apart.
_TOLD = re.compile(
    r"(?:--master[-_]addr|--rdzv[-_]endpoint|--main[-_]process[-_]ip|\bMASTER_ADDR)[=\s]\s*[\"']?(?P<host>[A-Za-z][\w.-]*)"
)
# Plugins of Volcano that make the service, or ask for the one that does.
_SERVED = frozenset({"svc", "pytorch", "tensorflow", "mpi", "ray"})


@dataclass(frozen=True, slots=True)
class _Pods:
    """Pods of one template: the pattern of their names, the subdomain that they have ("": none), where it is said."""

    pattern: re.Pattern[str]
    subdomain: str
    place: Location
    doc: DataDoc
    at: str
    remedy: str = "Set `subdomain` in the template to the name of a headless service"


def pod_addresses(source: SourceFile) -> tuple[LostAddress, ...]:
    """The addresses of a manifest at which no pod of it is found."""
    if not (_KINDS.search(source.text) and re.search("MASTER_ADDR|master.addr|rdzv.endpoint", source.text)):
        return ()
    docs = [doc for doc in documents(source, _is_of_pods) if not doc.problems]
    return tuple(found for doc in docs for pods in _pods(doc) for found in _lost(pods, source))


def _is_of_pods(text: str) -> bool:
    return _KINDS.search(text) is not None


def _pods(doc: DataDoc) -> Iterator[_Pods]:
    name, kind = doc.get("/metadata/name"), doc.get("/kind")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z\d.-]+", name):
        return
    own = re.escape(name)
    if kind == "JobSet":
        given = doc.get("/spec/network/subdomain", name)
        place = doc.value("/spec/network/subdomain" if doc.has("/spec/network/subdomain") else "/metadata/name")
        jobs = doc.get("/spec/replicatedJobs")
        for number, job in enumerate(jobs if isinstance(jobs, list) else ()):
            part = job.get("name") if isinstance(job, dict) else None
            if isinstance(part, str) and isinstance(given, str):
                at = f"/spec/replicatedJobs/{number}"
                names = re.compile(rf"{own}-[a-z\d-]+-\d+-\d+")
                yield _Pods(names, given, place.labelled("the service has this name"), doc, at)
    elif kind == "Job" and is_volcano(doc):
        yield from _of_volcano(doc, name)
    elif kind == "Job" and doc.get("/spec/completionMode") == "Indexed":
        yield _of_template(doc, re.compile(rf"{own}-\d+"), "/spec/template/spec/subdomain")
    elif kind == "StatefulSet" and isinstance(doc.get("/spec/serviceName"), str):
        yield _of_template(doc, re.compile(rf"{own}-\d+"), "/spec/serviceName")


def _of_volcano(doc: DataDoc, name: str) -> Iterator[_Pods]:
    """The pods of each task of a job of Volcano, whose service the plugin `svc` makes under the name of the job."""
    tasks = tasks_of(doc)
    parts = [task.get("name") for task in tasks if isinstance(task, dict)]
    named = [re.escape(part) for part in parts if isinstance(part, str) and re.fullmatch(r"[a-z\d-]+", part)]
    plugins = doc.get("/spec/plugins", {})
    if not named or not isinstance(plugins, dict):
        return
    names = re.compile(rf"{re.escape(name)}-(?:{'|'.join(named)})-\d+")
    given = [part for task in tasks if (part := _subdomain(task))]
    if _SERVED.intersection(plugins):
        yield _Pods(names, name, doc.value("/metadata/name", "the service has this name"), doc, "/spec/tasks")
    elif not given:
        why = "Add the plugin `svc` to the job"
        yield _Pods(names, "", doc.value("/metadata/name", "its pods"), doc, "/spec/tasks", why)


def _subdomain(task: object) -> object:
    """The subdomain that the template of a task gives its pods."""
    for key in ("template", "spec", "subdomain"):
        task = task.get(key) if isinstance(task, dict) else None
    return task


def _of_template(doc: DataDoc, pattern: re.Pattern[str], at: str) -> _Pods:
    given = doc.get(at, "")
    place = doc.value(at, "its pods have this subdomain") if doc.has(at) else doc.value("/metadata/name", "its pods")
    return _Pods(pattern, given if isinstance(given, str) else "", place, doc, "/spec")


def _lost(pods: _Pods, source: SourceFile) -> Iterator[LostAddress]:
    for address, place in _addresses(pods, source):
        host, dot, rest = address.partition(".")
        if pods.pattern.fullmatch(host) is None:
            continue
        domain = rest.partition(".")[0]
        if not pods.subdomain:
            yield LostAddress(
                address,
                "names a pod, and the pods have no `subdomain`: Kubernetes serves no name for them",
                pods.remedy,
                place,
                (pods.place,),
            )
        elif not dot:
            why = f"names a pod without its service: it is found as `{host}.{pods.subdomain}`"
            yield LostAddress(address, why, f"Write `{host}.{pods.subdomain}`", place, (pods.place,))
        elif domain != pods.subdomain:
            why = f"is the name of no pod: the service is called `{pods.subdomain}`, not `{domain}`"
            yield LostAddress(address, why, f"Write `{host}.{pods.subdomain}`", place, (pods.place,))


def _addresses(pods: _Pods, source: SourceFile) -> Iterator[tuple[str, Location]]:
    """The host names in the environment and the command lines of the pods."""
    doc = pods.doc
    for pointer, span in list(doc.values.items()):
        value = doc.get(pointer)
        if not pointer.startswith(pods.at) or not isinstance(value, str) or "$" in value.partition(".")[0]:
            continue
        parent, _, key = pointer.rpartition("/")
        if key == "value" and doc.get(f"{parent}/name") in ("MASTER_ADDR", "PET_MASTER_ADDR"):
            yield value, doc.value(pointer)
        elif "/command" in pointer or "/args" in pointer:
            raw = source.text[span.start : span.end]
            for match in _TOLD.finditer(raw):
                begin = span.start + match.start("host")
                yield match["host"], source.location(Span(begin, begin + len(match["host"])))
