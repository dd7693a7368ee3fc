"""Questions about a script for which not all of it is read: by which words code answers one, and at which calls."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property

from dslint.python.libraries import Libraries

_ARGUMENTS = frozenset({"parses-arguments"})
# Words by which options are added to a parser.
OPTIONS = frozenset({"add_argument", "add_parser", "add_arguments", "set_defaults"})


@dataclass(frozen=True, slots=True)
class Effort:
    """The most steps of a script, of an open function or method, and of a call that has nothing to do with it all.

    And the most ``modules`` that are read: large projects import some 300 from one script, and what comes after these
    is lost.
    """

    script: int = 20_000
    open: int = 5_000
    aside: int = 1_500
    modules: int = 600


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a script.

    ``words`` stand where something happens that is asked about, ``aside`` where its answer is prepared. The calls with
    one of the ``tags``, or of one of the ``apis``, answer it: behind the last of them nothing is read. ``is_open``: so
    do those in functions that nothing calls. ``results``: what the calls give is asked for, too.
    ``effort`` is what an answer is worth; from a script to one are at most so many ``steps`` from file to file.
    ``first`` is another question that may be answered on the way.
    """

    name: str
    words: frozenset[str]
    aside: frozenset[str] = OPTIONS
    tags: frozenset[str] = frozenset()
    apis: frozenset[str] = frozenset()
    is_open: bool = False
    results: bool = False
    effort: Effort = Effort()
    steps: int = 1_000
    first: Question | None = None

    @cached_property
    def all_words(self) -> frozenset[str]:
        """Return both kinds of words."""
        return self.words | self.aside

    @cached_property
    def anywhere(self) -> re.Pattern[str]:
        """Return what is found in a text with one of the words."""
        return re.compile(rf"\b(?:{'|'.join(sorted(self.words))})\b")

    @cached_property
    def at_import(self) -> re.Pattern[str]:
        """Return what is found in a text that does at its top what is asked about."""
        return re.compile(rf"^[^\s#@'\"][^\n]*\b(?:{'|'.join(sorted(self.words))})\(", re.MULTILINE)


@cache
def command_line(rows: Libraries) -> Question:
    """Return the question for the options of a script."""
    return Question("command line", _parsing_words(rows), tags=_ARGUMENTS, effort=Effort(modules=60))


@cache
def _parsing_words(rows: Libraries) -> frozenset[str]:
    """Return the names by which a script parses its command line."""
    found = set()
    for path in rows.tagged(_ARGUMENTS):
        first, _, last = path.rpartition(".")
        is_common = "_" not in last and (last.islower() or last.isupper())
        found.add(first.partition(".")[0] if is_common else last)
    return frozenset(found)
