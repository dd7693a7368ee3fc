"""Tracebacks and the report of torchelastic: who failed, where, with what."""

from __future__ import annotations

import re

from dslint.triage.hit import Failure
from dslint.triage.line import QUOTE, Line

TRACEBACK = "Traceback (most recent call last)"
ROOT = "Root Cause (first"
EXCEPTION = "python-exception"
_FINAL = re.compile(r"[A-Za-z_][\w.]{0,200}(?::.*)?$")
_FRAME = re.compile(r'  File "(?P<file>[^"]{1,400})", line (?P<line>\d+)')
_FIELD = re.compile(r"\s{0,4}(time|host|rank|exitcode|traceback)\s*: (.*)$")
_RANK = re.compile(r"(\d{1,6})(?: \(local_rank: (\d{1,6})\))?")
_CODE = re.compile(r"(-?\d{1,4})\b")
# What a launcher, a person or the end of the process raises: never the first failure of a rank.
_NOT_FIRST = frozenset(("ChildFailedError", "KeyboardInterrupt", "SystemExit", "SignalException", "CalledProcessError"))


def failure(line: Line) -> Failure | None:
    """The exception at the end of the traceback that begins at ``line``; None when it cannot be found."""
    frame, number, at = "", line.number, line.start
    for start, end, text in line.following(400):
        number, at = line.block.number(start, (at, number)), start
        if match := _FRAME.match(text):
            frame = f"{match['file']}:{match['line']}"
        elif frame and text[:1].strip() and _FINAL.match(text[: QUOTE * 2]):
            final = line._replace(start=start, end=end, number=number, label=line.label._replace(text=text))
            found = Failure(final.hit(EXCEPTION), frame)
            return None if found.name in _NOT_FIRST else found
    return None


def report(line: Line) -> dict[str, str]:
    """The fields of a "Root Cause (first observed failure)" block; empty without rank and exit code."""
    fields: dict[str, str] = {}
    for _, _, text in line.following(16):
        if text.startswith(("====", "----")):
            break
        if match := _FIELD.match(text):
            fields.setdefault(match[1], match[2].strip()[:200])
    rank, code = _RANK.match(fields.get("rank", "")), _CODE.match(fields.get("exitcode", ""))
    if not rank or not code:
        return {}
    fields.update(rank=rank[1], exitcode=code[1])
    if rank[2]:
        fields["local_rank"] = rank[2]
    return fields
