"""The words of ``python``: its own options, then a script, or ``-m`` and a module."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dslint.model.launch.command import Word
from dslint.model.launch.launchers.adapters import program_name
from dslint.model.launch.launchers.base import flag_name

_PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)?)?")
_PYTHON_VARIABLE = re.compile(r"""["']?\$\{?\w*PY(?:THON)?(?:_?(?:BIN|EXE|PATH|EXECUTABLE|CMD))?\}?["']?""")
# Options of the interpreter that take a value.
_VALUES = frozenset({"-W", "-X", "--check-hash-based-pycs"})


def is_python(name: str) -> bool:
    """The name of an interpreter: ``python3.11``."""
    return _PYTHON.fullmatch(name) is not None


def starts_python(word: Word) -> bool:
    """The word is an interpreter, also as ``$PYTHON``."""
    return is_python(program_name(word)) or _PYTHON_VARIABLE.fullmatch(word.raw) is not None


def operand_at(words: Sequence[Word]) -> int:
    """Where the script, ``-m``, ``-c`` or a word that may be anything stands; 0 for none."""
    at = 1
    while at < len(words):
        word = words[at]
        if word.text in ("-m", "-c", "-") or word.spreads or flag_name(word) is None:
            return at
        at += 2 if word.text in _VALUES else 1
    return 0


def module_at(words: Sequence[Word]) -> int:
    """Where the module of ``python -m`` stands; 0 for none."""
    at = operand_at(words) if words and starts_python(words[0]) else 0
    return at + 1 if at and words[at].text == "-m" and at + 1 < len(words) else 0
