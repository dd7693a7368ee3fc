"""The time of a line, for logs of several ranks that have no common line numbers."""

from __future__ import annotations

import re

# glog (E1120 12:34:56.1, E321 without the zero), Python logging and torchelastic (2024-05-04_12:08:40), ISO.
_STAMP = re.compile(
    rb"(?:[EWIF](?P<md>\d{3,4}) |\d{4}-(?P<month>\d\d)-(?P<day>\d\d)[T _])"
    rb"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<frac>\d{1,9}))?"
)
_BACK = 16384


def stamp(data: bytes, start: int, end: int) -> float | None:
    """Seconds since the year's start (each month counted as 31 days) of a line, or of the last stamp before it.

    Tracebacks carry no time of their own. None where nothing within 16 KiB has one.
    """
    own = _STAMP.search(data, start, end)
    if own:
        return _seconds(own)
    earlier = list(_STAMP.finditer(data, max(0, start - _BACK), start))
    return _seconds(earlier[-1]) if earlier else None


def _seconds(match: re.Match[bytes]) -> float:
    if match["md"]:
        month, day = int(match["md"][:-2]), int(match["md"][-2:])
    else:
        month, day = int(match["month"]), int(match["day"])
    fraction = float(b"0." + match["frac"]) if match["frac"] else 0.0
    clock = int(match["h"]) * 3600 + int(match["m"]) * 60 + int(match["s"])
    return ((month * 31) + day) * 86400.0 + clock + fraction
