"""The flags of ``dslint doctor``."""

from __future__ import annotations

import argparse

from dslint.core.commandline import Parser, format_flag

_EPILOG = """\
exit codes: 0 nothing wrong, 1 a warning or an error, 2 wrong usage. A check that could not decide (unknown) does
not fail.
"""


def _host(text: str) -> str:
    # It becomes an argument of ssh, where a leading dash would be an option.
    if (
        not text
        or text.startswith("-")
        or any(character.isspace() or not character.isprintable() for character in text)
    ):
        raise argparse.ArgumentTypeError(f"`{text}` is no host name")
    return text


def doctor_parser() -> argparse.ArgumentParser:
    """The parser of ``dslint doctor``."""
    parser = Parser(
        prog="dslint doctor",
        description="Look at this machine: stale locks, broken builds, tool chain, versions, network, limits.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--fix", action="store_true", help="remove locks that are proven stale; nothing else")
    parser.add_argument("--yes", action="store_true", help="with --fix: do not ask")
    parser.add_argument(
        "--check", action="append", default=[], metavar="ID|NAME", help="only this check (may be repeated)"
    )
    parser.add_argument("--list", action="store_true", help="list the checks and run none")
    parser.add_argument(
        "--python", metavar="PATH", help="the interpreter whose environment to look at (default: its own)"
    )
    parser.add_argument("--hostfile", metavar="FILE", help="a DeepSpeed hostfile: check it, and reach its hosts by ssh")
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        type=_host,
        metavar="HOST",
        help="reach this host by ssh (may be repeated)",
    )
    format_flag(parser, ("text", "json"), dest="format", default="text", help="default: text")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: auto")
    return parser
