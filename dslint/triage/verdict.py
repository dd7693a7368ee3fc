"""Orders what the logs show: causes before consequences, and by time where it can be told."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dslint.triage.hit import Failure, FileResult, Hit, before
from dslint.triage.ranks import spoken
from dslint.triage.symptom import Cause, Symptom
from dslint.triage.symptoms import BY_NAME
from dslint.triage.symptoms.collectives import ENQUEUED, WATCHDOG, XTUNER
from dslint.triage.symptoms.process import REPORT
from dslint.triage.watchdog import compare

_ORDER: dict[str, float] = {"cause": 0, "state": 1, "timeout": 3, "lost": 4, "report": 5}
_LATE = 3.5


@dataclass
class Verdict:
    """One symptom with its lines in order; ``details`` are sentences made from them."""

    symptom: Symptom
    hits: list[Hit]
    count: int
    details: list[str] = field(default_factory=list)
    late: bool = False
    causes: tuple[Cause, ...] = ()

    @property
    def ranks(self) -> list[int]:
        """The ranks that show it, where they are known."""
        return sorted({hit.rank for hit in self.hits if hit.rank is not None})

    @property
    def first(self) -> Hit:
        """The first line that shows it."""
        return self.hits[0]


@dataclass
class Diagnosis:
    """Everything about a set of logs. ``story`` says who failed first, empty where that cannot be told."""

    files: list[FileResult]
    verdicts: list[Verdict]
    story: str = ""
    origin: Hit | None = None


def diagnose(files: list[FileResult]) -> Diagnosis:
    """The verdicts of all logs of one run, most telling first."""
    verdicts = _verdicts(files)
    timeout = _earliest([v.first for v in verdicts if v.symptom.role == "timeout"])
    for verdict in verdicts:
        if verdict.symptom.role == "cause" and timeout:
            verdict.late = bool(before(timeout, verdict.first))
    when = _ordering([verdict.first for verdict in verdicts])

    def key(verdict: Verdict) -> tuple[float, ...]:
        role = _LATE if verdict.late else _ORDER[verdict.symptom.role]
        if when is None:
            return (role, 0.0, role)
        return (min(role, 1) if role < 2 else role, when(verdict.first), role)

    verdicts.sort(key=key)
    origin, story = _story(files, verdicts, timeout)
    for verdict in verdicts:
        # Who waited for a rank that is known to have failed waited for that reason.
        peers = [cause for cause in verdict.symptom.causes if cause.peer and origin is not None]
        verdict.causes = (*peers, *(cause for cause in verdict.symptom.causes if cause not in peers))
    return Diagnosis(files, verdicts, story, origin)


def _verdicts(files: list[FileResult]) -> list[Verdict]:
    ranks = set().union(*(result.ranks for result in files)) if files else set()
    found: dict[str, list[Hit]] = {}
    counts: dict[str, int] = {}
    for result in files:
        for hit in result.hits:
            found.setdefault(hit.symptom, []).append(hit)
        for (name, _), count in result.counts.items():
            counts[name] = counts.get(name, 0) + count
    _name_local_ranks(found)
    barrier = found.get("monitored-barrier", [])
    if barrier and any(XTUNER in result.flags for result in files):
        found[XTUNER], counts[XTUNER] = barrier[:1], 1
    statuses = found.pop(ENQUEUED, [])
    verdicts = []
    for name, hits in found.items():
        hits.sort(key=_ordering(hits) or (lambda hit: (hit.file, hit.line)))
        verdict = Verdict(BY_NAME[name], hits, counts.get(name, len(hits)))
        verdict.details = list(_details(verdict, statuses, ranks))
        verdicts.append(verdict)
    return verdicts


def _name_local_ranks(found: dict[str, list[Hit]]) -> None:
    """torchelastic's log lines say the local rank only, its report says both."""
    reports = {hit.groups["local_rank"]: hit.rank for hit in found.get(REPORT, []) if "local_rank" in hit.groups}
    for hits in found.values():
        for index, hit in enumerate(hits):
            if hit.rank is None and hit.groups.get("local_rank") in reports:
                hits[index] = replace(hit, rank=reports[hit.groups["local_rank"]])


def _details(verdict: Verdict, statuses: list[Hit], ranks: set[int]) -> list[str]:
    name, first = verdict.symptom.name, verdict.first
    if name == WATCHDOG:
        return list(compare(verdict.hits, statuses, ranks))
    if name == "collective-mismatch":
        return _fingerprints(first.groups.get("what", ""))
    if name == REPORT:
        hits = verdict.hits
        return [f"rank {hit.groups['rank']} ended with exit code {hit.groups['exitcode']}"
                f"{' at ' + hit.groups['time'] if 'time' in hit.groups else ''}" for hit in hits[:8]]  # fmt: skip
    if name == "clients-missing":
        return [f"{first.groups['joined']} of {first.groups['world']} ranks came"]
    if name == "monitored-barrier":
        missing = {part.strip() for hit in verdict.hits for part in hit.groups.get("missing", "").split(",")}
        return [f"missing: {spoken([int(part) for part in missing if part.isdecimal()])}"]
    if name == "loss-zero" and "before" in first.groups:
        return [f"the loss was {first.groups['before']} just before; then {first.groups['zeros']} times 0"]
    if verdict.symptom.role == "cause" and verdict.ranks and (others := sorted(ranks - set(verdict.ranks))):
        return [f"{spoken(verdict.ranks)} only; {spoken(others)} did not show it"]
    return []


def _fingerprints(text: str) -> list[str]:
    sides = re.findall(
        r"Rank (\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=(\d+), )?OpType=(\w+)"
        r"(?:, TensorShape=\[([\d, ]*)\])?", text
    )  # fmt: skip
    return [f"rank {rank} runs {f'#{seq} ' if seq else ''}{op}{f' [{shape}]' if shape else ''}"
            for rank, seq, op, shape in sides[:8]]  # fmt: skip


def _story(files: list[FileResult], verdicts: list[Verdict], timeout: Hit | None) -> tuple[Hit | None, str]:
    """Who failed first. Only a failure that is known to come before the others' waiting is called the first."""
    waiting = [v for v in verdicts if v.symptom.role in ("timeout", "lost") and v.symptom.name != "aborted"]
    known = {(hit.file, hit.line) for v in verdicts for hit in v.hits}
    deaths = [verdict.first for verdict in verdicts if verdict.symptom.role == "cause" and not verdict.late]
    failures = [f for result in files for f in result.failures if (f.hit.file, f.hit.line) not in known]
    origin = _earliest([*deaths, *(failure.hit for failure in failures)])
    reports = [hit for v in verdicts if v.symptom.name == REPORT for hit in v.hits]
    if origin is None or (timeout and before(origin, timeout) is False):
        if not reports:
            return None, ""
        first = reports[0]
        return (
            first,
            f"The launcher names rank {first.rank} (exit code {first.groups['exitcode']}) as the first to end.",
        )
    who = f"rank {origin.rank}" if origin.rank is not None else origin.host or "a process"
    where = f"({place(origin)}: {_brief(origin, failures)})"
    if timeout and before(origin, timeout) is None:
        return origin, f"{who.capitalize()} failed {where}; without times it is open whether before the time-outs."
    victims = sorted({rank for v in waiting for rank in v.ranks} - {origin.rank})
    others = spoken(victims) if victims else "the other ranks"
    end = ""
    if waiting:
        waited = any(v.symptom.role == "timeout" for v in waiting)
        end = f"; {others} {'timed out waiting for it' if waited else 'lost the connection to it'}"
    elif not reports and len(deaths) < 2:
        return origin, ""
    return origin, f"{who.capitalize()} failed first {where}{end}."


def _brief(origin: Hit, failures: list[Failure]) -> str:
    if origin.symptom in BY_NAME:
        return BY_NAME[origin.symptom].title
    frame = next((f.frame for f in failures if f.hit is origin), "")
    return f"{origin.text[:120]}{f' at {frame}' if frame else ''}"


def place(hit: Hit) -> str:
    """``path:line`` of a hit."""
    return f"{hit.file}:{hit.line}"


def _ordering(hits: list[Hit]) -> Callable[[Hit], float] | None:
    """What orders these hits: lines of one file, times of several, or nothing."""
    if len({hit.file for hit in hits}) <= 1:
        return lambda hit: float(hit.line)
    if all(hit.stamp is not None for hit in hits):
        return lambda hit: hit.stamp or 0.0
    return None


def _earliest(hits: list[Hit]) -> Hit | None:
    found: Hit | None = None
    for hit in hits:
        if found is None or before(hit, found):
            found = hit
    return found
