"""DeepSpeed configs that a shell script writes: ``cat > ds.json <<EOF``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dslint.model.deepspeed.detect import is_deepspeed_config
from dslint.model.embedded.shelltext import Written
from dslint.model.shell.commands import Heredoc
from dslint.model.shell.pieces import UnknownWordError
from dslint.model.shell.words import expand_assignment
from dslint.parse.data import DataDoc
from dslint.parse.shell import ShellDoc

_WORD = r"(\"[^\"]*\"|'[^']*'|[^\s;|&<>\"']+)"
_TARGET = re.compile(rf"(?<![>&0-9])>\s*{_WORD}|\btee\s+{_WORD}")
_APPENDS = re.compile(r">>|\btee\s+-")
_WRITER = re.compile(r"\s*(?:sudo\s+)?(?:cat|tee)\b")


@dataclass(frozen=True, slots=True)
class WrittenConfig:
    """A config that a shell script writes. ``target`` is the file as the script names it, ``None`` when unknown.

    ``steps``: so many commands make the file of others (``sed``, ``jq``); it replaces what was written there before.
    """

    doc: DataDoc
    target: str | None
    at: int
    steps: int = 0


def written_config(shell: ShellDoc, heredoc: Heredoc) -> WrittenConfig | None:
    """The config that a heredoc writes to a file, ``None`` for other texts."""
    head = heredoc.head.partition("<<")
    rest = re.sub(r"^-?\s*\S+", " ", head[2])
    command = head[0] + rest
    found = _TARGET.search(command)
    if shell.anchor is not None or found is None or _APPENDS.search(command) or not _WRITER.match(command):
        return None
    target = _expanded(found[1] or found[2], heredoc)
    return config_in(written_text(shell, heredoc), target, shell.base + heredoc.start)


def written_text(shell: ShellDoc, heredoc: Heredoc) -> Written:
    """Return what bash hands on of a heredoc."""
    lookup = None if heredoc.is_literal else heredoc.scope.lookup()
    return Written.of_body(shell.source, heredoc.body, shell.base + heredoc.start, lookup)


def target_of(heredoc: Heredoc) -> str | None:
    """Return the file that takes a heredoc as it is; ``None`` where no such command writes it."""
    head = heredoc.head.partition("<<")
    command = head[0] + re.sub(r"^-?\s*\S+", " ", head[2])
    found = _TARGET.search(command)
    if found is None or _APPENDS.search(command) or not _WRITER.match(command):
        return None
    return _expanded(found[1] or found[2], heredoc)


def config_in(text: Written | DataDoc, target: str | None, at: int, steps: int = 0) -> WrittenConfig | None:
    """Return the config in a text that a script writes to a file, ``None`` for other texts."""
    doc = text.document() if isinstance(text, Written) else text
    name = (target or "ds_config.json").rpartition("/")[2]
    keys = {
        **{p[1:]: None for p in doc.opaque if p.count("/") == 1},
        **(doc.data if isinstance(doc.data, dict) else {}),
    }
    if (doc.problems and doc.opaque) or not is_deepspeed_config(name if "." in name else "config.json", keys):
        return None
    return WrittenConfig(doc, target, at, steps)


def _expanded(word: str, heredoc: Heredoc) -> str | None:
    try:
        return expand_assignment(word, heredoc.scope.lookup())
    except UnknownWordError:
        return None
