"""What the command line of a script may hold, and what one command passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dslint.core.fact import Fact, absent
from dslint.core.source import Location
from dslint.model.launch.command import Word


@dataclass(frozen=True, slots=True)
class Option:
    """One option or operand that a parser declares.

    ``flags`` are all its spellings; an operand has none. ``type`` is the name of the converter (``int``), empty when
    nobody names one or it is no builtin. ``choices`` are ``None`` where anything goes or nobody knows. ``nargs`` as
    argparse takes it. ``required``: argparse refuses a command without it. ``is_opaque``: how many words it takes is
    not known.
    """

    dest: str
    flags: tuple[str, ...]
    location: Location
    default: Fact[object] = field(default_factory=absent)
    type: str = ""
    choices: tuple[object, ...] | None = None
    nargs: str | int | None = None
    action: str = "store"
    required: bool = False
    is_opaque: bool = False

    @property
    def name(self) -> str:
        """The long spelling, or what the operand is called."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0] if self.flags else self.dest)


# Why a parser with ``parse_known_args`` is open.
LETS_PASS = "it lets unknown arguments pass"


@dataclass(frozen=True, slots=True)
class ScriptParser:
    """The parser that reads the command line of a script.

    ``kind``: ``argparse`` | ``hf`` (HfArgumentParser over dataclasses) | ``trl`` (TrlParser) | ``click`` | ``typer`` |
    ``fire`` | ``hydra`` | ``jsonargparse`` | ``lightning`` (LightningCLI) | ``tyro`` | ``simple_parsing`` | ``absl`` |
    ``draccus``.
    ``is_closed``: ``options`` are all that it takes, so that any other stops the script; else ``open_because`` says why
    more may exist. ``location`` is where it parses. ``libraries`` are the (library, class) pairs whose fields are
    options as well: which ones depends on the release. ``reads_file``: beside the command line the script reads a file
    of arguments (``parse_yaml_file``).
    """

    kind: str
    is_closed: bool = False
    options: tuple[Option, ...] = ()
    open_because: str = ""
    location: Location | None = None
    abbreviates: bool = True
    libraries: tuple[tuple[str, str], ...] = ()
    reads_file: bool = False

    @property
    def lets_pass(self) -> bool:
        """All options are in view, and others are dropped without a word (``parse_known_args``)."""
        return self.open_because == LETS_PASS

    def option(self, flag: str) -> Option | None:
        """The option with this spelling."""
        return next((option for option in self.options if flag in option.flags), None)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the parser ends the script.

    ``kind``: ``unknown`` (no such option) | ``leftover`` (an operand that nobody takes) | ``choice`` | ``type`` |
    ``no-value`` | ``explicit`` (``--switch=value``) | ``ambiguous`` | ``missing`` (a required option).
    ``word`` is the word at fault, ``None`` for a missing one.
    """

    kind: str
    word: Word | None = None
    option: Option | None = None


@dataclass(frozen=True, slots=True)
class Passed:
    """What the script gets: a value for each destination (flag, else default), and what its parser refuses.

    ``seen`` are the destinations that the command gives; ``is_whole``: it certainly gives no others.
    """

    values: Mapping[str, Fact[Any]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    seen: frozenset[str] = frozenset()
    is_whole: bool = False
