"""Leaves nothing behind: waits until the supervisor goes away, however it goes, then kills and deletes what is left.

Started as a script of its own with ``-I -S`` (nothing but the standard library, 10 MB): ``janitor.py RUN_ID FOLDER``.
Standard input is a pipe whose other end only the supervisor holds. Every process of a run carries
``DSLINT_PROBE_RUN=RUN_ID`` in its environment, so that also grandchildren in sessions of their own are found.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time


def members(run: str) -> list[int]:
    """Process ids of the run, this process left out."""
    wanted = b"DSLINT_PROBE_RUN=" + run.encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(name))
        except OSError:
            continue
    return found


def main() -> None:
    """Wait for the end of input, then sweep."""
    run, folder = sys.argv[1:3]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        left = members(run)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        shutil.rmtree(folder, ignore_errors=True)
        if not left and not os.path.exists(folder):
            break
        time.sleep(0.02)


if __name__ == "__main__":
    main()
