"""Make the picture of the README from a real run: what a terminal shows, as SVG without fonts from elsewhere.

Usage: ``python scripts/generate_picture.py [--check]``.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs/images/example.svg"
PROJECT = ROOT / "tests/fixtures/projects/llava-loss-zero"
WIDTH = 100
COMMAND = "dslint scripts/zero2.json"


def output() -> str:
    """What the command prints on a terminal of this width."""
    with tempfile.TemporaryDirectory() as name:
        project = shutil.copytree(PROJECT, Path(name) / "project")
        (project / ".git").mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DSLINT_", "NO_COLOR", "FORCE_COLOR"))}
        environment = {**kept, "COLUMNS": str(WIDTH), "PYTHONPATH": str(ROOT), "TERM": "xterm"}
        flags = ["--no-cache", "--output-format", "full", "--color", "always"]
        done = subprocess.run(
            [sys.executable, "-m", *COMMAND.split(), *flags],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1, done.stderr
    return f"\x1b[1m$\x1b[0m {COMMAND}\n{done.stdout}{done.stderr}"


def picture() -> str:
    """The SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(output()), soft_wrap=True)
    text = console.export_svg(title="dslint", unique_id="dslint")
    # Fonts of another host: no page of ours asks one for anything.
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.S)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def main(arguments: list[str]) -> int:
    """Write the picture, or say with ``--check`` that it is out of date."""
    made = picture()
    here = TARGET.read_text(encoding="utf-8") if TARGET.exists() else ""
    if made == here:
        print(f"{TARGET.relative_to(ROOT)}: unchanged")
        return 0
    if "--check" in arguments:
        print(f"{TARGET.relative_to(ROOT)} is out of date")
        return 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(made, encoding="utf-8")
    print(f"wrote {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
