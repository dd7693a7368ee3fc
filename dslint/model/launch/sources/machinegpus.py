"""The GPUs that a YAML file gives the machine or container of a command: the fact ``MACHINE_GPUS``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dslint.core.fact import Fact, known
from dslint.core.source import SourceFile
from dslint.model.launch.launchers.counts import MACHINE_GPUS
from dslint.parse.data import DataDoc, join_pointer

Facts = Mapping[str, Fact[str]]
# Of Kubernetes: whole devices, no slices of one.
_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
# ``A100:8`` of SkyPilot and dstack.
_NAMED = re.compile(r"[A-Za-z][\w.-]*:(\d{1,3})")


def of_container(source: SourceFile, doc: DataDoc, at: str) -> Facts:
    """``resources`` of a container: ``nvidia.com/gpu: 4`` of its limits, else of its requests."""
    for part in ("limits", "requests"):
        for name in _RESOURCES:
            place = join_pointer(f"{at}/{part}", name)
            if doc.has(place):
                return _fact(source, doc, place, doc.get(place), f"{name}: {doc.get(place)}")
    return {}


def of_service(source: SourceFile, doc: DataDoc, at: str) -> Facts:
    """``device_ids`` or ``count`` of the devices of a service of docker compose, or ``gpus`` in short."""
    short = doc.get(f"{at}/gpus")
    if isinstance(short, int | str) and doc.has(f"{at}/gpus"):
        return _fact(source, doc, f"{at}/gpus", short, f"gpus: {short}")
    lists = (f"{at}/gpus", f"{at}/deploy/resources/reservations/devices")
    given = [f"{here}/{number}" for here in lists for number in range(_length(doc, here))]
    if len(given) != 1:
        return {}
    ids, count = doc.get(f"{given[0]}/device_ids"), doc.get(f"{given[0]}/count")
    if isinstance(ids, list) and ids:
        text = ", ".join(map(str, ids))
        return _fact(source, doc, f"{given[0]}/device_ids", len(ids), f"device_ids: [{text}]")
    return _fact(source, doc, f"{given[0]}/count", count, f"count: {count}")


def _length(doc: DataDoc, at: str) -> int:
    found = doc.get(at)
    return len(found) if isinstance(found, list) else 0


def of_accelerators(source: SourceFile, doc: DataDoc, at: str) -> Facts:
    """``A100:8`` of SkyPilot (one without a number), ``{A100: 8}``, ``gpu: A100:8`` of dstack."""
    given = doc.get(at)
    if isinstance(given, dict) and len(given) == 1:
        name, number = next(iter(given.items()))
        return _fact(source, doc, join_pointer(at, name), number, f"{name}: {number}")
    if isinstance(given, dict) and "count" in given:
        return _fact(source, doc, f"{at}/count", given["count"], f"count: {given['count']}")
    found = _NAMED.fullmatch(given) if isinstance(given, str) else None
    return _fact(source, doc, at, found[1], str(given)) if found else {}


def _fact(source: SourceFile, doc: DataDoc, at: str, number: object, label: str) -> Facts:
    """The fact, where it is one number."""
    if isinstance(number, bool) or not re.fullmatch(r"[1-9]\d{0,2}", str(number)) or at not in doc.values:
        return {}
    return {MACHINE_GPUS: known(str(number), source.location(doc.values[at], label))}
