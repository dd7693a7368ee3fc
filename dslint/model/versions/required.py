"""What a release requires of other distributions (``schemas/required.json``), as far as no extra asks for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from dslint.core.schemafiles import load_file
from dslint.model.versions.plain import allows, between, plain_range
from dslint.model.versions.ranges import contains, pin_of


class Required(NamedTuple):
    """A distribution, and which releases of it are taken."""

    name: str
    specifier: str


@cache
def _table() -> dict[str, Any]:
    return load_file("required.json")


@lru_cache(maxsize=8192)
def required_by(library: str, version: str, python: str) -> tuple[Required, ...]:
    """What a release requires on Linux with this Python; nothing where its metadata are not known."""
    numbers = _table()["releases"].get(library, {}).get(version, ())
    return tuple(found for number in numbers if (found := _parsed(number, python)) is not None)


@lru_cache(maxsize=4096)
def _parsed(number: int, python: str) -> Required | None:
    from packaging.requirements import Requirement

    from dslint.model.versions.answer import marker_holds

    parsed = Requirement(_table()["texts"][number])
    if parsed.url is not None or (parsed.marker is not None and not marker_holds(str(parsed.marker), python)):
        return None
    return Required(re.sub(r"[-_.]+", "-", parsed.name).lower(), str(parsed.specifier))


@lru_cache(maxsize=8192)
def compatible(specifiers: tuple[str, ...]) -> bool:
    """Whether some version may lie in all ranges; what is not plain enough to tell may."""
    pins = {pin for specifier in specifiers if (pin := pin_of(specifier)) is not None}
    if pins:
        return len(pins) == 1 and all(contains(specifier, next(iter(pins))) for specifier in specifiers)
    ranges = [plain_range(specifier) for specifier in specifiers if specifier]
    known = [found for found in ranges if found is not None]
    return len(known) < 2 or any(all(allows(found, point) for found in known) for point in between(*known))


def specifiers_on(name: str, required: Sequence[Required]) -> tuple[str, ...]:
    """The ranges in which a distribution is required."""
    return tuple(found.specifier for found in required if found.name == name)


_RUNTIME = re.compile(r"(?:nvidia-cuda-runtime-cu\d+|cuda-toolkit\[[^\]]*\])==(\d+\.\d+)")


def cuda_of(torch: str) -> str | None:
    """The CUDA that the wheel of a release of torch on the index is built for; ``None`` where it does not say so."""
    texts = (_table()["texts"][number] for number in _table()["releases"].get("torch", {}).get(torch, ()))
    return next((found[1] for text in texts if (found := _RUNTIME.match(text))), None)
