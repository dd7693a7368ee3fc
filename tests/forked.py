"""``python -m dslint`` as a process of its own, without the price of its imports: a fork of a process that has them.

What a test sees is that of a real process: exit code or signal, the bytes of the streams, its working directory and
environment. The start of a real process is tested in test_startup.py, streams and signals in test_bad_input.py.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# What all commands would import, and the runs after the first need no more.
_WARM = ("dslint.cli", "dslint.engine.run", "dslint.report.concise", "jsonschema", "libcst", "tree_sitter")


def dslint(
    folder: Path,
    *arguments: str | bytes,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float = 60,
) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a folder; after ``timeout`` seconds SIGALRM ends it, which the return code tells."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as own:
        (Path(own) / "0").write_bytes(stdin)
        words = [os.fsdecode(argument) for argument in arguments]
        request = [words, str(folder), dict(os.environ if environment is None else environment), own, int(timeout)]
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        code = json.loads(server.stdout.readline())
        out, err = ((Path(own) / name).read_bytes() for name in "12")
    return subprocess.CompletedProcess(arguments, code, out, err)


@cache
def _server() -> subprocess.Popen[bytes]:
    """One for each process of tests; it goes when its standard input ends."""
    server = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUTF8": "1"},
    )
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[bytes]) -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait()


def _serve() -> None:
    import gc
    from importlib import import_module

    from dslint.rules.registry import all_rules, load_rule

    for name in _WARM:
        import_module(name)
    for info in all_rules():
        load_rule(info.code)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            _be_dslint(*json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)


def _be_dslint(words: list[str], folder: str, environment: dict[str, str], own: str, timeout: int) -> None:
    code = 70
    try:
        signal.alarm(timeout)
        os.environ.clear()
        os.environ.update(environment)
        for number, mode in enumerate((os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)):
            os.dup2(os.open(f"{own}/{number}", mode), number)
        os.chdir(folder)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.argv = ["dslint", *words]
        code = _code_of_main()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _code_of_main() -> int:
    from dslint.cli import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _serve()
