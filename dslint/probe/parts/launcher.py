"""torchrun, and plain python, with a script that writes down what it was started with.

The launchers run inside the rank, which has their libraries imported already: torchrun in a new process needs 3 s, the
launcher of DeepSpeed 10 s. torchrun forks its workers (``--start-method fork --run-path``, options of its own).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from dslint.probe.experiment import Json, RankApi

# Ends by itself, and with its parent; what it saw goes to a file of its own.
SCRIPT = """\
import ctypes, json, os, signal, sys
signal.alarm(40)
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
names = "RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT".split()
seen = {name: os.environ.get(name) for name in names}
seen["argv"] = sys.argv[1:]
def note(**more):
    with open(f"seen-{os.getpid()}.part", "w") as file:
        json.dump({**seen, **more}, file)
    os.replace(f"seen-{os.getpid()}.part", f"seen-{os.getpid()}.json")
note()
"""


def torchrun(
    rank: RankApi, arguments: list[str], more: str = "", module: str = "run", patience: float = 0.0
) -> list[dict[str, Json]]:
    """Run ``torchrun ARGUMENTS`` to its end; ``arguments`` name the script ``train.py``.

    Args:
        more: what the script does after it has noted its start; ``note(name=value)`` adds to the note.
        module: ``run``, or ``launch`` for the older ``torch.distributed.launch``.
        patience: seconds during which a launcher that waits is no stall.

    Returns:
        The notes of the processes, by rank.

    Raises:
        RuntimeError: it refuses its arguments, or a process of it fails.
        Whatever else the launcher raises.
    """
    from importlib import import_module

    clean()
    write_script(more)
    main = import_module(f"torch.distributed.{module}").main
    with Pulse(rank, patience):
        told("torchrun" if module == "run" else module, lambda: main([*_FORK, *arguments]))
    return notes()


def python(rank: RankApi, count: int, more: str = "") -> list[dict[str, Json]]:
    """``python train.py``, ``count`` times, in forks of this process; returns their notes.

    Raises:
        RuntimeError: one of them fails; with its error.
    """
    clean()
    write_script(more)
    sys.stdout.flush()

    def run() -> None:
        children = [os.fork() or _be_script() for _ in range(count)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(codes):
            sys.exit(max(codes))

    with Pulse(rank):
        told("python", run)
    return notes()


def _be_script() -> NoReturn:
    import runpy
    import traceback

    code = 1
    try:
        sys.argv = ["train.py"]
        runpy.run_path("train.py", run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


_FORK = ("--start-method", "fork", "--run-path")


def told(name: str, run: Callable[[], object]) -> None:
    """Run the ``main`` of a launcher; when its processes or its arguments fail, the exception names the first error.

    Args:
        name: of the launcher, as it calls itself in its messages.

    Raises:
        RuntimeError: with the error that was printed by the launcher or its processes.
        Whatever the launcher raises, when nothing was printed.
    """
    sys.argv = [name]
    sys.stderr.flush()
    kept = os.dup(2)
    with open("launcher.err", "wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        run()
    except BaseException as error:
        sys.stderr.flush()
        code = f"exit code {error.code}" if isinstance(error, SystemExit) else type(error).__name__
        if code == "exit code 0" or not (isinstance(error, SystemExit) or code == "ChildFailedError"):
            raise
        said = [line.strip() for line in _said() if "error: " in line.lower()]
        if not said:
            raise
        raise RuntimeError(f"{name} ends with {code}: {said[0]}") from None
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        sys.stderr.writelines(line + "\n" for line in _said())


def _said() -> list[str]:
    with open("launcher.err", encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def clean() -> None:
    """Forget what the rank itself was started with."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    for name in [name for name in os.environ if name.startswith("TORCHELASTIC_")]:
        del os.environ[name]


def write_script(more: str = "") -> None:
    """Write ``train.py`` into the folder of this rank."""
    with open("train.py", "w", encoding="utf-8") as file:
        file.write(SCRIPT + more)


def notes() -> list[dict[str, Json]]:
    """What the started processes noted, by rank."""
    found = []
    for name in os.listdir("."):
        if name.startswith("seen-") and name.endswith(".json"):
            with open(name, encoding="utf-8") as file:
                found.append(json.load(file))
    return sorted(found, key=lambda note: int(note["RANK"] or 0))


class Pulse:
    """Marks progress while the processes that this one has started do work, which nobody sees in this one itself.

    Args:
        patience: seconds during which it marks in any case: a time-out runs that is to be seen.
        linger: seconds for which it goes on after their last work: a launcher that sleeps before it looks again.
    """

    def __init__(self, rank: RankApi, patience: float = 0.0, linger: float = 0.0) -> None:
        self.rank = rank
        self._linger = linger
        self._until = time.monotonic() + patience
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._over.set()

    def _beat(self) -> None:
        before, worked = 0, time.monotonic()
        while not self._over.wait(0.2):
            now = sum(_ticks(pid) for pid in _children(os.getpid()))
            if now != before:
                worked = time.monotonic()
            if now != before or time.monotonic() < max(self._until, worked + self._linger):
                self.rank.mark("its processes work")
            before = now


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="utf-8") as file:
                own = [int(child) for child in file.read().split()]
            for child in own:
                found += [child, *_children(child)]
    except OSError:
        pass
    return found


def _ticks(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])
