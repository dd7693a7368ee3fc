"""Unified diffs, applied to the text that they were made for."""

from __future__ import annotations

import re


def patched(text: str, diff: str) -> str:
    """A text with the hunks of a unified diff; what a hunk expects must stand where it says."""
    old, new, at = text.splitlines(keepends=True), [], 0
    for line in diff.splitlines(keepends=True):
        if line.startswith("@@"):
            start = int(re.match(r"@@ -(\d+)", line)[1])  # type: ignore[index]
            new += old[at : start - 1]
            at = start - 1
        elif line.startswith("+") and not line.startswith("+++"):
            new.append(line[1:])
        elif line.startswith((" ", "-")) and not line.startswith("---"):
            assert old[at] == line[1:], f"line {at + 1} is not as the diff expects"
            new += [old[at]] if line.startswith(" ") else []
            at += 1
    return "".join([*new, *old[at:]])


def files_of(diff: str) -> dict[str, str]:
    """The part of a diff for each file that it changes."""
    parts = re.split(r"(?m)^--- (\S+)\n\+\+\+ \S+\n", diff)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
