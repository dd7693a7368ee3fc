"""Which options a launcher has, by release: torchrun, ``torch.distributed.launch``, deepspeed, accelerate launch.

``schemas/launcher_options.json`` is generated from the released parsers (``scripts/generate_launcher_options.py``):
torch 1.9 to 2.13, deepspeed 0.3 to 0.19.8, accelerate 0.1 to 1.15. Open ends are left open: what the newest release of
the table has, later ones have too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dslint.core.schemafiles import load_file
from dslint.model.context import VersionFact
from dslint.model.versions.resolve import holds_between

FILE = "launcher_options.json"
_NOBODY = VersionFact()
_TORCH_LAUNCH = "torch.distributed.launch"


@dataclass(frozen=True, slots=True)
class LauncherOption:
    """An option of a launcher.

    ``name`` is spelled with ``_``, as the launch commands of the model spell it; ``spellings`` are those that some
    release in use takes, the newest parser's first. ``kind`` is what the value must be: ``str``, ``int``, ``float`` or
    the name of a function; ``choices`` are the values of the newest release, empty where any will do.
    """

    name: str
    spellings: tuple[str, ...]
    takes_value: bool
    kind: str = "str"
    choices: tuple[str, ...] = ()


def library_of(launcher: str) -> str:
    """The library whose version decides: ``torch`` for ``torchrun``; empty for a launcher without a table."""
    return str(_data()[launcher]["library"]) if launcher in _data() else ""


def has_table(launcher: str) -> bool:
    """Whether the options of a launcher are known by release."""
    return launcher in _data()


def launcher_options(launcher: str, version: VersionFact = _NOBODY, program: str = "") -> tuple[LauncherOption, ...]:
    """The options that a launcher has in some of the releases in use; all there ever were when nobody states one.

    Args:
        launcher: ``torchrun`` | ``deepspeed`` | ``accelerate``, as in ``LaunchCommand.launcher``.
        version: of the library of :func:`library_of`.
        program: ``LaunchCommand.program``: ``python -m torch.distributed.launch`` has options of its own.
    """
    found = []
    for table, name, row in _rows(launcher, program):
        spellings = tuple(s for s, span in row["names"].items() if _holds(table, span, version) != "no")
        if spellings:
            choices = tuple(map(str, row.get("choices", ())))
            takes = row["takes"] == "value"
            found.append(LauncherOption(name, spellings, takes, row.get("type", "str") if takes else "", choices))
    return tuple(found)


def accepts(launcher: str, typed: str, version: VersionFact = _NOBODY, program: str = "") -> str:
    """Whether a launcher takes an option as it is typed: ``yes``, ``no``, or ``maybe`` where releases in use differ.

    ``typed`` is the option alone (``--nproc-per-node`` of ``--nproc-per-node=8``). A prefix that fits one option will
    do where the parser abbreviates; one that fits two spellings of the same option is ``maybe``: older Pythons
    call it ambiguous (3.11 does, with torch 2.13).
    """
    if not has_table(launcher):
        return "maybe"
    exact = [_holds(t, row["names"][typed], version) for t, _, row in _rows(launcher, program) if typed in row["names"]]
    if exact and exact[0] == "yes":
        return "yes"
    short = _short(launcher, typed, version, program)
    if short == "yes":
        return "yes"
    return "maybe" if exact == ["maybe"] or short == "maybe" else "no"


def since(launcher: str, typed: str, program: str = "") -> str:
    """The release that brought a spelling; empty for one that the oldest release of the table has, or none."""
    return _change(launcher, typed, program, 0)


def until(launcher: str, typed: str, program: str = "") -> str:
    """The release that took a spelling away; empty where the newest one has it, and for no option."""
    return _change(launcher, typed, program, 1)


def nearest(launcher: str, typed: str, version: VersionFact = _NOBODY, program: str = "") -> str:
    """The option that is spelled most like this one, in the spelling of the newest release; empty when none is near."""
    import difflib

    names = {s: o for o in launcher_options(launcher, version, program) for s in o.spellings if s.startswith("--")}
    wanted = typed.replace("-", "_").replace("__", "--", 1)
    if (same := next((s for s in names if s.replace("-", "_").replace("__", "--", 1) == wanted), "")) != "":
        return same
    close = difflib.get_close_matches(typed, names, n=1, cutoff=0.75)
    return close[0] if close else ""


def _short(launcher: str, typed: str, version: VersionFact, program: str) -> str:
    """The same for an abbreviation."""
    spans = _data()[launcher]["abbreviates"]
    shortens = _holds(launcher, spans, version)
    if shortens == "no" or not typed.startswith("--") or len(typed) < 3:
        return "no"
    fits = [
        (name, _holds(table, span, version))
        for table, name, row in _rows(launcher, program)
        for spelling, span in row["names"].items()
        if spelling.startswith(typed)
    ]
    fits = [(name, holds) for name, holds in fits if holds != "no"]
    certain = [name for name, holds in fits if holds == "yes"]
    if not fits or len(set(certain)) > 1:
        return "no"
    return "yes" if len(fits) == 1 and certain and shortens == "yes" else "maybe"


def _change(launcher: str, typed: str, program: str, at: int) -> str:
    for table, _, row in _rows(launcher, program):
        span = row["names"].get(typed, [])
        if len(span) > at and not (at == 0 and span[0] == _data()[table]["releases"][0]):
            return str(span[at])
    return ""


def _rows(launcher: str, program: str) -> list[tuple[str, str, dict[str, Any]]]:
    """The rows of a launcher: the table they stand in, the name and the row of each."""
    tables = [launcher] if launcher in _data() else []
    if program.endswith(_TORCH_LAUNCH):
        tables.append(_TORCH_LAUNCH)
    return [(table, name, row) for table in tables for name, row in _data()[table]["options"].items()]


def _holds(table: str, span: list[str], version: VersionFact) -> str:
    """Whether the releases in use lie in the spans between the changes."""
    return holds_between(span, _data()[table]["releases"][0], version, _data()[table]["library"])


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    return {launcher: table for launcher, table in load_file(FILE).items() if not launcher.startswith("$")}
