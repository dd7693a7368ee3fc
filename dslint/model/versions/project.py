"""What the files of one folder ask to be installed: the document of the rules about versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dslint.core.source import SourceFile
from dslint.model.versions.allowed import Allowed, Bound
from dslint.model.versions.requirements import FOLLOWED, Statement
from dslint.model.versions.ways import bounds_by_library


@dataclass(frozen=True, slots=True)
class StatedFile:
    """One file with those that it includes: what it says of each distribution, and of ``python``."""

    source: SourceFile
    bounds: Mapping[str, tuple[Bound, ...]]

    @property
    def name(self) -> str:
        """The name of the file, in lower case."""
        return self.source.path.rsplit("/", 1)[-1].lower()


@dataclass(frozen=True, slots=True)
class Requirements:
    """A folder whose files name a library that is followed.

    ``allowed`` are the answers for scripts in the folder, which the folders above and the user have a say in;
    ``commands`` are workflows and install scripts, which bound nothing where another file speaks.
    """

    folder: str
    allowed: Allowed
    files: tuple[StatedFile, ...]
    commands: tuple[StatedFile, ...] = ()


Stated = Iterable[tuple[SourceFile, list[tuple[SourceFile, Statement]]]]


def requirements_in(folder: str, files: Stated, commands: Stated, allowed: Allowed) -> Requirements | None:
    """The document of a folder; ``None`` where its files name no library that is followed."""
    stated, others = (
        tuple(StatedFile(source, bounds_by_library(statements)) for source, statements in read)
        for read in (files, commands)
    )
    if not any(name in file.bounds for file in (*stated, *others) for name in FOLLOWED):
        return None
    return Requirements(folder, allowed, stated, others)
