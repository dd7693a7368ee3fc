"""A piece of shell text inside another file, with what that file says about its environment."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dslint.core.fact import Fact, absent
from dslint.core.source import SourceFile, Span
from dslint.model.shell.pieces import Value
from dslint.model.shell.scope import Scope

# A word that nobody knows, and words that nobody knows: names that no script sets.
UNKNOWN_WORD = '"$_"'
UNKNOWN_WORDS = "$ARGS"


@dataclass(frozen=True, slots=True)
class Snippet:
    """Shell text, and the state that it is started in.

    ``text`` begins at ``base`` in the file and has the length of what stands there, unless ``anchor`` says where to
    report all of it. ``variables`` are set before; those in ``exported`` reach the commands, ``None`` is a value that
    is not known. ``is_open``: an image or another program may set further ones. ``cwd``: the directory, where the file
    says it. ``written`` is the text before names took the place of what another program fills in. ``has_pipefail``:
    the shell is started with ``-o pipefail``. ``machine`` are facts about the machine (``MACHINE_GPUS``).
    """

    text: str
    base: int = 0
    anchor: Span | None = None
    variables: Mapping[str, Value | None] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()
    is_open: bool = False
    cwd: Fact[str] = field(default_factory=absent)
    written: str = ""
    has_pipefail: bool = False
    machine: Mapping[str, Fact[str]] = field(default_factory=dict)

    def scope(self) -> Scope:
        """The state for the reader of shell text."""
        scope = Scope(open=self.is_open, directory=self.cwd)
        for name, value in self.variables.items():
            scope.assign(name, value, export=name in self.exported)
        return scope


def value_at(source: SourceFile, text: str, span: Span) -> Value:
    """A variable that the file sets."""
    return Value(text, None, (source.location(span),))


def command_line(words: Sequence[object]) -> str:
    """The words of an exec form as a shell reads them; what is no text is a word that nobody knows."""
    return " ".join(_word(word) for word in words)


def _word(word: object) -> str:
    if isinstance(word, bool) or not isinstance(word, str | int | float):
        return UNKNOWN_WORD
    text = str(word)
    return UNKNOWN_WORD if "\0" in text else shlex.quote(text)


def shell_text(words: Sequence[object]) -> int | None:
    """The index of the text in ``["bash", "-c", text]``."""
    if len(words) < 3 or not all(isinstance(w, str) for w in words[:3]):
        return None
    name = str(words[0]).rpartition("/")[2]
    flag = str(words[1])
    is_shell = name in ("bash", "sh", "zsh", "dash") and flag.startswith("-") and flag.endswith("c")
    return 2 if is_shell else None


def unset(length: int) -> str:
    """A variable that nobody sets, as long as what it stands for (at least two characters)."""
    return "$" + "_" * (length - 1)
