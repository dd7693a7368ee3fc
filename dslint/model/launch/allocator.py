"""What PyTorch's allocator makes of ``PYTORCH_CUDA_ALLOC_CONF`` (torch 2.13 ``c10/core/AllocatorConfig.cpp``).

Blanks do not count. ``name:value`` stand between commas; a value may be a list in ``[ ]``.
"""

from __future__ import annotations

import re

_SWITCHES = frozenset({"expandable_segments"})
# The least that counts, in megabytes.
_LEAST = 20
_COMPARED = re.compile(r"([a-z]\w*)=(\w)")


def complaint(value: str) -> str:
    """Why the parser refuses a value, as part of a sentence; empty where it takes it."""
    text = re.sub(r"\s+", "", value)
    if not text or any(mark in text for mark in "$<{`"):
        return ""
    outside = re.sub(r"\[[^\]]*\]", "", text)
    if ";" in outside:
        return "settings are parted by `,`"
    for part in outside.split(","):
        name, colon, given = part.partition(":")
        if part and not colon:
            return "a name and its value are parted by `:`" if "=" in part else f"`{part}` has no value"
        why = _of_value(name, given)
        if why:
            return why
    return ""


def _of_value(name: str, given: str) -> str:
    if name in _SWITCHES and given not in ("True", "False"):
        return f"`{name}` is `True` or `False`"
    if name == "max_split_size_mb" and given.isdigit() and int(given) < _LEAST:
        return f"`{name}` is at least {_LEAST}"
    if name == "garbage_collection_threshold" and re.fullmatch(r"[\d.]+", given) and not 0 < float(given) < 1:
        return "it must be between 0 and 1"
    return ""


def mended(value: str) -> str:
    """The value as it was meant, where only signs and capitals are wrong; empty where that does not help."""
    other = _COMPARED.sub(r"\1:\2", value)
    other = re.sub(r"\b(expandable_segments:)(true|false)\b", lambda m: m[1] + m[2].capitalize(), other)
    return other if other != value and not complaint(other) else ""
