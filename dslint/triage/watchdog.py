"""What the ranks' watchdog reports say together: who is behind, who runs another operation, who is silent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dslint.triage.hit import Hit
from dslint.triage.ranks import spoken

_GROUP_MARKS = ("PG GUID ", "PG ID ", "PG ")


class Waiting(NamedTuple):
    """The collective that a rank waited in; ``size`` is numel in -> out or the shape, as the log says it."""

    rank: int
    seq: int | None
    op: str
    size: str
    enqueued: int | None

    def named(self) -> str:
        """The collective for people: ``#1580 ALLREDUCE (1 -> 1)``."""
        number = f"#{self.seq} " if self.seq is not None else ""
        return f"{number}{self.op}{f' ({self.size})' if self.size else ''}"


def compare(timeouts: Iterable[Hit], statuses: Iterable[Hit], ranks: set[int]) -> Iterator[str]:
    """Sentences about each process group, from the first report of each rank. ``ranks`` are all ranks of the log."""
    groups = _groups(list(timeouts), list(statuses))
    for group, waiting in groups.items():
        lines = list(_group(waiting, ranks if len(groups) == 1 else set()))
        yield from (f"process group {group}: {line}" if group and len(groups) > 1 else line for line in lines)


def _groups(timeouts: list[Hit], statuses: list[Hit]) -> dict[str, list[Waiting]]:
    enqueued: dict[tuple[int | None, str], int] = {}
    for hit in statuses:
        enqueued.setdefault((hit.rank, hit.groups["seq"]), int(hit.groups["enqueued"]))
    groups: dict[str, dict[int, Waiting]] = {}
    for hit in timeouts:
        if hit.rank is None:
            continue
        fields = hit.groups
        seq = fields.get("seq")
        size = f"{fields['numel_in']} -> {fields['numel_out']}" if "numel_in" in fields else fields.get("shape", "")
        known = enqueued.get((hit.rank, seq or ""))
        report = Waiting(hit.rank, int(seq) if seq else None, fields["op"], size, known)
        groups.setdefault(_group_of(hit.text), {}).setdefault(hit.rank, report)
    return {group: [reports[rank] for rank in sorted(reports)] for group, reports in sorted(groups.items())}


def _group_of(text: str) -> str:
    for mark in _GROUP_MARKS:
        _, found, rest = text.partition(mark)
        if found:
            return rest.split(" Rank", 1)[0].split("]", 1)[0].strip()[:80]
    return ""


def _group(waiting: list[Waiting], ranks: set[int]) -> Iterator[str]:
    silent = sorted(ranks - {report.rank for report in waiting})
    if len(waiting) == 1 and not silent:
        only = waiting[0]
        yield f"rank {only.rank} waited in {only.named()}; the reports of the other ranks are not in these logs"
        return
    kinds: dict[tuple[int | None, str, str], list[Waiting]] = {}
    for report in waiting:
        kinds.setdefault((report.seq, report.op, report.size), []).append(report)
    ordered = sorted(kinds.values(), key=lambda reports: (reports[0].seq or 0, -len(reports)))
    for reports in ordered[:12]:
        yield f"{spoken([r.rank for r in reports])} waited in {reports[0].named()}"
    seqs = {report.seq for report in waiting if report.seq is not None}
    if len(seqs) > 1:
        low, high = min(seqs), max(seqs)
        behind = [report.rank for report in waiting if report.seq == low]
        verb = "are" if len(behind) > 1 else "is"
        yield (f"{spoken(behind)} {verb} behind: at collective #{low} while others are at #{high}; "
               "one of them left out or added a collective before")  # fmt: skip
    elif len(kinds) > 1:
        most = max(kinds.values(), key=len)
        others = [report for report in waiting if report not in most]
        if len(others) < len(most):
            verb = "run" if len(others) > 1 else "runs"
            who = spoken([report.rank for report in others])
            yield f"{who} {verb} another operation than the rest at the same number"
        else:
            yield "the ranks run different operations at the same number"
    else:
        yield from _same(waiting)
    if silent:
        verb = "report" if len(silent) > 1 else "reports"
        yield f"{spoken(silent)} {verb} no time-out: never came to this collective, or ended before"


def _same(waiting: list[Waiting]) -> Iterator[str]:
    counts = {report.enqueued for report in waiting if report.enqueued is not None}
    if len(counts) > 1:
        behind = [report.rank for report in waiting if report.enqueued == min(counts)]
        yield f"{spoken(behind)} had enqueued the fewest collectives (#{min(counts)}, others up to #{max(counts)})"
    elif len(waiting) > 1:
        yield "all ranks that report are in the same collective: a rank without a report, or the links between them"
