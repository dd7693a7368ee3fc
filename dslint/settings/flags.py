"""The flags of a command line as a source of settings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dslint.rules.registry import UnknownSelector
from dslint.settings.errors import Origin, SettingsError
from dslint.settings.merge import Source
from dslint.settings.selection import prefix_of
from dslint.settings.validate import validate

_LISTS = ("select", "ignore", "extend-select", "extend-ignore", "exclude", "extend-exclude")
_LAUNCH = ("nnodes", "nproc-per-node")


def from_flags(overrides: Mapping[str, object]) -> Source:
    """Flag names and values as settings; ``None`` is a flag that was not given.

    Raises:
        SettingsError: an unknown name or a wrong value.
    """
    raw: dict[str, Any] = {}
    for name, value in overrides.items():
        key = name.replace("_", "-")
        if value is None:
            continue
        if key == "no-cache":
            raw["cache"] = not value
        elif key in _LAUNCH:
            raw.setdefault("launch", {})[key] = value
        elif key in _LISTS:
            raw[key] = _listed(value)
        elif key == "per-file-ignores" and not isinstance(value, Mapping):
            raw[key] = _file_ignores(_listed(value))
        else:
            raw[key] = os.fspath(value) if isinstance(value, os.PathLike) else value
    origin = Origin("command line")
    return Source(origin, validate(raw, origin))


def anchored(overrides: Mapping[str, object], root: Path) -> dict[str, object]:
    """The flags with file patterns relative to ``root``: a user means the folder where they stand."""
    out = dict(overrides)
    here = Path.cwd()
    if here == root.absolute():
        return out
    for name in ("exclude", "extend-exclude"):
        if isinstance(patterns := out.get(name), list):
            out[name] = [_anchored(pattern, here, root) for pattern in patterns]
    ignores = out.get("per-file-ignores")
    if isinstance(ignores, list):
        table = _file_ignores(ignores)
        out["per-file-ignores"] = {_anchored(pattern, here, root): rules for pattern, rules in table.items()}
    return out


def _anchored(pattern: str, here: Path, root: Path) -> str:
    """A gitignore pattern with a slash inside names a place; one without matches anywhere and stays."""
    negation, body = ("!", pattern[1:]) if pattern.startswith("!") else ("", pattern)
    if "/" not in body.rstrip("/"):
        return pattern
    top = f"{root.absolute().as_posix().rstrip('/')}/"
    slash = "/" if body.endswith("/") else ""
    place = body if body.startswith(top) else os.path.normpath(f"{here.as_posix()}/{body}") + slash
    return f"{negation}/{place.removeprefix(top)}" if place.startswith(top) else pattern


def _file_ignores(items: Sequence[str]) -> dict[str, list[str]]:
    """``["*.py:DSL2", "DSL301", "ds.json:DSL160:/fp16"]`` as a table: an item without a pattern goes on with the last.

    Raises:
        SettingsError: an item without any pattern.
    """
    table: dict[str, list[str]] = {}
    pattern = ""
    for item in items:
        found, rule = _divided(item)
        pattern = found or pattern
        if not pattern:
            raise SettingsError(f"command line: `per-file-ignores`: `{item}` must be PATTERN:RULE")
        table.setdefault(pattern, []).append(rule)
    return table


def _divided(item: str) -> tuple[str, str]:
    """Pattern and rule. Both may hold a colon: the pattern ends at the first one with a rule behind it."""
    colons = [i for i, character in enumerate(item) if character == ":"]
    for at in colons:
        if _is_rule(item[at + 1 :].partition(":")[0]):
            return item[:at], item[at + 1 :]
    if colons and not _is_rule(item[: colons[0]]):
        return item[: colons[0]], item[colons[0] + 1 :]  # a mistyped rule, which will be named
    return "", item


def _is_rule(text: str) -> bool:
    try:
        prefix_of(text)
    except UnknownSelector:
        return False
    return True


def _listed(value: object) -> Any:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, list | tuple | set | frozenset) else value
