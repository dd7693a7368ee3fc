"""The stalled extension load, for real: torch builds, the build is killed, the next load waits, the doctor repairs it.

Starts real Python processes with torch (some seconds each): the lock, its holder and the wait are torch's own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fake_machine import needs_provable_locks

pytest.importorskip("torch")
if shutil.which("c++") is None:
    pytest.skip("needs a C++ compiler", allow_module_level=True)

SECONDS = 90.0
# The compiler waits for a sign, so that the moment of the kill is not a matter of luck.
SLOW_COMPILER = """\
#!/bin/sh
case "$*" in *--version*|*-v*|*-dumpversion*) exec c++ "$@" ;; esac
while [ -e "$HOLD" ]; do sleep 0.1; done
exec c++ "$@"
"""
LOAD = """\
import faulthandler, signal, sys
faulthandler.register(signal.SIGUSR1, file=sys.stderr)
from torch.utils.cpp_extension import load
print("loading", flush=True)
load("tiny", ["tiny.cpp"], is_python_module=False)
print("loaded", flush=True)
"""


def wait_until(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end, f"{what}: not within {SECONDS:g} s"
        time.sleep(0.05)


class Project:
    """A folder with an extension, its private extensions root, and the processes that load it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = folder / "extensions" / "tiny" / "lock"
        self.hold = folder / "hold"
        self.hold.touch()
        (folder / "tiny.cpp").write_text('extern "C" int answer() { return 42; }\n')
        (folder / "load.py").write_text(LOAD)
        compiler = folder / "slow-c++"
        compiler.write_text(SLOW_COMPILER)
        compiler.chmod(0o755)
        binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environ = {
            **os.environ, "PATH": binaries, "TORCH_EXTENSIONS_DIR": str(folder / "extensions"), "HOME": str(folder),
            "CXX": str(compiler), "HOLD": str(self.hold), "XDG_CACHE_HOME": str(folder / "cache"),
        }  # fmt: skip
        self.children: list[subprocess.Popen[str]] = []

    def load(self) -> subprocess.Popen[str]:
        number = len(self.children)
        with (self.folder / f"out{number}").open("w") as out, (self.folder / f"err{number}").open("w") as err:
            child = subprocess.Popen(
                [sys.executable, "load.py"], cwd=self.folder, env=self.environ, stdout=out, stderr=err, text=True,
                start_new_session=True,
            )  # fmt: skip
        self.children.append(child)
        return child

    def output(self, number: int, name: str = "out") -> str:
        return (self.folder / f"{name}{number}").read_text()

    def doctor(self, *flags: str, check: str = "D1") -> tuple[int, dict[str, str]]:
        done = subprocess.run(
            [sys.executable, "-m", "dslint", "doctor", "--check", check, "--format", "json", *flags],
            cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.stderr == "", done.stderr
        (check,) = json.loads(done.stdout)["checks"]
        (outcome,) = check["outcomes"]
        return done.returncode, outcome

    def members(self, child: subprocess.Popen[str]) -> list[int]:
        """The living processes of a child's session besides itself; ninja gives each compiler a group of its own."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdecimal() and int(entry) != child.pid:
                try:
                    fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if fields[3] == str(child.pid) and fields[0] != "Z":
                    found.append(int(entry))
        return found

    def kill_session(self, child: subprocess.Popen[str]) -> None:
        """SIGKILL for a load and all that it started, as a job's time limit or the OOM killer of a container do."""
        while members := self.members(child):
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def stop(self) -> None:
        for child in self.children:
            child.kill()
            child.wait()
            self.kill_session(child)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    needs_provable_locks(tmp_path)
    made = Project(tmp_path)
    yield made
    made.stop()


def test_a_killed_build_stalls_the_next_load_until_the_doctor_removes_its_lock(project: Project) -> None:
    builder = project.load()
    wait_until(lambda: project.lock.exists() and len(project.members(builder)) > 1, "the build begins")
    code, outcome = project.doctor("--fix", "--yes")
    assert (code, outcome["status"]) == (0, "ok"), outcome
    assert f"process {builder.pid}" in outcome["reason"]

    # The process that began is killed; ninja and the compiler live on.
    builder.kill()
    builder.wait()
    code, outcome = project.doctor("--fix", "--yes")
    assert (code, outcome["status"]) == (0, "ok"), outcome
    assert "still works in that folder" in outcome["reason"]

    project.kill_session(builder)
    old = time.time() - 60
    os.utime(project.lock, (old, old))  # a lock of this second is not judged
    waiting = project.load()
    wait_until(lambda: "loading" in project.output(1), "the next load begins")
    wait_until(lambda: stack_shows_the_wait(project, waiting), "the next load waits in file_baton.py")
    project.hold.unlink()

    code, outcome = project.doctor()
    assert (code, outcome["status"]) == (1, "error"), outcome
    assert str(project.lock) in outcome["found"]
    assert project.lock.exists()
    assert waiting.poll() is None

    code, outcome = project.doctor("--fix", "--yes")
    assert (code, outcome["status"]) == (0, "ok"), outcome
    assert not project.lock.exists()
    assert (project.lock.parent / "build.ninja").exists()
    # The one that waited did not build: it ends, as the doctor says, and must be started again.
    waiting.wait(SECONDS)
    assert "loaded" not in project.output(1)
    again = project.load()
    again.wait(SECONDS)
    assert again.returncode == 0, project.output(2, "err")
    assert "loaded" in project.output(2)

    # The build that torch made is whole and its own, until half of the library is lost.
    code, outcome = project.doctor(check="D2")
    assert (code, outcome["found"]) == (0, f"1 whole build in {project.lock.parent.parent}")
    library = project.lock.with_name("tiny.so")
    os.truncate(library, library.stat().st_size // 2)
    code, outcome = project.doctor(check="D2")
    assert (code, outcome["status"], outcome["repair"]) == (1, "error", f"rm {library}")


def stack_shows_the_wait(project: Project, waiting: subprocess.Popen[str]) -> bool:
    waiting.send_signal(signal.SIGUSR1)
    time.sleep(0.2)
    return "file_baton.py" in project.output(1, "err") and " in wait" in project.output(1, "err")
