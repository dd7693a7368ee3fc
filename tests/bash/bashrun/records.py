"""What the stubs wrote down."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Variables of the sandbox and of bash itself.
_OWN = re.compile(r"DSLINT_.*|BASH_ENV|PWD|OLDPWD|SHLVL|_|BASH_FUNC_.*|FUNCNEST")
_AT = re.compile(r"(?P<file>.*):(?P<line>\d+)")


@dataclass(frozen=True, slots=True)
class Record:
    """One start of a program: its words, the variables that differ from the start of the script, the directory.

    ``at`` lists where it was started, outermost first: (file, line) pairs, several when one bash started another.
    ``inside`` is the record of the program that ran it (``srun``, ``nohup``), or "".
    """

    id: str
    inside: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    at: tuple[tuple[str, int], ...]


def read_records(folder: Path, start: Mapping[str, str]) -> Iterator[Record]:
    """The records of a run in the order of time."""
    for path in sorted(folder.iterdir(), key=lambda p: [int(n) for n in p.name.split(".")]):
        fields = path.read_bytes().decode("utf-8", "surrogateescape").split("\0")
        if len(fields) < 5 or not fields[3].isdigit():
            continue  # killed while it wrote
        end = 5 + int(fields[3])
        variables = (f.split("=", 1) for f in fields[end:] if "=" in f)
        env = {n: v for n, v in variables if not _OWN.fullmatch(n) and start.get(n) != v}
        places = (_AT.fullmatch(part) for part in fields[0].split("|"))
        at = tuple((m["file"], int(m["line"])) for m in places if m)
        yield Record(path.name, fields[1], tuple(fields[4:end]), env, fields[2], at)
