"""How long dslint takes and how much memory it needs, as a user sees it: whole processes, start to exit.

    python benchmarks/run.py PROJECT [--runs 5]

Each case runs once unmeasured (byte code and the disk cache of the system are warm, as on the second run of a day),
then ``--runs`` times against the clock. Memory comes from one more run, because sampling /proc costs time itself.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
PROJECTS = REPO / "tests" / "fixtures" / "projects"
SAMPLE_SECONDS = 0.005


@dataclass(frozen=True)
class Case:
    """One command line, run inside ``folder``.

    ``cold`` gives it an empty cache folder each time, otherwise it finds what it left before.
    """

    name: str
    arguments: tuple[str, ...]
    folder: Path
    cold: bool = False
    linting: bool = True


@dataclass
class Result:
    """What the runs of a case took, in seconds and MiB."""

    case: Case
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    peak_rss: float = 0.0
    peak_pss: float = 0.0
    processes: int = 0
    findings: int | None = None


def main() -> int:
    """Measure every case and print the table."""
    args = _arguments()
    # Without byte code every run would compile dslint and its libraries again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    dslint = shlex.split(args.dslint)
    with tempfile.TemporaryDirectory(prefix="dslint-bench-") as apart:
        cases = _cases(args, Path(apart))
        _print_machine(dslint, args)
        results = []
        for case in cases:
            print(f"... {case.name}", file=sys.stderr, flush=True)
            results.append(_measure(case, dslint, args.runs))
    print(_table(results))
    if args.json:
        Path(args.json).write_text(json.dumps([_plain(result) for result in results], indent=2) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=Path, help="folder to lint, cold and warm")
    parser.add_argument("--runs", type=int, default=5, help="measured runs of each case (default: 5)")
    parser.add_argument(
        "--config", type=Path, default=PROJECTS / "llava-loss-zero/scripts/zero2.json", help="one config with a finding"
    )
    parser.add_argument(
        "--script", type=Path, default=PROJECTS / "minicpm-zero3-inference/infer.py", help="one script with a finding"
    )
    parser.add_argument("--dslint", default=f"{sys.executable} -m dslint", help="the command that starts dslint")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    args = parser.parse_args()
    for path in (args.project, args.config, args.script):
        if not path.exists():
            parser.error(f"no such file or folder: {path}")
    if args.runs < 1:
        parser.error("--runs must be at least 1")
    return args


def _cases(args: argparse.Namespace, apart: Path) -> list[Case]:
    project = args.project.resolve()
    return [
        Case("--version", ("--version",), project, linting=False),
        Case("--help", ("--help",), project, linting=False),
        _one_file("config", args.config.resolve(), apart),
        _one_file("script", args.script.resolve(), apart),
        Case(f"project {project.name}, cold", (".",), project, cold=True),
        Case(f"project {project.name}, warm", (".",), project),
    ]


def _one_file(kind: str, path: Path, apart: Path) -> Case:
    """The file as a hook passes it: named from the root of its project (the nearest folder with a project file).

    A shipped example is copied first: where it stands, it is a part of dslint with its hundreds of launch scripts.
    """
    if path.is_relative_to(PROJECTS):
        name = path.relative_to(PROJECTS).parts[0]
        path = Path(shutil.copytree(PROJECTS / name, apart / name, dirs_exist_ok=True)) / path.relative_to(
            PROJECTS / name
        )
    marks = ("pyproject.toml", "requirements.txt", "setup.py", ".git")
    root = next((p for p in path.parents if any((p / mark).exists() for mark in marks)), path.parent)
    return Case(f"{kind} {path.name}", (str(path.relative_to(root)),), root, cold=True)


def _print_machine(dslint: list[str], args: argparse.Namespace) -> None:
    try:
        done = subprocess.run([*dslint, "--version"], capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"cannot start {shlex.join(dslint)}: {error.strerror or error}")
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode} from: {shlex.join(dslint)} --version\n{done.stderr}")
    version = done.stdout.strip()
    load = os.getloadavg()[0]
    print(f"{version}, Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}, {args.runs} runs")
    if load > 0.5 * (os.cpu_count() or 1):
        print("warning: other programs are using this machine, the times are upper bounds", file=sys.stderr)


def _measure(case: Case, dslint: list[str], runs: int) -> Result:
    result = Result(case)
    with tempfile.TemporaryDirectory(prefix="dslint-bench-") as scratch:
        caches = _caches(case, Path(scratch))
        # Unmeasured: fills the caches of Python and the system, and dslint's own for a warm case.
        result.findings = _findings(case, [*dslint, *_command(case, next(caches))])
        for _ in range(runs):
            command = [*dslint, *_command(case, next(caches))]
            began, cpu = time.perf_counter(), _cpu_of_children()
            done = subprocess.run(
                command, cwd=case.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            result.seconds.append(time.perf_counter() - began)
            result.cpu_seconds.append(_cpu_of_children() - cpu)
            _must_have_worked(done.returncode, command, done.stderr)
        _sample(result, [*dslint, *_command(case, next(caches))])
    return result


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _caches(case: Case, scratch: Path) -> Iterator[Path]:
    number = 0
    while True:
        yield scratch / (f"cache{number}" if case.cold else "cache")
        number += 1


def _command(case: Case, cache: Path) -> list[str]:
    if not case.linting:
        return list(case.arguments)
    return ["--output-format", "concise", "--cache-dir", str(cache), *case.arguments]


def _findings(case: Case, command: list[str]) -> int | None:
    done = subprocess.run(command, cwd=case.folder, capture_output=True, text=True)
    _must_have_worked(done.returncode, command, done.stderr)
    return len(done.stdout.splitlines()) if case.linting else None


def _must_have_worked(code: int, command: list[str], stderr: str) -> None:
    if code not in (0, 1):
        sys.exit(f"exit code {code} from: {shlex.join(command)}\n{stderr}")


def _sample(result: Result, command: list[str]) -> None:
    """Peak memory of one run, summed over the process and all its descendants at each moment.

    Resident pages that processes share (a forked pool shares most) count once for each process in RSS; the
    proportional figure (PSS) counts them once in all. The kernel makes PSS slow to read, hence every tenth time.
    """
    with _running(command, result.case.folder) as process:
        tick = 0
        while process.poll() is None:
            pids = _family(process.pid)
            rss = sum(_memory(pid, "status", "VmRSS:") for pid in pids)
            result.peak_rss = max(result.peak_rss, rss / 1024)
            result.processes = max(result.processes, len(pids))
            if tick % 10 == 0:
                pss = sum(_memory(pid, "smaps_rollup", "Pss:") for pid in pids)
                result.peak_pss = max(result.peak_pss, pss / 1024)
            tick += 1
            time.sleep(SAMPLE_SECONDS)
        _must_have_worked(process.returncode, command, "")


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _family(root: int) -> list[int]:
    """``root`` and its living descendants."""
    family, queue = [], [root]
    while queue:
        pid = queue.pop()
        family.append(pid)
        try:
            threads = [entry.name for entry in os.scandir(f"/proc/{pid}/task")]
            for thread in threads:
                with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as handle:
                    queue.extend(int(child) for child in handle.read().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return family


def _memory(pid: int, file: str, key: str) -> int:
    """A figure of /proc in KiB; 0 when the process has just ended."""
    try:
        with open(f"/proc/{pid}/{file}", encoding="ascii", errors="replace") as handle:
            for line in handle:
                if line.startswith(key):
                    return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    return 0


def _table(results: list[Result]) -> str:
    head = ("case", "median", "min", "max", "CPU", "peak RSS", "peak PSS", "processes", "findings")
    rows = [head]
    for result in results:
        rows.append(
            (
                result.case.name,
                f"{statistics.median(result.seconds) * 1000:.0f} ms",
                f"{min(result.seconds) * 1000:.0f} ms",
                f"{max(result.seconds) * 1000:.0f} ms",
                f"{statistics.median(result.cpu_seconds) * 1000:.0f} ms",
                f"{result.peak_rss:.0f} MiB",
                f"{result.peak_pss:.0f} MiB",
                str(result.processes),
                "" if result.findings is None else str(result.findings),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _plain(result: Result) -> dict[str, object]:
    return {
        "case": result.case.name,
        "seconds": [round(value, 4) for value in result.seconds],
        "median": round(statistics.median(result.seconds), 4),
        "cpu_median": round(statistics.median(result.cpu_seconds), 4),
        "peak_rss_mib": round(result.peak_rss, 1),
        "peak_pss_mib": round(result.peak_pss, 1),
        "processes": result.processes,
        "findings": result.findings,
    }


if __name__ == "__main__":
    sys.exit(main())
