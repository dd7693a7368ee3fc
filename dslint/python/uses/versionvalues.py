"""The helpers by which programs ask for releases: `is_torch_version(">=", "2.0")`, `RequirementCache`, and the like."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packaging.version import Version

Release = Callable[[str], str | None]


class _Absent:
    """What is not there: false in every test, and equal to `None`."""

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return other is None or other is self

    def __hash__(self) -> int:
        return 0


ABSENT = _Absent()
_PARSERS = frozenset(
    {
        "parse",
        "Version",
        "LooseVersion",
        "StrictVersion",
        "parse_version",
        "digit_version",
        "TorchVersion",
        "parseVersion",
    }
)
_OF_LIBRARY = re.compile(r"is_(\w+?)_version$")
_AT_LEAST = re.compile(r"(?:is_)?(\w+?)_(?:greater_or_equal|greater_equal|version_at_least|gte|ge)(?:_than)?$", re.I)
_NAMED = re.compile(
    r"_*(?:is_|IS_|HAS_)?(\w+?)_?(greater_or_equal|greater_equal|greater|less_than|less|ge|gte|lt)(?:_than|_thn)?_(\d+(?:_\d+)*)$",
    re.I,
)
_VERSION_NAME = re.compile(r"_*(\w+?)_version$", re.I)
_COMPARE = {
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "==": "==",
    "!=": "!=",
    "lt": "<",
    "ge": ">=",
    "gt": ">",
    "le": "<=",
}


@lru_cache(maxsize=1024)
def number_of(text: str) -> Version:
    """Return a version.

    Raises:
        ValueError: the text is none.
    """
    from packaging.version import Version

    return Version(text.strip())


def _meets(release: str | None, operation: str, wanted: str) -> bool | None:
    from packaging.specifiers import SpecifierSet

    if release is None or operation not in _COMPARE:
        return None
    # The base of a release before the final one counts, as those helpers have it.
    base = number_of(wanted).base_version if operation in (">=", "<") else wanted
    return SpecifierSet(f"{_COMPARE[operation]}{base}").contains(release, prereleases=True)


def _required(text: str, release: Release) -> bool | None:
    match = re.match(r"\s*([\w.-]+?)\s*([<>=!~].*)?$", text)
    found = release(match[1].replace("-", "_")) if match else None
    if match is None or found is None:
        return None
    from packaging.specifiers import SpecifierSet

    return not match[2] or SpecifierSet(match[2]).contains(found, prereleases=True)


def called_version(name: str, dotted: str, given: list[Any], release: Release) -> Any:
    """Return what a call of a helper gives; ``None`` where it is none, or the release is open."""
    first = given[0] if given else None
    if name in _PARSERS and len(given) == 1:
        return number_of(str(first))
    if name in ("version", "get_package_version") and isinstance(first, str):
        return release(first.replace("-", "_"))
    if name in ("RequirementCache", "require_version", "requires", "require_version_core") and isinstance(first, str):
        return _required(first, release)
    if name == "check_min_version" and isinstance(first, str):
        return _meets(release(dotted.partition(".")[0]), ">=", first)
    if name == "compare_versions" and len(given) == 3:
        left = release(first) if isinstance(first, str) and first[:1].isalpha() else str(first)
        return _meets(left, str(given[1]), str(given[2]))
    match = _OF_LIBRARY.match(name)
    if match and len(given) == 2:
        return _meets(release(match[1]), str(first), str(given[1]))
    match = _AT_LEAST.match(name)
    return _meets(release(match[1].lower()), ">=", str(first)) if match and isinstance(first, str) else None


def asked_by_name(name: str, release: Release) -> Any:
    """Return what a flag says by its name (`is_torch_greater_or_equal_than_2_0`), or the version that it holds."""
    match = _NAMED.match(name)
    if match:
        word = match[2].lower()
        operation = "<" if word.startswith("l") else ">=" if "equal" in word or word in ("ge", "gte") else ">"
        return _meets(release(match[1].lower()), operation, match[3].replace("_", "."))
    match = _VERSION_NAME.match(name)
    return release(match[1].lower()) if match else None


def compared(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> bool:
    """Compare two values; a version that is compared with a text is taken for one, as `TorchVersion` does."""
    from packaging.version import Version

    if isinstance(left, Version) and isinstance(right, str):
        right = number_of(right)
    elif isinstance(right, Version) and isinstance(left, str):
        left = number_of(left)
    return bool(operation(left, right))
