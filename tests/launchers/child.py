"""A process that has imported the launchers: reads one request a line, answers one a line.

A request is ``[launcher, words, environment, devices]`` of ``dslint.probe.parts.launch_parsers.launched``; the answer
is what that returns, or ``{"error": "Type: message"}``.
"""

from __future__ import annotations

import json
import os
import sys
import warnings


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    warnings.simplefilter("ignore")
    from dslint.probe.parts.launch_parsers import launched

    for line in sys.stdin:
        launcher, words, environment, devices = json.loads(line)
        try:
            answer = launched(launcher, words, environment, devices)
        except (Exception, SystemExit) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
