"""How long a job waits for ``dslint run`` in front of it: whole processes, from start to the first byte of the command.

    python benchmarks/preflight.py [--runs 9] [PROJECT SCRIPT]

The command is a stand-in for a launcher that writes one byte. Each case runs once unmeasured (byte code and the disk
cache of the system are warm), then ``--runs`` times with dslint in front and as often without: the overhead is the
difference of the medians. ``SCRIPT`` is a launch script of ``PROJECT``, to which its path is relative.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
PROJECTS = REPO / "tests" / "fixtures" / "projects"
LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "xtuner", "srun")


@dataclass(frozen=True)
class Case:
    """A command in a folder; ``flags`` are those of dslint, ``cold``: with an empty cache."""

    name: str
    command: tuple[str, ...]
    folder: Path
    flags: tuple[str, ...] = ()
    cold: bool = False


def main() -> int:
    """Measure every case and print the table."""
    args = _arguments()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="dslint-bench-") as apart:
        top = Path(apart)
        _stand_ins(top / "bin")
        os.environ["PATH"] = f"{top / 'bin'}:/usr/bin:/bin"
        os.environ["DSLINT_CACHE_DIR"] = str(top / "cache")
        load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load}\n")
        print("| case | alone, s | overhead, s | at least, s | processor time, s |\n|---|---|---|---|---|")
        for case in _cases(args, top):
            print(_row(case, args.runs, top / "cache"), flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", nargs="?", type=Path)
    parser.add_argument("script", nargs="?")
    parser.add_argument("--runs", type=int, default=9)
    args = parser.parse_args()
    if args.project and not (args.script and (args.project / args.script).is_file()):
        parser.error("name a launch script of the project, too")
    return args


def _stand_ins(folder: Path) -> None:
    folder.mkdir()
    for name in LAUNCHERS:
        (folder / name).write_text("#!/bin/sh\necho x\n")
        (folder / name).chmod(0o755)


def _cases(args: argparse.Namespace, top: Path) -> list[Case]:
    folder = Path(shutil.copytree(PROJECTS / "llava-loss-zero-fixed", top / "llava"))
    (folder / ".git").mkdir()
    script = ("bash", "scripts/finetune.sh")
    words = "torchrun --nproc_per_node 8 llava/train/train.py --deepspeed scripts/zero2.json --output_dir out"
    cases = [
        Case("no launch: `echo`", ("echo", "x"), folder),
        Case("`torchrun`, first time", tuple(words.split()), folder, cold=True),
        Case("launch script, first time", script, folder, cold=True),
        Case(
            "the same with the code of the script, `--time-limit 0`", script, folder, ("--time-limit", "0"), cold=True
        ),
        Case("the same again", script, folder, ("--time-limit", "0")),
        Case("launch script, judged before", script, folder),
    ]
    if args.project:
        own, command = args.project.resolve(), ("bash", args.script)
        cases += [
            Case(f"{own.name}, {args.script}, first time", command, own, cold=True),
            Case(f"{own.name}, `--time-limit 0`", command, own, ("--time-limit", "0"), cold=True),
            Case(f"{own.name}, judged before", command, own),
        ]
    return cases


def _row(case: Case, runs: int, cache: Path) -> str:
    dslint = [sys.executable, "-m", "dslint", "run", "--fail-on", "error", *case.flags]
    environ = {**os.environ, "PYTHONPATH": str(REPO)}
    alone = [_seconds(case.command, case.folder, environ)[0] for _ in range(runs + 1)][1:]
    walls, processor = [], []
    for number in range(runs + 1):
        if case.cold:
            shutil.rmtree(cache, ignore_errors=True)
        wall, cpu = _seconds([*dslint, "--", *case.command], case.folder, environ)
        if number:
            walls.append(wall)
            processor.append(cpu)
    base = statistics.median(alone)
    figures = (base, statistics.median(walls) - base, min(walls) - min(alone), statistics.median(processor))
    return f"| {case.name} | {' | '.join(f'{figure:.3f}' for figure in figures)} |"


def _seconds(command: Sequence[str], folder: Path, environ: dict[str, str]) -> tuple[float, float]:
    """Until the first byte of the command, and the processor time of all processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    ) as child:
        assert child.stdout is not None
        first = child.stdout.read(1)
        seconds = time.perf_counter() - begin
        child.stdout.read()
    if not first:
        raise SystemExit(f"{' '.join(command)}: the command did not start: there is nothing to measure")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
