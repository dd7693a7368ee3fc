"""Since which release DeepSpeed knows a key, refuses what stands beside it, and checks a value.

``schemas/deepspeed/history.json`` is generated from the sources of all releases
(``scripts/generate_deepspeed_history.py``); the schema itself describes the newest one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from dslint.core.finding import Severity
from dslint.model.context import VersionFact
from dslint.model.deepspeed.config import version_named
from dslint.model.deepspeed.schema import load_data
from dslint.model.versions.resolve import covers, is_pin

# Whole numbers and booleans between two values that older releases accepted, by the release that refuses them.
_MANY = 10**18
_REFUSED_SINCE = {
    "/fp16/loss_scale": ("0.18.8", -_MANY, _MANY),
    "/fp16/loss_scale_window": ("0.18.8", -_MANY, _MANY),
    "/fp16/min_loss_scale": ("0.18.8", -_MANY, _MANY),
    "/zero_optimization/reduce_bucket_size": ("0.19.6", 0, _MANY),
    "/zero_optimization/zenflow/topk_ratio": ("0.19.6", 0, 1),
    "/zero_optimization/zenflow/update_interval": ("0.19.6", -_MANY, _MANY),
    "/hybrid_engine/max_out_tokens": ("0.19.7", -_MANY, _MANY),
}


# Before, DeepSpeed used pydantic 1, which cuts 1.5 to 1 and makes a string of a number.
_PYDANTIC_2 = "0.15.0"


@lru_cache(maxsize=1)
def _history() -> dict[str, Any]:
    return load_data("history.json")


def known_since(pointer: str) -> str | None:
    """The first release that knows a key; ``None``: 0.9.0 or older, or a key that nobody knows."""
    since: dict[str, str] = _history()["since"]
    while pointer:
        if pointer in since:
            return since[pointer]
        pointer = pointer.rpartition("/")[0]
    return None


def strict_since(pointer: str) -> str | None:
    """The release that began to refuse unknown keys in the section of a pointer; ``None``: 0.9.0 or older."""
    since: dict[str, str] = _history()["strict_since"]
    return next((version for section, version in since.items() if f"{pointer}/".startswith(f"{section}/")), None)


def refused_since(pointer: str, value: Any, expected: str) -> str | None:
    """The release that began to refuse a value that the newest one refuses; ``None``: 0.9.0 or older."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    release, low, high = _REFUSED_SINCE.get(pointer, ("", 0, -1))
    if whole and low <= value <= high:
        return release
    return later(strict_since(pointer), _PYDANTIC_2 if _converted_by_pydantic_1(value, expected) else None)


def later(*releases: str | None) -> str | None:
    """The latest of some releases."""
    return max(filter(None, releases), key=lambda r: tuple(map(int, r.split("."))), default=None)


def _converted_by_pydantic_1(value: Any, expected: str) -> bool:
    if isinstance(value, float) and not isinstance(value, bool) and "a whole number" in expected:
        return True
    if isinstance(value, (bool, int, float)):
        return "a string" in expected
    return value in ("", []) and "an object" in expected


def is_newer_than(pointer: str, version: VersionFact) -> bool:
    """The key is certainly unknown to the release in use."""
    since = known_since(pointer)
    return since is not None and covers(version, f"<{since}") == "yes"


def refusal(version: VersionFact, since: str | None, older: str = "accepts it") -> tuple[Severity, str]:
    """How bad it is that DeepSpeed refuses something since a release, and the words for who stops.

    ``older`` says what a release before that does.
    """
    reached = covers(version, f">={since}") if since else "yes"
    if reached == "no":
        return Severity.WARNING, f"{version_named(version)} {older}, and DeepSpeed {since} and later stop"
    if reached == "maybe":
        return Severity.ERROR, f"DeepSpeed {since} and later stop"
    return Severity.ERROR, f"{version_named(version) if is_pin(version) else 'DeepSpeed'} stops"
