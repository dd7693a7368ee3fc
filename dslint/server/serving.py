"""One client on standard input and output."""

from __future__ import annotations

import os
from typing import BinaryIO

from dslint.server.app import DslintServer
from dslint.server.features import register


def serve() -> bool:
    """Serve one client on standard input and output; returns, when it is gone, whether it has said goodbye."""
    server = DslintServer()
    register(server)
    source, target = _streams()
    server.start_io(source, target)
    server.end()
    return server.is_said


def _streams() -> tuple[BinaryIO, BinaryIO]:
    """The two ends of the client, which nobody else reads or writes: what is printed goes to standard error."""
    source = os.fdopen(os.dup(0), "rb")
    target = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, target
