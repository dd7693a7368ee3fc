"""The names that the settings of a project add: guards, collectives, trainers and engines of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cached_property

# The class that a trainer of the project works like.
TRAINER = "transformers.Trainer"


@dataclass(frozen=True)
class Vocabulary:
    """Names of the project's own that mean what names of the known libraries mean (``[tool.dslint.names]``).

    A dotted name (``mylib.dist.is_chief``) is the imported object; a bare one (``is_chief``) is any function, method,
    property, flag or class of that name. ``guards`` are true on the main process only, or let only it into a function
    when they decorate one; ``collectives`` need every rank; ``trainers`` are classes that work like the Trainer of
    transformers; ``engines`` are callables that return a DeepSpeed engine, or a tuple that begins with one.
    """

    guards: tuple[str, ...] = ()
    collectives: tuple[str, ...] = ()
    trainers: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()

    @cached_property
    def words(self) -> frozenset[str]:
        """Return the last parts of all names."""
        return frozenset(name.rpartition(".")[2] for kind in fields(self) for name in getattr(self, kind.name))

    def stands_in(self, raw: bytes) -> bool:
        """Return whether some of the names occur in the bytes of a file, about which rules know nothing else."""
        found = [word.encode() for word in self.words if word.encode() in raw]
        return bool(found) and re.search(rb"\b(?:" + b"|".join(found) + rb")\b", raw) is not None

    def kind(self, full: str) -> str:
        """Return the key of the settings that holds a name, as qualified as it is known; empty for other names."""
        if full.rpartition(".")[2] not in self.words:
            return ""
        return next((kind.name for kind in fields(self) if is_named(full, getattr(self, kind.name))), "")


def is_named(full: str, words: tuple[str, ...]) -> bool:
    """Return whether a name, as qualified as it is known, is one of the words of a :class:`Vocabulary`.

    ``.dist.is_chief`` (a relative import) is taken for any dotted word that ends in it.
    """
    last, relative = full.rpartition(".")[2], full.lstrip(".")
    return any(word in (full, last) or (relative != full and f".{word}".endswith(f".{relative}")) for word in words)


def is_trainer(own: Vocabulary | None, module: str, name: str) -> bool:
    """Return whether a class of the project is one that the settings call a trainer."""
    return own is not None and own.kind(f"{module}.{name}" if module else name) == "trainers"
