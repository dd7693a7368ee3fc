"""The flags of ``dslint triage``; imports nothing heavy."""

from __future__ import annotations

import argparse

from dslint.core.commandline import Parser, format_flag

_EPILOG = """\
Several logs are the ranks of one run: give all of them. A folder stands for the logs in it, - for standard input;
.gz is read as it is. The rank of a line is read from what launchers put before it ([rank3]:, [default3]:, srun -l,
mpirun, pdsh) or from the file's name (rank_3.log, 3/stderr.log).

exit codes: 0 no known symptom, 1 symptoms found, 2 wrong usage or a log that cannot be read.
"""


def _quotes(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 8:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to 8, found `{text}`")
    return int(text)


def triage_parser() -> argparse.ArgumentParser:
    """The parser of ``dslint triage``."""
    parser = Parser(
        prog="dslint triage",
        description="Read the log of a hung or failed run: which symptoms it shows, likely causes, what to check.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("logs", nargs="+", metavar="LOG", help="log file or folder; - reads standard input")
    format_flag(parser, ("text", "json"), dest="format", default="text", help="default: text")
    parser.add_argument("--quotes", type=_quotes, default=3, metavar="N", help="lines quoted per symptom (default: 3)")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: auto")
    return parser
