"""``dslint.preflight()``: the judgement for a script that runs already, without a trace in its process.

An interpreter of its own judges: no module, no thread, no signal handler and no memory of dslint stays in the script.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dslint.core.terminal import terminal_width, use_color
from dslint.runner.command import summary
from dslint.runner.judging import Request
from dslint.runner.ranks import rank_of, script_launch
from dslint.runner.report import Report
from dslint.runner.watch import PATIENCE, Answer, Failure

# What an interpreter needs to start, beside what it is asked for.
_MARGIN = 10.0
_GOES_ON = ("; the script goes on", ": the script stops (fail_on={})")


def answer_of(words: Sequence[str], flags: Mapping[str, Any], seconds: float) -> tuple[Answer, list[str]]:
    """The judgement on a script with these words as ``sys.argv``, and what this process has to say about it."""
    rank = rank_of(os.environ)
    if not rank.judges:
        return Report(), []
    try:
        answer = _asked(_request(words, flags), seconds)
    except Exception as error:
        if os.environ.get("DSLINT_DEBUG"):
            raise
        answer = Failure(" ".join(f"internal error: {type(error).__name__}: {error}".split()))
    if not rank.reports:
        return answer, []
    text = answer.text if isinstance(answer, Report) else ""
    return answer, [text, *summary(answer, _GOES_ON, quiet=False)]


def _request(words: Sequence[str], flags: Mapping[str, Any]) -> Request:
    environ = dict(os.environ)
    launch = script_launch(words, environ, _module(words), sys.executable or "python")
    color, width = use_color("auto", sys.stderr, environ), terminal_width(sys.stderr, environ)
    return Request(tuple(launch), tuple(words), environ, dict(flags), color=color, width=width, runs=True)


def _module(words: Sequence[str]) -> str | None:
    """The dotted name of the module that ``-m`` has started, if it is this script."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is None or list(words) != sys.argv:
        return None
    name: str = spec.name
    return name.removesuffix(".__main__")


def _asked(request: Request, seconds: float) -> Answer:
    """The answer of another interpreter."""
    command = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "entry.py")]
    limit = PATIENCE + _MARGIN + seconds if seconds else None
    question = pickle.dumps((request, seconds))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        try:
            out, _ = child.communicate(question, timeout=limit)
        except BaseException:
            child.kill()
            raise
    found = pickle.loads(out) if out else None
    return found if isinstance(found, Report | Failure) else Failure("the process that judges died")
