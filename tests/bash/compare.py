"""Compare what dslint reads in launch scripts with what the real bash runs: ``python tests/bash/compare.py FOLDER``.

Every script of the folder runs in a root of its own that holds recording stubs and a few harmless tools
(docs/bash.md). Exit code 1 when a word or a variable that dslint knows is not the one that bash passed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path

from bashrun.comparing import Figures, Inputs, compare_script, guessed_inputs
from bashrun.sandbox import Sandbox

_SUFFIXES = {".sh", ".bash", ".sbatch", ".slurm"}
_LISTS = ("not_run", "not_seen", "unknown")


def main() -> int:
    options = _arguments().parse_args()
    folder = Path(options.folder).resolve()
    if not folder.is_dir():
        print(f"compare.py: {options.folder} is no folder", file=sys.stderr)
        return 2
    scripts = options.only or sorted(_scripts(folder))
    stated = [Inputs(tuple(shlex.split(text)), tuple(_pairs(options.env))) for text in options.arguments or [""]]
    begin = time.perf_counter()
    total = Figures()
    try:
        sandbox = Sandbox(None if options.trust else True)
    except PermissionError as error:
        print(f"compare.py: {error}; --trust runs the scripts without", file=sys.stderr)
        return 2
    with sandbox:
        sandbox.add_programs((folder / script).read_text("utf-8", "replace") for script in scripts)
        for script in scripts:
            text = (folder / script).read_text("utf-8", "replace")
            inputs = guessed_inputs(text) if options.guess else stated
            total.add(compare_script(sandbox, folder, script, inputs, options.seconds))
    if options.json:
        Path(options.json).write_text(json.dumps(asdict(total), indent=2) + "\n")
    print(told(total, time.perf_counter() - begin))
    for name in options.show or []:
        print(f"\n{name}:", *getattr(total, name), sep="\n  ")
    return 1 if total.differences else 0


def told(figures: Figures, seconds: float) -> str:
    """The figures as text, every difference spelled out."""
    lines = [difference.told() for difference in figures.differences]
    kinds = [difference.kind for difference in figures.differences]
    lines += [
        f"{figures.scripts} scripts, {figures.runs} runs in {seconds:.1f} s, {figures.timed_out} stopped at the limit",
        f"{figures.commands} launch commands compared; {figures.complete} of them known completely,"
        f" {figures.identical} of these identical ({_share(figures.identical, figures.complete)})",
        f"{figures.known} of {figures.words} words known ({_share(figures.known, figures.words)});"
        f" {kinds.count('words')} commands with a wrong known word",
        f"{figures.variables} environment variables known, {kinds.count('variable')} of them wrong",
        f"{len(figures.not_run)} commands of dslint that bash did not reach,"
        f" {len(figures.not_seen)} that bash ran and dslint did not see",
    ]
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _pairs(texts: list[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (text.partition("=") for text in texts)]


def _scripts(folder: Path) -> list[str]:
    found = []
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_file() or ".git" in path.parts:
            continue
        if path.suffix in _SUFFIXES or (not path.suffix and _has_shebang(path)):
            found.append(path.relative_to(folder).as_posix())
    return found


def _has_shebang(path: Path) -> bool:
    with path.open("rb") as file:
        line = file.readline(100)
    return line.startswith(b"#!") and b"sh" in line and b"python" not in line


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", help="the project; scripts run in copies of it")
    parser.add_argument("--only", action="append", metavar="SCRIPT", help="a script, relative to the folder")
    parser.add_argument("--arguments", action="append", metavar="TEXT", help="arguments of a run; again: another run")
    parser.add_argument("--guess", action="store_true", help="more runs, with arguments that the script compares with")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable of every run")
    parser.add_argument("--seconds", type=float, default=10.0, help="limit for a run (10)")
    parser.add_argument("--json", metavar="FILE", help="write all figures and lists there")
    parser.add_argument("--show", action="append", choices=_LISTS, help="print one of the lists too")
    parser.add_argument("--trust", action="store_true", help="run without namespaces where there are none")
    return parser


if __name__ == "__main__":
    sys.exit(main())
