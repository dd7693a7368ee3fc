"""Write every committed file that is made from others, in the order in which they need each other.

Usage: ``python scripts/generate.py [--check]``. With ``--check`` nothing is written, and the exit status is 1 when a
file is out of date. What needs libraries, a network or many minutes has scripts of its own: schemas of releases,
options of launchers, the differential tests, random programs and records of experiments.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The table of rules comes before all that reads it, and the evidence before the pages that cite it.
STEPS = (
    "libraries",
    "rule_index",
    "settings_schema",
    "translations",
    "evidence",
    "rule_docs",
    "doctor_docs",
    "triage_docs",
    "interpreter_docs",
    "assumptions_docs",
    "mechanisms",
    "picture",
)


def main(arguments: list[str]) -> int:
    """Run every step; return 1 when one fails or, with ``--check``, is out of date."""
    failed = 0
    for step in STEPS:
        command = [sys.executable, str(ROOT / "scripts" / f"generate_{step}.py"), *arguments]
        failed |= subprocess.run(command, cwd=ROOT, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
