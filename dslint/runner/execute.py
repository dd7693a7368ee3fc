"""To become the command: the same process, words, environment, folder and streams."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence
from typing import NoReturn

NOT_FOUND, NOT_EXECUTABLE = 127, 126
# Python ignores these, and a program that inherits that would never notice a closed pipe.
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENODEV, errno.ETIMEDOUT, errno.ELOOP})


class NotStarted(Exception):  # noqa: N818 - the name says what happened
    """The command cannot be started; ``code`` is the exit code that a shell gives."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def missing(program: str, environ: Mapping[bytes, bytes]) -> NotStarted | None:
    """Why a program cannot be started: it is nowhere, or a folder. Whether it may be executed only the system knows."""
    for path in _candidates(os.fsencode(program), environ):
        if os.path.isdir(path) and "/" in program:
            return NotStarted(f"{program}: {os.strerror(errno.EISDIR)}", NOT_EXECUTABLE)
        if os.path.lexists(path):
            return None
    return NotStarted(f"{program}: command not found", NOT_FOUND)


def own_environment() -> dict[bytes, bytes]:
    """The environment as dslint has found it: Python itself may have set a locale in it."""
    environ = dict(os.environb)
    try:
        with open("/proc/self/environ", "rb") as file:
            first = {entry.partition(b"=")[0] for entry in file.read().split(b"\0")}
    except OSError:
        return environ
    if b"LC_CTYPE" in environ and b"LC_CTYPE" not in first:
        del environ[b"LC_CTYPE"]
    return environ


def become(argv: Sequence[str]) -> NoReturn:
    """Replace this process by the command, as `execvp` of C does.

    Raises:
        NotStarted: nothing of this name can be executed.
    """
    words, environ = [os.fsencode(word) for word in argv], own_environment()
    for name in _IGNORED_BY_PYTHON:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    refused: OSError | None = None
    for path in _candidates(words[0], environ):
        try:
            os.execve(path, words, environ)
        except OSError as error:
            if error.errno == errno.ENOEXEC:  # a script without a first line that names its shell
                os.execve(b"/bin/sh", [b"sh", path, *words[1:]], environ)
            if error.errno not in _GONE:
                refused = refused or error
                if error.errno != errno.EACCES:
                    break
    if refused is not None:
        raise NotStarted(f"{argv[0]}: {refused.strerror}", NOT_EXECUTABLE)
    raise NotStarted(f"{argv[0]}: command not found", NOT_FOUND)


def _candidates(program: bytes, environ: Mapping[bytes, bytes]) -> list[bytes]:
    if b"/" in program or not program:
        return [program] if program else []
    folders = environ.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    return [os.path.join(folder or b".", program) for folder in folders]
