"""Run every experiment on this machine and record what came of it in ``dslint/rules/evidence.json``.

Usage: ``python scripts/record_evidence.py [--platform NAME] [--from FILE] [--report FILE.md] [--case NAME]``. The
records of other platforms stay; with ``--case`` those of other experiments do too. ``--from`` reads the JSON report of
a run made elsewhere (``dslint probe --all --format json``). Then run ``scripts/generate_evidence.py``.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "dslint/rules/evidence.json"


def measure(cases: list[str], report: str | None) -> dict[str, Any]:
    """The JSON report of a probe run."""
    command = [sys.executable, "-m", "dslint", "probe", "--format", "json"]
    for case in cases:
        command += ["--case", case]
    command += [] if cases else ["--all"]
    command += ["--report", report] if report else []
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 2:
        raise SystemExit("the probe could not run")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What is kept of each result: no stacks, no values, seconds to a tenth."""
    return [
        {
            "experiment": result["experiment"], "case": result["case"], "rules": result["rules"],
            "verdict": result["verdict"], "expected": result["expected"], "seconds": round(result["seconds"], 1),
            "reason": _reason(result["reason"]),
        }
        for result in document["results"]
    ]  # fmt: skip


def _reason(text: str) -> str:
    # Port numbers and folders change from run to run, and the interpreter stands elsewhere on another machine.
    plain = re.sub(r"(127\.0\.0\.1\]?):\d+", r"\1", " ".join(text.split()))
    plain = re.sub(r"/[^\s:']*/dslint-probe-[^/\s]+/arms/\d+/\d+/", "", plain)
    return re.sub(r"/[^\s:']*/(python[\d.]*)(?=[:\s])", r"\1", plain)[:300]


def main() -> int:
    """Measure and record."""
    parser = argparse.ArgumentParser(description="Record what the experiments say on this machine.")
    parser.add_argument("--platform", default="cpu", help="name of the hardware (default: cpu)")
    parser.add_argument("--from", dest="source", help="a JSON report instead of a run here")
    parser.add_argument("--report", help="also write a Markdown report")
    parser.add_argument("--case", action="append", default=[], help="only this experiment or experiment/case")
    arguments = parser.parse_args()
    if arguments.source:
        document = json.loads(Path(arguments.source).read_text(encoding="utf-8"))
    else:
        document = measure(arguments.case, arguments.report)
    data: dict[str, Any] = (
        json.loads(TARGET.read_text(encoding="utf-8")) if TARGET.exists() else {"version": 1, "platforms": {}}
    )
    found = rows(document)
    before: dict[str, Any] | None = data["platforms"].get(arguments.platform) if arguments.case else None
    old: list[dict[str, Any]] = before["results"] if before is not None else []
    if before is not None:
        # The head speaks of the run that recorded everything; later records say their own versions where these differ.
        if document["versions"] != before["versions"]:
            found = [{**row, "versions": document["versions"]} for row in found]
        head = {key: before[key] for key in ("versions", "backend", "gpus", "machine")}
    else:
        head = {key: document[key] for key in ("versions", "backend", "gpus", "machine")}
    new = {(row["experiment"], row["case"]): row for row in [*old, *found]}
    data["platforms"][arguments.platform] = {**head, "results": [new[key] for key in sorted(new)]}
    TARGET.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    wrong = [row for row in found if row["verdict"] not in (row["expected"], "NEEDS")]
    for row in wrong:
        print(f"{row['experiment']}/{row['case']}: {row['verdict']}, expected {row['expected']}: {row['reason']}")
    print(f"recorded {len(found)} cases for {arguments.platform}, {len(wrong)} unexpected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
