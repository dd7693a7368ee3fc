"""The first look at a large folder, in a process of its own: its workers must not be forked beside threads.

What it finds is in the cache of results afterwards, where the server reads it. Started by ``analyst.py`` with a line
of JSON on standard input, which stays open: when it ends, the server is gone, and this process ends, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dslint.server.client_settings import Wishes


def start(root: str, wishes: Mapping[str, Any]) -> subprocess.Popen[bytes] | None:
    """Begin to look at a folder; ``None`` where no process can be started."""
    # With `-m` the working directory comes before all modules, and the project that is looked at may hold a `json.py`.
    program = "import sys; sys.path[:] = sys.argv[1:]; from dslint.server.warm import main; main()"
    words = [sys.executable, "-c", program, *sys.path]
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError:
        return None
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.write(json.dumps({"root": root, "wishes": dict(wishes)}).encode() + b"\n")
        process.stdin.flush()
    return process


def _end_with_server() -> None:
    # The descriptor itself: a buffered file has a lock, which a fork would copy while it is held.
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _line() -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        more = os.read(0, 1)
        if not more:
            raise SystemExit(2)
        found += more
    return found


def main() -> None:
    """Look at the folder that standard input names, with as many workers as there are processors."""
    given = json.loads(_line())
    threading.Thread(target=_end_with_server, daemon=True).start()
    from dataclasses import replace

    from dslint.engine.cache import RememberedResults
    from dslint.engine.run import check_paths, results_of

    settings, _ = Wishes.of(given["wishes"]).settings(given["root"])
    # As the session of the server has them: the cache knows results by their settings.
    settings = replace(settings, force_exclude=True)
    results = RememberedResults(results_of(settings))
    check_paths([given["root"]], settings, results=results)
    results.save()
