"""``dslint triage``: arguments, scans, report, exit code."""

from __future__ import annotations

import os
import sys
import zlib

from dslint.core.commandline import say
from dslint.core.terminal import terminal_width, use_color
from dslint.triage.arguments import triage_parser
from dslint.triage.hit import FileResult
from dslint.triage.reading import STANDARD_INPUT, logs, open_log
from dslint.triage.scan import Scan
from dslint.triage.verdict import diagnose

CLEAN, SYMPTOMS_FOUND, TROUBLE = 0, 1, 2


def main(arguments: list[str]) -> int:
    """Run ``dslint triage``; returns the exit code. The report goes to standard output, problems to standard error."""
    args = triage_parser().parse_args(arguments)
    results: list[FileResult] = []
    trouble = False
    try:
        paths = logs(args.logs)
    except OSError as error:
        say(str(error))
        return TROUBLE
    for path in paths:
        try:
            results.append(_scan(path))
        except (OSError, EOFError, zlib.error) as error:
            trouble = True
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            say(f"{path}: {reason}")
    if not results:
        return TROUBLE
    diagnosis = diagnose(results)
    if args.format == "json":
        from dslint.triage.jsonout import render as render_json

        text = render_json(diagnosis)
    else:
        from dslint.triage.text import render

        color = use_color(args.color, sys.stdout, os.environ)
        text = render(diagnosis, args.quotes, terminal_width(sys.stdout, os.environ), color)
    sys.stdout.write(text.encode(sys.stdout.encoding or "utf-8", "replace").decode(sys.stdout.encoding or "utf-8"))
    if trouble:
        return TROUBLE
    return SYMPTOMS_FOUND if diagnosis.verdicts else CLEAN


def _scan(path: str) -> FileResult:
    name = "<stdin>" if path == STANDARD_INPUT else path
    with open_log(path) as stream:
        return Scan(name).run(stream.read)
