"""``dslint run -- COMMAND ...``: judge the command, say it on standard error, become the command.

Exit codes of its own: 1 findings, 2 wrong usage, 126 and 127 as a shell gives them, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dslint.core.commandline import say
from dslint.runner.execute import NotStarted, become, missing, own_environment
from dslint.runner.ranks import Rank, rank_of, task_launcher
from dslint.runner.report import Report
from dslint.runner.watch import Answer, Failure, judged

OK, FINDINGS, USAGE = 0, 1, 2
# In front of a job, in seconds; what Python takes of it to begin, and the system to begin something else.
TIME_LIMIT, _OVERHEAD = 0.5, 0.06
# What follows.
CHECKED = ("", "")
STARTS = ("; the command starts", ": the command does not start (--fail-on {})")
# Flags of this command; the others are settings.
_OWN = frozenset(
    {
        "check_only",
        "time_limit",
        "config",
        "isolated",
        "project_rules",
        "quiet",
        "color",
        "output_format",
        "ignore_noqa",
    }
)


def main(arguments: Sequence[str], parser: ArgumentParser) -> int:
    """Run ``dslint run`` with these arguments; returns only where the command does not start.

    ``parser`` reads the flags before ``--``.
    """
    begin = time.monotonic() - _OVERHEAD
    options, argv = _divided(list(arguments), parser)
    if not argv:
        say("run needs a command: dslint run -- torchrun --nproc_per_node 8 train.py (see dslint run --help)")
        return USAGE
    refused = missing(argv[0], own_environment())
    if refused is not None:
        say(str(refused))
        return refused.code
    rank = rank_of(os.environ)
    answer = _answer(options, argv, rank, begin)
    code = _said(answer, options, rank)
    is_misused = isinstance(answer, Failure) and answer.is_usage
    if code == FINDINGS or is_misused or "check_only" in options:
        return code
    try:
        become(argv)
    except NotStarted as error:
        say(str(error))
        return error.code


def _divided(arguments: list[str], parser: ArgumentParser) -> tuple[Namespace, list[str]]:
    """The flags of dslint, and the command: what stands behind ``--``, or all where the first word is no flag."""
    if arguments and not arguments[0].startswith("-"):
        return parser.parse_args([]), arguments
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return parser.parse_args(arguments[:at]), arguments[at + 1 :]


def _answer(options: Namespace, argv: Sequence[str], rank: Rank, begin: float) -> Answer:
    """The judgement; whatever fails in it is an answer, too."""
    flags = vars(options)
    seconds = flags.get("time_limit", 0.0 if "check_only" in flags else TIME_LIMIT)
    try:
        if not rank.judges:
            return Report()
        return judged(_request(flags, argv), seconds, begin)
    except Exception as error:
        if os.environ.get("DSLINT_DEBUG"):
            raise
        return Failure(" ".join(f"internal error: {type(error).__name__}: {error}".split()))


def _request(flags: dict[str, Any], argv: Sequence[str]) -> Any:
    from dslint.core.terminal import terminal_width, use_color
    from dslint.runner.judging import Request

    environ = dict(os.environ)
    default = "full" if sys.stderr.isatty() else "concise"
    return Request(
        (*task_launcher(argv, environ), *argv),
        tuple(argv),
        environ,
        {name.replace("_", "-"): value for name, value in flags.items() if name not in _OWN},
        flags.get("config"),
        flags.get("isolated", False),
        flags.get("project_rules", False),
        use_color(flags.get("color", "auto"), sys.stderr, environ),
        terminal_width(sys.stderr, environ),
        flags.get("quiet", False),
        flags.get("output_format", default),
        ignore_noqa=flags.get("ignore_noqa", False),
    )


def _said(answer: Answer, options: Namespace, rank: Rank) -> int:
    """Print the report where this process is the one that reports; the exit code if the command does not start."""
    flags = vars(options)
    is_check = "check_only" in flags
    lines = summary(answer, CHECKED if is_check else STARTS, quiet=flags.get("quiet", False))
    if rank.reports:
        # Where nobody listens the job is none the worse for it.
        with suppress(OSError, ValueError):
            sys.stderr.write((answer.text if isinstance(answer, Report) else "") + "".join(lines))
            sys.stderr.flush()
    if isinstance(answer, Failure):
        return USAGE
    return OK if answer.ok else FINDINGS


def summary(answer: Answer, ends: tuple[str, str], *, quiet: bool) -> list[str]:
    """The last lines of the report; ``ends`` say what follows where nothing is found, and where something is."""
    goes, stops = ends
    if isinstance(answer, Failure):
        goes = "" if answer.is_usage else goes
        return [f"dslint: {answer.message}{goes}{' unchecked' if goes else ''}\n"]
    from dslint.core.words import counted

    counts = [
        counted(number, severity)
        for severity in ("error", "warning", "info")
        if (number := sum(finding.severity.value == severity for finding in answer.findings))
    ]
    lines = [] if quiet else [f"dslint: {line}\n" for line in answer.problems]
    if not answer.ok:
        lines.append(f"dslint: {', '.join(counts)}{stops.format(answer.fail_on)}\n")
    elif (answer.files or answer.text) and not quiet:
        where = f" in {counted(answer.files, 'file')}" if answer.files else ""
        lines.append(f"dslint: {', '.join(counts) or 'no problems'}{where}{goes}\n")
    return lines
