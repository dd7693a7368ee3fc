"""``env``: its options and assignments; and the environment of another machine or image."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dslint.core.fact import Fact, known, unknown
from dslint.model.launch.command import Word
from dslint.model.launch.launchers.base import ASSIGNMENT, flag_name
from dslint.model.shell.batchjob import MACHINE, is_directive


def forget(env: dict[str, Fact[str]]) -> None:
    """Another machine or image: it may have any variable, but not those of this shell."""
    facts = {name: fact for name, fact in env.items() if is_directive(name) and not name.startswith(MACHINE)}
    env.clear()
    env.update(facts)
    env[""] = unknown("the image or the other machine may set any variable")


# Options of ``env`` that start with no variable at all.
EMPTIES = ("-i", "-", "--ignore-environment")


def environment(words: Sequence[Word], env: dict[str, Fact[str]]) -> tuple[Word, ...]:
    """The words behind the options and assignments of ``env``."""
    at = 0
    while at < len(words):
        word = words[at]
        match = ASSIGNMENT.match(word.text if word.text is not None else word.raw)
        if match and word.text is not None:
            env[match[1]] = known(match[2], word.location.labelled(word.text), *word.origins)
        elif match:
            env[match[1]] = unknown(f"`{match[1]}` is computed", word.location)
        elif word.text in ("-S", "--split-string") and at + 1 < len(words):
            return environment((*_split(words[at + 1]), *words[at + 2 :]), env)
        elif word.text in ("-u", "-C", "--unset", "--chdir"):
            at += 1
            if word.text in ("-u", "--unset") and at < len(words):
                env.pop(words[at].text or "", None)
        elif word.text is not None and word.text.startswith("--unset="):
            env.pop(word.text.partition("=")[2], None)
        elif word.text in EMPTIES:
            kept = {name: fact for name, fact in env.items() if is_directive(name)}
            env.clear()
            env.update(kept)
        elif flag_name(word) is None and not word.spreads:
            break
        at += 1
    return tuple(words[at:])


def _split(word: Word) -> tuple[Word, ...]:
    """The words that ``env -S`` makes of one."""
    try:
        parts = shlex.split(word.text or "")
    except ValueError:
        return (word,)
    return tuple(Word(part, part, word.location, word.origins) for part in parts) or (word,)
