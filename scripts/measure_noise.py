"""Print how findings over real projects are shared out between rules and severities.

Usage: ``python scripts/measure_noise.py FOLDER...``, each a clone of a project, or ``--reports FILE.json...`` with what
``dslint --output-format json`` has printed. ``--each`` counts every place: equal notes one by one, and what is a note
for its place alone apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# No rule should be more than this part of all findings, and notes less than half.
MOST = 0.15


def report_of(folder: str) -> list[dict[str, object]]:
    """What dslint finds in a project, in a process of its own."""
    command = [sys.executable, "-m", "dslint", "--no-cache", "--output-format", "json", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1):
        print(f"{folder}: exit code {ran.returncode}: {ran.stderr.strip()[-200:]}", file=sys.stderr)
        return []
    found: list[dict[str, object]] = json.loads(ran.stdout)["findings"]
    return found


def counted(findings: list[dict[str, object]], *, each: bool) -> list[tuple[str, str]]:
    """Code and severity of each finding; of each place, where every place counts."""
    rows: list[tuple[str, str]] = []
    for finding in findings:
        related = finding.get("related")
        places = [place for place in related if place["label"] == "here too"] if isinstance(related, list) else []
        severity = "lowered" if each and finding.get("aside") else str(finding["severity"])
        rows += [(str(finding["code"]), severity)] * (1 + len(places) * each)
    return rows


def table(rows: list[tuple[str, str]], most: int) -> str:
    """The shares as text."""
    whole = len(rows) or 1
    lines = [f"{'code':<8} {'findings':>8} {'share':>7}"]
    for code, number in Counter(code for code, _ in rows).most_common(most):
        mark = "  more than 15 %" if number > MOST * whole else ""
        lines.append(f"{code:<8} {number:>8} {100 * number / whole:>6.1f} %{mark}")
    lines += ["", f"{'severity':<8} {'findings':>8} {'share':>7}"]
    for severity, number in Counter(severity for _, severity in rows).most_common():
        lines.append(f"{severity:<8} {number:>8} {100 * number / whole:>6.1f} %")
    return "\n".join([*lines, f"{'all':<8} {len(rows):>8}"])


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Shares of rules and severities in all findings over projects.")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="folders of projects, or reports")
    parser.add_argument("--reports", action="store_true", help="the paths are files of --output-format json")
    parser.add_argument("--each", action="store_true", help="count every place")
    parser.add_argument("--most", type=int, default=15, help="so many rules (default 15)")
    arguments = parser.parse_args()
    rows: list[tuple[str, str]] = []
    for path in arguments.paths:
        found = json.loads(Path(path).read_text())["findings"] if arguments.reports else report_of(path)
        rows += counted(found, each=arguments.each)
    print(f"{len(arguments.paths)} projects\n\n{table(rows, arguments.most)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
