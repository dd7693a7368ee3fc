"""A process that has imported the launchers and starts them for real, each in a fork of itself.

It reads a list of ``[launcher, words, environment, folder, namespace, host]`` and answers with the list of exit codes
once all launchers have ended, their processes with them. With a ``namespace`` the launcher runs in that network
namespace and takes ``host`` for the name of its machine. The runner of DeepSpeed starts its node launcher in a fork
too, which saves the imports.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import traceback
import warnings
from typing import Any

# Launchers wait more than they work.
_AT_ONCE = 4  # the nodes of a job stand behind each other in the list


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for name in ("accelerate.commands.launch", "deepspeed.launcher.runner", "deepspeed.launcher.launch"):
        importlib.import_module(name)
    importlib.import_module("torch.distributed.launch")
    codes: dict[int, int] = {}
    running: dict[int, int] = {}
    requests = json.load(sys.stdin)
    for number, request in enumerate(requests):
        pid = os.fork()
        if not pid:
            _be_launcher(*request)
        running[pid] = number
        while len(running) >= _AT_ONCE or (running and number == len(requests) - 1):
            ended, status = os.wait()
            codes[running.pop(ended)] = os.waitstatus_to_exitcode(status)
    json.dump([codes[number] for number in range(len(requests))], answers)


def _enter(namespace: str, host: str) -> None:
    """Move into a network namespace, and into a new one for the host name."""
    import ctypes
    import socket

    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}", "rb") as file:
        if libc.setns(file.fileno(), 0x40000000) or libc.unshare(0x04000000):
            raise OSError(ctypes.get_errno(), "setns")
    socket.sethostname(host)


def _be_launcher(
    launcher: str, words: list[str], environment: dict[str, str], folder: str, namespace: str = "", host: str = ""
) -> None:
    code = 1
    try:
        if namespace:
            _enter(namespace, host)
        os.chdir(folder)
        os.environ.update(environment)
        with open("launcher.err", "wb") as file:
            os.dup2(file.fileno(), 2)
        warnings.simplefilter("ignore")
        _start(launcher, words)
        code = 0
    except SystemExit as over:
        code = over.code if isinstance(over.code, int) else int(over.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _start(launcher: str, words: list[str]) -> None:
    if launcher == "deepspeed":
        import deepspeed.launcher.runner as runner

        from dslint.probe.parts import dslaunch

        forks: Any = dslaunch._Processes()
        runner.subprocess = forks
        runner.main(words)
    elif launcher == "accelerate":
        from accelerate.commands.launch import launch_command, launch_command_parser

        launch_command(launch_command_parser().parse_args(words))
    elif launcher == "python":
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
    else:
        importlib.import_module(f"torch.distributed.{'run' if launcher == 'torchrun' else launcher}").main(words)


if __name__ == "__main__":
    main()
