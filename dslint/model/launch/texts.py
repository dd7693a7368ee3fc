"""What a text must hold to be worth reading for launch commands."""

from __future__ import annotations

import re

from dslint.model.firstlook import CALL, LAUNCHER

# Programs in front of a command that stands in a variable: ``nohup $CMD``.
_BEFORE = (
    r"\b(?:nohup|exec|time|timeout|command|setsid|unbuffer|env|nice|stdbuf|sudo|numactl|taskset|dslint)\b"
    r"[^\n]*\s[\"']?\$\{?\w"
)
_WANTED = re.compile(LAUNCHER + "|" + _BEFORE + r"|^\s*[\"']?\$|\beval\b|\b(?:ba|z)?sh\b[^\n]*\s-\w*c\s|" + CALL)


def may_start(raw: str) -> bool:
    """A command may be a launch: it names a launcher, or what it runs stands in a variable."""
    return _WANTED.search(raw) is not None
