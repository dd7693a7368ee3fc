"""The dslint command inside this process, with the bytes of its streams, and projects for it."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dslint import cli

# Two safe fixes (DSL221, DSL201) in a file that both change.
SCRIPT = """\
import torch.distributed as dist

dist.init_process_group("gloo", timeout=7200)
if dist.get_rank() == 0:
    dist.barrier()
"""
SCRIPT_FIXED = """\
from datetime import timedelta
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=7200))
dist.barrier()
"""


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode("utf-8", "replace")

    @property
    def places(self) -> list[tuple[str, str]]:
        """(``path:line:col``, code) of each line of a concise report."""
        return [(p.rstrip(":"), rest.split()[0]) for p, _, rest in (x.partition(": ") for x in self.out.splitlines())]

    @property
    def codes(self) -> list[str]:
        return [code for _, code in self.places]


def dslint(*arguments: str, stdin: bytes = b"") -> Done:
    """Run ``dslint`` with these arguments in the working directory."""
    with _streams(stdin) as (out, err):
        try:
            cli.main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
    done = Done(code, out.getvalue(), err.getvalue().decode("utf-8", "replace"))
    assert "internal error" not in done.err, done.err
    return done


def outside(project: Path, folder: Path) -> Path:
    """A copy of a fixture project that is a repository of its own: of this one, all launch files would be read."""
    target = shutil.copytree(project, folder / project.name)
    (target / ".git").mkdir()
    return target


@contextmanager
def _streams(stdin: bytes) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", newline="")
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", newline="", errors="backslashreplace")
    try:
        yield out, err
    finally:
        written = sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = before
        for stream in written:
            stream.detach()
