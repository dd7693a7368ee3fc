"""``dslint --watch``: the same check again, whenever a file that it looks at has changed.

Each look is a process of its own, so that nothing of an earlier one is left in memory; results of files that did not
change come from the cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dslint.core.commandline import say

if TYPE_CHECKING:
    from dslint.settings import Settings

FLAG = "--watch"
# Seconds between two looks at the files; where to list them takes long, the program rests most of the time.
_PAUSE, _REST = 0.4, 10
_CLEAR = "\x1b[2J\x1b[3J\x1b[H"

_Snapshot = dict[str, tuple[int, int]]


def watch(paths: Sequence[str], settings: Settings, arguments: Sequence[str]) -> int:
    """Check with these arguments again and again, until somebody interrupts; returns the exit code."""
    command = [sys.executable, "-m", "dslint", "check", *(word for word in arguments if word != FLAG)]
    seen: _Snapshot | None = None
    try:
        while True:
            begin = time.perf_counter()
            # Taken before the look: what changes while it lasts is looked at once more.
            now = _snapshot(paths, settings)
            taken = time.perf_counter() - begin
            if now != seen:
                _look(command, changed=seen is not None)
                seen = now
            time.sleep(max(_PAUSE, _REST * taken))
    except KeyboardInterrupt:
        return 0


def _look(command: Sequence[str], changed: bool) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
        sys.stdout.flush()
    if changed:
        say(f"{time.strftime('%H:%M:%S')} a file changed")
    subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    say("watching for changes; Ctrl-C ends it")


def _snapshot(paths: Sequence[str], settings: Settings) -> _Snapshot:
    """Size and time of every file that decides what is found."""
    from dslint.engine.run import list_files
    from dslint.settings.load import FILE_NAMES

    listed = [*list_files(paths, settings), *(os.path.join(settings.root, name) for name in FILE_NAMES)]
    if settings.source:
        listed.append(str(settings.source))
    if settings.baseline:
        listed.append(str(settings.baseline))
    found: _Snapshot = {}
    for path in listed:
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            continue
        found[path] = (status.st_mtime_ns, status.st_size)
    return found
