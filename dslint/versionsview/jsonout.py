"""The window for programs (docs/versions.md)."""

from __future__ import annotations

import json
from typing import Any

from dslint import __version__
from dslint.core.source import Location
from dslint.versionsview.code import Limit
from dslint.versionsview.window import LibraryWindow, Window

FORMAT_VERSION = 1


def render(window: Window) -> str:
    """One JSON object."""
    python = window.python
    report = {
        "version": FORMAT_VERSION,
        "dslint": __version__,
        "python": {"version": python.version, "stated": python.is_stated, "why": python.why, **_at(python.origin)},
        "libraries": [_library(found) for found in window.libraries],
    }
    return json.dumps(report, indent=2, ensure_ascii=True) + "\n"


def _library(found: LibraryWindow) -> dict[str, Any]:
    allowed = found.allowed
    return {
        "name": found.library,
        "state": allowed.state,
        "reason": allowed.reason,
        "bounds": [
            {"specifier": bound.specifier, "stated_by": bound.stated_by, **_at(bound.origin)}
            for bound in allowed.bounds
        ],
        "allowed": list(allowed.releases),
        "pinned": allowed.is_pin,
        "fresh": allowed.fresh,
        "imported": _at(found.needs.imported) if found.needs is not None else None,
        "works": list(found.works),
        "below": _limit(found.below),
        "above": _limit(found.above),
        "together": list(found.together),
        "pin": found.pin,
    }


def _limit(limit: Limit | None) -> dict[str, Any] | None:
    return {"lacks": limit.what, **_at(limit.place)} if limit is not None else None


def _at(place: Location | None) -> dict[str, Any]:
    return {"file": place.path, "line": place.region.line} if place is not None else {"file": None, "line": None}
