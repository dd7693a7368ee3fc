"""What is wrong in the settings, as one line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


class SettingsError(ValueError):
    """Settings that cannot be used: ``place: what, and what to write instead``."""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """``"; did you mean `select`?"``, or the known words when nothing is near."""
    from difflib import get_close_matches

    known = list(candidates)
    wanted = word.replace("_", "-").lower()
    near = get_close_matches(wanted, known, n=1, cutoff=0.6) or [k for k in known if k.startswith(wanted)]
    return f"; did you mean `{near[0]}`?" if near else f"; known are {', '.join(f'`{k}`' for k in known)}"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a set of values comes from, to say so when one of them is wrong.

    ``file`` and ``text`` belong to a settings file, whose keys stand below ``table`` ("tool", "dslint");
    ``title`` names any other origin ("command line").
    """

    title: str
    file: Path | None = None
    text: str = ""
    table: tuple[str, ...] = ()

    def error(self, message: str, key: tuple[str, ...] = ()) -> SettingsError:
        """The error for the value at ``key``, with the line of the file where it can be found."""
        if self.file is None:
            return SettingsError(f"{self.title}: {message}")
        from dslint.settings.places import find_line

        line = find_line(self.text, (*self.table, *key)) if key else None
        where = shown(self.file) + (f":{line}" if line else "")
        return SettingsError(f"{where}: {message}")


def shown(path: Path) -> str:
    """The path as the user would type it: relative when it lies below the working directory."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return str(path)
