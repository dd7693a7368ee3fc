"""How long dslint takes for many launch files: shell scripts and Markdown of real projects, in one folder.

    python benchmarks/launch.py PROJECT [PROJECT ...] [--runs 5]

Copies up to ``--scripts`` shell scripts and ``--markdown`` files of the projects, with the DeepSpeed configs beside
them, into a temporary folder that keeps the folders of each project, and runs ``dslint --no-cache`` over it. Markdown
with fences comes first, so that files without commands do not make the figure better than it is. Python files stay
behind: they are another stage, which ``run.py`` measures.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

SHELL = (".sh", ".bash", ".sbatch", ".slurm")
# A config is written by a person.
MOST_BYTES = 50_000


def main() -> int:
    """Make the corpus, run dslint over it and print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="+", type=Path, metavar="PROJECT")
    parser.add_argument("--runs", type=int, default=5, help="measured runs (default: 5)")
    parser.add_argument("--scripts", type=int, default=1000, help="shell scripts at most (default: 1000)")
    parser.add_argument("--markdown", type=int, default=1500, help="Markdown files at most (default: 1500)")
    parser.add_argument("--dslint", default=f"{sys.executable} -m dslint", help="the command that starts dslint")
    args = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p
    )
    with tempfile.TemporaryDirectory(prefix="dslint-bench-") as folder:
        counts = make_corpus(args.projects, Path(folder), args.scripts, args.markdown)
        print("{} shell scripts, {} Markdown files, {} configs".format(*counts))
        command = [*shlex.split(args.dslint), "--no-cache", "--output-format", "concise", "."]
        measure(command, folder)  # unmeasured: byte code and the disk cache
        runs = [measure(command, folder) for _ in range(args.runs)]
    for name, times in zip(("wall", "CPU"), zip(*runs, strict=True), strict=True):
        print(f"{name}: best {min(times):.2f} s, worst {max(times):.2f} s")
    return 0


def make_corpus(projects: Sequence[Path], target: Path, scripts: int, markdown: int) -> tuple[int, int, int]:
    """Copy the files; how many of each kind there are."""
    shell: list[tuple[Path, Path]] = []
    docs: list[tuple[Path, Path]] = []
    configs: list[tuple[Path, Path]] = []
    for number, project in enumerate(projects):
        for path in files_of(project.resolve()):
            place = target / f"{number}-{project.resolve().name}" / path.relative_to(project.resolve())
            if path.suffix in SHELL:
                shell.append((path, place))
            elif path.suffix == ".md":
                docs.append((path, place))
            elif path.suffix == ".json" and path.stat().st_size < MOST_BYTES and holds(path, b"zero_optimization"):
                configs.append((path, place))
    docs.sort(key=lambda pair: not holds(pair[0], b"```"))
    chosen = (shell[:scripts], docs[:markdown], configs)
    for path, place in (pair for group in chosen for pair in group):
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return len(chosen[0]), len(chosen[1]), len(chosen[2])


def files_of(project: Path) -> Iterator[Path]:
    """The regular files of a project in a fixed order."""
    for folder, names, files in os.walk(project):
        names[:] = sorted(name for name in names if name != ".git")
        yield from (path for path in (Path(folder, name) for name in sorted(files)) if not path.is_symlink())


def holds(path: Path, word: bytes) -> bool:
    """Whether the file holds these bytes."""
    return word in path.read_bytes()


def measure(command: list[str], folder: str) -> tuple[float, float]:
    """Seconds on the clock and of processor time that one run takes."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    if done.returncode not in (0, 1):
        sys.exit(f"exit code {done.returncode} from: {shlex.join(command)}\n{done.stderr}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
