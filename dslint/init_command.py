"""``dslint init``: settings, a pre-commit entry and a GitHub workflow for a project, shown before they are written."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from dslint import __version__
from dslint.core.commandline import Parser, say

DONE, REFUSED, USAGE = 0, 1, 2
PACKAGE = "deepspeed-lint"
_EPILOG = """\
Files that are there are never changed: what belongs into them is printed.

exit codes: 0 done, 1 not agreed to, 2 wrong usage, or a file that cannot be written.
"""

_SETTINGS = """\
# Settings of dslint. Every key: `dslint schema dslint`, every rule: `dslint rules`.

# fail-on = "error"              # warnings are reported, and the exit code is 0
# min-severity = "info"          # show notes, too
# baseline = "dslint-baseline.json"   # made by: dslint --write-baseline dslint-baseline.json
# extend-exclude = ["third_party/"]

# Facts that no file of the project states. What a command, hostfile or lock file says counts more.
# deepspeed-version = "0.16.9"
# [launch]
# nnodes = 1
# nproc-per-node = 8

[per-file-ignores]
# "tests/**" = ["DSL223"]
# "configs/zero2.json" = ["DSL160:/zero_optimization/overlap_comm"]
"""

_HOOK = """\
  - repo: local
    hooks:
      - id: dslint
        name: dslint
        entry: dslint check --force-exclude
        language: python
        additional_dependencies: ["{requirement}"]
        types: [text]
        require_serial: true
"""

_WORKFLOW = """\
name: dslint
on:
  push:
    branches: [{branch}]
  pull_request:
permissions:
  contents: read
jobs:
  dslint:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
        with:
          persist-credentials: false
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: pip install "{requirement}"
      - run: dslint --output-format github
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A file of the project: its path, its text, and what to say where there is such a file already."""

    path: Path
    text: str
    otherwise: str = ""


def init_parser() -> argparse.ArgumentParser:
    """The parser of ``dslint init``."""
    parser = Parser(
        prog="dslint init",
        description="Write settings, a pre-commit entry and a GitHub workflow, after showing them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="the project (default: .)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--only", choices=("settings", "pre-commit", "github"), help="only this one")
    return parser


def main(arguments: list[str]) -> int:
    """Run ``dslint init``; returns the exit code."""
    options = init_parser().parse_args(arguments)
    folder = Path(options.folder)
    if not folder.is_dir():
        say(f"{options.folder}: no such folder")
        return USAGE
    pieces = pieces_for(folder)
    chosen = [piece for name, piece in pieces.items() if options.only in (None, name)]
    new = [piece for piece in chosen if not _is_there(piece)]
    for piece in chosen:
        _show(piece, is_new=piece in new)
    if not new:
        say("nothing to write")
        return DONE
    if not options.yes and not _agreed(len(new)):
        return REFUSED
    for piece in new:
        piece.path.parent.mkdir(parents=True, exist_ok=True)
        # Whatever has come there meanwhile stays.
        with open(piece.path, "x", encoding="utf-8") as file:
            file.write(piece.text)
        say(f"wrote {piece.path}")
    return DONE


def pieces_for(folder: Path) -> dict[str, Piece]:
    """What a project gets, by name."""
    requirement = requirement_here()
    settings = next((folder / n for n in ("dslint.toml", ".dslint.toml") if (folder / n).exists()), None)
    if settings is None and _has_table(folder / "pyproject.toml"):
        settings = folder / "pyproject.toml"
    hook = _HOOK.format(requirement=requirement)
    workflow = _WORKFLOW.format(requirement=requirement, branch=_branch(folder))
    return {
        "settings": Piece(settings or folder / "dslint.toml", _SETTINGS),
        "pre-commit": Piece(folder / ".pre-commit-config.yaml", f"repos:\n{hook}", hook),
        "github": Piece(folder / ".github/workflows/dslint.yml", workflow),
    }


def requirement_here() -> str:
    """What to install to get this dslint: the git address that it was installed from, else its release."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    vcs = origin.get("vcs_info", {})
    if vcs.get("vcs") == "git" and str(origin.get("url", "")).startswith("https://"):
        return f"{PACKAGE} @ git+{origin['url']}@{vcs.get('commit_id', 'HEAD')}"
    return f"{PACKAGE}=={__version__}"


def _has_table(project: Path) -> bool:
    try:
        return "[tool.dslint" in project.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def _branch(folder: Path) -> str:
    """The branch that is checked out, which is mostly the one that others start from."""
    try:
        head = (folder / ".git/HEAD").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return "main"
    branch = head.removeprefix("ref: refs/heads/")
    return branch if branch != head and branch.replace("-", "").replace("_", "").isalnum() else "main"


def _is_there(piece: Piece) -> bool:
    # A link that leads nowhere is somebody's file, too.
    return os.path.lexists(piece.path)


def _show(piece: Piece, *, is_new: bool) -> None:
    if is_new:
        sys.stdout.write(f"--- {piece.path}\n{piece.text}\n")
        return
    more = f"add to it:\n{piece.otherwise}" if piece.otherwise and not _names_dslint(piece.path) else ""
    sys.stdout.write(f"--- {piece.path} is there and stays as it is{'; ' if more else ''}{more}\n\n")


def _names_dslint(path: Path) -> bool:
    try:
        return "dslint" in path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def _agreed(number: int) -> bool:
    from dslint.core.words import counted

    if not (sys.stdin and sys.stdin.isatty()):
        say("init asks before it writes, and there is no terminal: write dslint init --yes")
        return False
    sys.stdout.flush()
    sys.stderr.write(f"Write {counted(number, 'file')}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
