"""A config as the DeepSpeed in use judges it, and the newest one after an upgrade.

The pinned release judges; of a range the newest release that it allows, and a violation is certain only where every
allowed release agrees; where nobody states a release, the newest one judges. Since when something is refused comes
from the schemas of the releases, asked one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dslint.core.finding import Severity
from dslint.model.context import VersionFact
from dslint.model.deepspeed.config import version_named
from dslint.model.deepspeed.history import points_in_use, refused_key_since, release_in_use
from dslint.model.deepspeed.schema import (
    NEWEST,
    Violation,
    accepts,
    history,
    is_strict,
    point_of,
    properties,
    schema_at,
    violations,
)
from dslint.model.versions.resolve import is_pin
from dslint.parse.data import DataDoc, split_pointer


@dataclass(frozen=True, slots=True)
class Judged:
    """A violation and whom it concerns.

    ``reach``: ``all`` releases in use | ``some`` of a range | ``later``: only newer ones than those in use.
    ``release``: the one whose schema says so. ``since``: the release from which on it holds without a gap up to the
    newest; ``None``: since the oldest one that is known, or not in the newest.
    """

    violation: Violation
    reach: str
    release: str
    since: str | None
    version: VersionFact

    def standing(self, older: str = "accepts it") -> tuple[Severity, str]:
        """How bad it is that DeepSpeed stops, and the words for who stops. ``older``: what earlier releases do."""
        if self.reach == "later":
            return Severity.INFO, f"{version_named(self.version)} {older}, {self.since} and later stop"
        if self.reach == "some":
            return Severity.WARNING, f"DeepSpeed {self.since or self.release} and later stop"
        if is_pin(self.version):
            return Severity.ERROR, f"{version_named(self.version)} stops"
        if self.since and not self.version.is_known:
            return Severity.ERROR, f"DeepSpeed {self.since} and later stop"
        return Severity.ERROR, "DeepSpeed stops"


_last: list[tuple[DataDoc, VersionFact, tuple[Judged, ...]]] = []


def judged(doc: DataDoc, version: VersionFact) -> tuple[Judged, ...]:
    """All violations of a document that holds one DeepSpeed config, by the releases in use and by the newest."""
    if not (_last and _last[0][0] is doc and _last[0][1] == version):
        _last[:] = [(doc, version, tuple(_judge(doc, version)))]
    return _last[0][2]


def _judge(doc: DataDoc, version: VersionFact) -> list[Judged]:
    release = release_in_use(version)
    points = points_in_use(version)
    out = []
    for violation in violations(doc, release):
        reach = "all" if all(_violates(violation, point) for point in points[:-1]) else "some"
        out.append(Judged(violation, reach, release, _since(violation), version))
    if point_of(release) != point_of(NEWEST):
        now = {j.violation.pointer for j in out}
        for violation in violations(doc, NEWEST):
            if not any(f"{violation.pointer}/".startswith(f"{pointer}/") for pointer in now):
                out.append(Judged(violation, "later", NEWEST, _since(violation), version))
    return out


def _since(violation: Violation) -> str | None:
    if violation.kind == "removed":
        return refused_key_since(violation.pointer)
    if not _violates(violation, point_of(NEWEST)) or _violates(violation, history()["points"][0]):
        return None
    since = None
    for point in reversed(history()["points"]):
        if not _violates(violation, point):
            return since
        since = point
    return since


def _violates(violation: Violation, point: str) -> bool:
    """Another release says the same about the same place."""
    pointer, kind = violation.pointer, violation.kind
    parent, key = pointer.rpartition("/")[0], split_pointer(pointer)[-1]
    known = properties(parent, point)
    if kind == "unknown":
        section = schema_at(parent, point) or {}
        return key not in known and section.get("additionalProperties") is False and _same_regime(violation, point)
    if kind == "both":
        return all(name in known for name in violation.names)
    own = schema_at(pointer, point)
    if own is None:  # an unknown key stops only a section that is validated
        return violation.strict and is_strict(parent, point)
    if kind == "removed":
        return bool(own.get("x-dslint", {}).get("removed"))
    if kind == "missing":
        return any(name in own.get("required", ()) for name in violation.names)
    return not _accepts(violation.value, pointer, point) and _same_regime(violation, point)


def _same_regime(violation: Violation, point: str) -> bool:
    return is_strict(violation.pointer, point) == violation.strict


def _accepts(value: Any, pointer: str, point: str) -> bool:
    if isinstance(value, dict | list):
        return accepts(value, pointer, point)
    return _accepts_scalar(value, type(value).__name__, pointer, point)


@lru_cache(maxsize=4096)
def _accepts_scalar(value: Any, _: str, pointer: str, point: str) -> bool:
    return accepts(value, pointer, point)
