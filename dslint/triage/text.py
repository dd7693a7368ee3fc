"""The diagnosis for people."""

from __future__ import annotations

import re
import textwrap

from dslint.core.words import counted
from dslint.triage.hit import Hit
from dslint.triage.ranks import spoken
from dslint.triage.verdict import Diagnosis, Verdict, place

_ROLES = {
    "cause": "cause",
    "state": "what happened",
    "timeout": "consequence: waited in vain",
    "lost": "consequence: a peer was gone",
    "report": "report",
}
# The place in torch's own source says nothing to its users and takes half a line.
_GLOG = re.compile(r"^\[[EWIF]\d{3,4} [\d:.]+ \S+\] (?:\[c10d\] )?")
_BOLD, _DIM, _RED, _END = "\x1b[1m", "\x1b[2m", "\x1b[1;31m", "\x1b[0m"


def render(diagnosis: Diagnosis, quotes: int, width: int, color: bool) -> str:
    """The whole report: the story, then the verdicts, most telling first."""
    out: list[str] = []
    if diagnosis.story:
        out += [*textwrap.wrap(diagnosis.story, width), ""]
    for number, verdict in enumerate(diagnosis.verdicts, 1):
        out += [*_verdict(number, verdict, quotes, width, color), ""]
    out.append(_summary(diagnosis))
    return "".join(f"{line}\n" for line in out)


def _verdict(number: int, verdict: Verdict, quotes: int, width: int, color: bool) -> list[str]:
    symptom = verdict.symptom
    role = "seen after the first time-out, perhaps a consequence" if verdict.late else _ROLES[symptom.role]
    paint = _RED if symptom.role == "cause" and not verdict.late else _BOLD
    title = f"{paint}{symptom.title}{_END}" if color else symptom.title
    out = [f"{number}. {title} [{symptom.name}; {role}]"]
    where = spoken(verdict.ranks) + ", " if verdict.ranks else ""
    if verdict.count > 1 or verdict.ranks:
        out.append(f"   {where}{counted(verdict.count, 'line')}")
    out += [_quote(hit, width, color) for hit in _chosen(verdict.hits, quotes)]
    for detail in verdict.details:
        out += textwrap.wrap(detail, width, initial_indent="   = ", subsequent_indent="     ")
    out += textwrap.wrap(symptom.meaning, width, initial_indent="   ", subsequent_indent="   ")
    out.append("   Likely causes:")
    for index, cause in enumerate(verdict.causes, 1):
        codes = f" ({', '.join(cause.rules)})" if cause.rules else ""
        out += textwrap.wrap(f"{cause.text}{codes}", width, initial_indent=f"     {index}. ", subsequent_indent=" " * 8)
        out += [f"        $ {command}" for command in cause.commands]
    return out


def _chosen(hits: list[Hit], quotes: int) -> list[Hit]:
    """The first line of each rank before second ones, in their order."""
    seen: set[tuple[int | None, str]] = set()
    first = [hit for hit in hits if not ((hit.rank, hit.host) in seen or seen.add((hit.rank, hit.host)))]  # type: ignore[func-returns-value]
    rest = [hit for hit in hits if hit not in first]
    kept = [*first, *rest][:quotes]
    return [hit for hit in hits if hit in kept]


def _quote(hit: Hit, width: int, color: bool) -> str:
    plain = _GLOG.sub("", hit.text)
    shown = " ".join("".join(c if c.isprintable() else " " for c in plain).split())
    head = f"   {place(hit)}: "
    room = max(40, width - len(head))
    shown = shown if len(shown) <= room else f"{shown[: room - 3]}..."
    return f"   {_DIM}{place(hit)}:{_END} {shown}" if color else f"{head}{shown}"


def _summary(diagnosis: Diagnosis) -> str:
    files = diagnosis.files
    lines = sum(result.lines for result in files)
    ranks = sorted(set().union(*(result.ranks for result in files)))
    read = f"{counted(lines, 'line')} of {counted(len(files), 'log')}{f', {spoken(ranks)}' if ranks else ''}"
    found = len(diagnosis.verdicts)
    if not found:
        first = f" The first exception: {place(diagnosis.origin)}: {diagnosis.origin.text}" if diagnosis.origin else ""
        return f"No known symptom in {read}.{first}"
    return f"{counted(found, 'symptom')} in {read}."
