"""What the parsers of all commands share: mistakes are one line that suggests the nearest flag."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn


def say(message: str) -> None:
    """One line on standard error, whatever a path or an error holds."""
    sys.stderr.write(f"dslint: {' '.join(message.splitlines())}\n")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line on standard error and exit code 2, not the usage of forty flags."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As everybody calls it, but paths and flags may stand in any order: ``a.py --select DSL2 b.py``."""
        given = sys.argv[1:] if args is None else args
        if "--" in given:  # which argparse forgets between its two passes over mixed arguments
            return super().parse_args(given, namespace)
        return self.parse_intermixed_args(given, namespace)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and which flag may have been meant."""
        sys.stderr.write(f"dslint: {message}{self._nearest(message)} (see {self.prog} --help)\n")
        raise SystemExit(2)

    def _nearest(self, message: str) -> str:
        flag = message.removeprefix("unrecognized arguments: ").split()[0].partition("=")[0]
        if not flag.startswith("--"):
            return ""
        from difflib import get_close_matches

        near = get_close_matches(flag, self._option_string_actions, n=1)
        return f"; did you mean `{near[0]}`?" if near else ""


def format_flag(
    parser: argparse._ActionsContainer, choices: Sequence[str], dest: str = "output_format", **more: Any
) -> None:
    """Add ``--output-format``, which is ``--format`` as well: one name for all commands, whichever one remembers."""
    parser.add_argument("--output-format", "--format", choices=choices, dest=dest, **more)


def positive(text: str) -> int:
    """The type of a flag that counts something.

    Raises:
        argparse.ArgumentTypeError: not a whole number of at least 1.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, found `{text}`")
    return int(text)
