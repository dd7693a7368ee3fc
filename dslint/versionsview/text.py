"""The window for people, and as lines of a requirements file."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.words import counted
from dslint.versionsview.window import LibraryWindow, Window, allowed_text

_KEY = 9


def render(window: Window) -> str:
    """Text for people."""
    lines = [_python(window), ""]
    for library in window.libraries:
        lines += [*_library(library), ""]
    return "\n".join(lines)


def requirements(window: Window) -> str:
    """One line for each library that can be pinned; the others are comments that say why not."""
    lines = []
    for library in window.libraries:
        if library.pin:
            lines.append(f"{library.library}=={library.pin}")
        else:
            lines.append(f"# {library.library}: {_why_not(library)}")
    return "\n".join(lines) + "\n"


def _python(window: Window) -> str:
    python = window.python
    where = f" ({python.origin})" if python.origin is not None else ""
    why = "" if python.is_stated else f" assumed: {python.why}"
    return f"Python {python.version}{why}{where}"


def _library(found: LibraryWindow) -> Iterator[str]:
    yield found.library
    places = list(dict.fromkeys(bound.place for bound in found.allowed.bounds))
    shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
    yield _row("stated", f"{allowed_text(found.allowed)}{f'  ({shown})' if shown else ''}")
    if found.allowed.is_split:
        yield _row("", "files exclude each other; any of these releases may be installed")
    if found.allowed.reason:
        yield _row("", found.allowed.reason)
    yield _row("code", _code(found))
    for limit, word in ((found.below, "older ones lack"), (found.above, "newer ones lack")):
        if limit is not None:
            yield _row("", f"{word} {limit.what} ({limit.place})")
    yield _row("fresh", found.allowed.fresh or "nothing that is known")
    yield _row("pin", found.pin or _why_not(found))


def _row(key: str, text: str) -> str:
    return f"  {key:<{_KEY}}{text}"


def _code(found: LibraryWindow) -> str:
    if found.needs is None:
        return "no script imports it"
    if not found.needs.read:
        return "imported; the names of its releases are not known"
    if not found.works:
        first = next(iter(found.needs.lacking.values()))
        return f"no release has all that it uses: {first.what} ({first.place})"
    if not found.is_limited:
        return f"{found.works[0]} to {found.works[-1]}, all that are known"
    return f"{found.works[0]} to {found.works[-1]} ({counted(len(found.works), 'release')})"


def _why_not(found: LibraryWindow) -> str:
    if found.allowed.reason:
        return found.allowed.reason
    if not found.works and found.is_limited:
        return "no release has all that the code uses"
    if not found.together:
        return "no release that the files allow has all that the code uses"
    return f"no release goes together with the others on Python {found.allowed.python.version}"
