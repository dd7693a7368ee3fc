"""What the command line of a script may hold, and what one command passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dslint.core.fact import Fact
from dslint.core.source import Location
from dslint.model.launch.command import Word
from dslint.python.plainoptions import Option

# Why a parser with ``parse_known_args`` is open.
# How the name of a file of arguments ends: `train.py args.yaml`.
ARGUMENT_FILES = (".yaml", ".yml", ".json")
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
    of arguments (``parse_yaml_file``); ``takes_words_beside_file``: and the words after the name of that file, too.
    ``commands`` are the parsers of ``add_subparsers`` by their names, of which the operand ``command`` takes one. For a
    command line the ``options`` are those of the parser and of the commands that it names; ``whole`` is the parser
    before. ``is_joined``: several parsers read the command line, and ``options`` are those of all.
    """

    kind: str
    is_closed: bool = False
    options: tuple[Option, ...] = ()
    open_because: str = ""
    location: Location | None = None
    abbreviates: bool = True
    libraries: tuple[tuple[str, str], ...] = ()
    reads_file: bool = False
    commands: tuple[tuple[str, ScriptParser], ...] = ()
    command: Option | None = None
    whole: ScriptParser | None = None
    is_joined: bool = False
    takes_words_beside_file: bool = False

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


__all__ = ["LETS_PASS", "Option", "Passed", "Problem", "ScriptParser"]
