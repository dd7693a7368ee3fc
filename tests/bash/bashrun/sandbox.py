"""A root with bash, a few harmless tools and recording stubs, and nothing else.

As root, or where user namespaces are allowed, a script runs in namespaces of its own (no network, no other process,
no file of the machine) as a user without rights. Where neither is possible it runs with a path that holds stubs only,
which is enough for scripts that one has written oneself and refused for others.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bashrun.records import Record, read_records

HERE = Path(__file__).resolve().parent
_PROGRAMS = (HERE / "programs.txt").read_text().splitlines()
TOOLS, STUBS = (line.partition(":")[2].split() for line in _PROGRAMS if line[0] != "#")
_ABSOLUTE = re.compile(r"(?<![\w.~$}/-])/(?:[\w.+-]+/)+(?:python[\d.]*|torchrun|deepspeed|accelerate|srun|mpirun)\b")
_SECONDS = 10.0
_READABLE = ("", ".sh", ".bash", ".sbatch", ".slurm", ".env", ".conf", ".cfg", ".txt", ".json", ".yaml", ".yml")
_ENTER = 'cd -- "$1" && shift && unset OLDPWD && ulimit -t 5 -f 100000 -n 256'
# The first process of the namespace waits until background commands are done: with it everything ends.
_FIRST = (
    _ENTER + '; /bin/bash "$@" < /dev/null; status=$?; for ((i = 0; i < 200; i++)); do set -- /proc/[0-9]*;'
    " (($# <= 1)) && break; /tools/sleep 0.01; done; exit $status"
)
_PREPARE = (
    'mount --bind "$1" "$2/run" && mount -t proc proc "$2/proc" && mount --bind /dev/null "$2/dev/null"'
    ' && { [ -z "$3" ] || mount -t overlay -o "lowerdir=$3,upperdir=$1/upper,workdir=$1/work" overlay'
    ' "$2/run/project"; } && shift 3 && exec "$@"'
)


@dataclass(frozen=True, slots=True)
class Run:
    """What one script did: ``records`` of the programs it started, its exit status, the project, where it started."""

    records: tuple[Record, ...]
    status: int
    project: str
    start: str
    errors: str = ""
    timed_out: bool = False


class Sandbox:
    """A root for runs of scripts; a context manager that removes it."""

    def __init__(self, isolated: bool | None = None) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="bashrun-"))
        self.root = self.base / "root"
        self.user = os.geteuid() != 0
        self._count = 0
        self._copies: dict[Path, Path] = {}
        self.isolated = False
        # A run writes into a layer over the one copy of the project, where the system can do that.
        self.layers = True
        with self._for_all():
            self._build()
        if isolated is not False:
            self.isolated = self._try()
            if isolated and not self.isolated:
                self.close()
                raise PermissionError("namespaces need root, or user namespaces that the system allows")

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the root and what the runs left."""
        shutil.rmtree(self.base, ignore_errors=True)

    @staticmethod
    @contextlib.contextmanager
    def _for_all() -> Iterator[None]:
        """What is made here can be read by the user without rights, whatever the mask of the caller says."""
        mask = os.umask(0o022)
        try:
            yield
        finally:
            os.umask(mask)

    def _build(self) -> None:
        for name in ("bin", "tools", "stubs", "proc", "dev", "run", "etc", "tmp", "workspace"):
            (self.root / name).mkdir(parents=True)
        (self.root / "dev/null").touch()
        (self.root / "dev/fd").symlink_to("/proc/self/fd")
        for tool in TOOLS:
            found = shutil.which(tool)
            if found:
                self._copy(Path(found).resolve(), self.root / "tools" / tool)
        bash = Path(shutil.which("bash") or "/bin/bash").resolve()
        self._copy(bash, self.root / "bin/bash")
        for name in ("bash", "sh"):
            (self.root / "tools" / name).symlink_to("/bin/bash")
        record = self.root / "stubs/.record"
        record.write_text((HERE / "stub.sh").read_text())
        record.chmod(0o755)
        (self.root / "stubs/.trace").write_text((HERE / "trace.sh").read_text())
        for name in STUBS:
            (self.root / "stubs" / name).symlink_to(".record")

    def _copy(self, program: Path, target: Path) -> None:
        shutil.copy(program, target)
        libraries = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(?:=>\s*)?(/\S+)\s+\(0x", libraries):
            copy = self.root / library[1:]
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, copy)

    def add_programs(self, texts: Iterable[str]) -> None:
        """Stubs at the absolute paths by which these scripts call launchers; in a root of its own only."""
        if not self.isolated:
            return
        for path in {found for text in texts for found in _ABSOLUTE.findall(text)}:
            stub = self.root / path[1:]
            if not path.startswith(("/bin/", "/tools/", "/stubs/", "/run/", "/proc/", "/dev/")) and not stub.exists():
                with self._for_all():
                    stub.parent.mkdir(parents=True, exist_ok=True)
                stub.symlink_to("/stubs/.record")

    def _try(self) -> bool:
        self.isolated = True
        folder = self.base / "try"
        folder.mkdir()
        (folder / "try.sh").write_text("touch a && torchrun it\n")
        for self.layers in (True, False):
            try:
                if [r.argv for r in self.run(folder, "try.sh").records] == [("torchrun", "it")]:
                    return True
            except OSError:
                return False
        return False

    def run(
        self,
        project: Path,
        script: str,
        arguments: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        folder: str = ".",
        seconds: float = _SECONDS,
    ) -> Run:
        """Run ``script`` (a path in ``project``) in a copy of the project, started in its ``folder``."""
        self._count += 1
        place = self.base / f"run{self._count}"
        for name in ("records", "home", "tmp", "project", "upper", "work"):
            (place / name).mkdir(parents=True)
        layers = self.isolated and self.layers
        if not layers:
            _copy_tree(project, place / "project")
        here = "/run" if self.isolated else str(place)
        prefix = "" if self.isolated else str(self.root)
        env = {
            "PATH": f"{prefix}/stubs:{prefix}/tools",
            "HOME": f"{here}/home",
            "TMPDIR": f"{here}/tmp",
            "BASH_ENV": f"{prefix}/stubs/.trace",
            "DSLINT_STUBS": f"{prefix}/stubs",
            "DSLINT_TOOLS": f"{prefix}/tools",
            "DSLINT_RECORDS": f"{here}/records",
        }
        if not self.isolated:
            (self.root / "tools/bash").unlink(missing_ok=True)
            shutil.copy(self.root / "bin/bash", self.root / "tools/bash")
        where = os.path.normpath(f"{here}/project/{folder}")
        inside = ["/bin/bash", "-p", "-c", _FIRST if self.isolated else _ENTER + '; exec bash "$@"', "-", where]
        lower = str(self._copy_of(project)) if layers else ""
        command = [*self._enter(place, lower), *inside, os.path.relpath(script, folder), *arguments]
        status, errors, late = _wait(command, {**env, **(environment or {})}, seconds)
        records = tuple(read_records(place / "records", env))
        shutil.rmtree(place, ignore_errors=True)
        return Run(records, status, f"{here}/project", where, errors, late)

    def _copy_of(self, project: Path) -> Path:
        if project not in self._copies:
            self._copies[project] = self.base / f"project{len(self._copies)}"
            _copy_tree(project, self._copies[project])
            self._hand_over(self._copies[project])
        return self._copies[project]

    def _hand_over(self, folder: Path) -> None:
        if not self.user:
            for name, _, files in os.walk(folder):
                for path in (name, *(os.path.join(name, file) for file in files)):
                    os.chown(path, 65534, 65534)

    def _enter(self, place: Path, lower: str) -> list[str]:
        if not self.isolated:
            return []
        self._hand_over(place)
        spaces = ["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
        if self.user:
            spaces += ["--user", "--map-root-user"]
        chroot = [_outside("chroot"), *([] if self.user else ["--userspec=65534:65534", "--groups="]), str(self.root)]
        prepare = ["/bin/sh", "-c", _PREPARE.replace("mount ", _outside("mount") + " "), "-"]
        prepare += [str(place), str(self.root), lower]
        return [_outside("unshare"), *spaces, "--", *prepare, *chroot]


def _outside(name: str) -> str:
    return shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") or name


def _wait(command: list[str], env: dict[str, str], seconds: float) -> tuple[int, str, bool]:
    """Run a command in a session of its own and kill what is left of it after a while."""
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    late = False
    try:
        errors = process.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        late = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        errors = process.communicate()[1]
    return process.returncode, errors.decode("utf-8", "replace"), late


def _copy_tree(source: Path, target: Path) -> None:
    """A copy of the folders with the small files that a script may read; the others are there, but empty."""
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if name not in (".git", "node_modules")]
        here = target / os.path.relpath(folder, source)
        here.mkdir(parents=True, exist_ok=True)
        for name in files:
            original = Path(folder, name)
            if original.is_symlink() or not original.is_file():
                continue
            if original.suffix in _READABLE and original.stat().st_size < 100_000:
                shutil.copyfile(original, here / name)
                shutil.copymode(original, here / name)
            else:
                (here / name).touch()
