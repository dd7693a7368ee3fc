"""Run all script rules over trees of foreign Python files and count internal errors: there must be none.

    python benchmarks/robustness.py DIRECTORY [DIRECTORY ...] [--every] [--part 1/4]

Without ``--every`` a file meets the rules whose markers it holds, as in a normal run. With it every rule walks every
file, whatever its markers and first looks say, which reaches code that no rule was written for. ``--part`` takes each
n-th file only. Prints each crash and the totals; exit code 1 when there is one.
"""

from __future__ import annotations

import argparse
import gc
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dslint.core.finding import Finding
from dslint.core.source import SourceFile
from dslint.engine.judge import Job, check_script
from dslint.model.context import Context
from dslint.parse.data import ParseProblem
from dslint.parse.python import parse_script
from dslint.parse.reading import Unreadable, decode
from dslint.rules.own import RULE_CRASHED
from dslint.rules.registry import load_rule
from dslint.rules.walk import run_script_rules

RULES = Path(__file__).resolve().parent.parent / "dslint" / "rules" / "script"
CODES = tuple(sorted(p.name[:6].upper() for p in RULES.glob("dsl*.py")))


def main() -> int:
    """Print crashes and totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--every", action="store_true", help="every rule on every file")
    parser.add_argument("--part", default="1/1", help="1/4: the first of four parts")
    options = parser.parse_args()
    number, parts = map(int, options.part.split("/"))
    paths = sorted({p for d in options.directories for p in d.rglob("*.py") if p.is_file()})[number - 1 :: parts]
    judge = _every if options.every else _as_usual
    started = time.perf_counter()
    totals: Counter[str] = Counter()
    crashes = 0
    for path in paths:
        for finding in judge(path):
            totals[finding.code] += 1
            if finding.code == RULE_CRASHED.code:
                crashes += 1
                print(f"{path}: {finding.message}")
    took = time.perf_counter() - started
    print(f"{len(paths)} files, {sum(totals.values())} findings, {crashes} internal errors, {took:.0f} s")
    print(", ".join(f"{code} {count}" for code, count in sorted(totals.items())))
    return 1 if crashes else 0


def _as_usual(path: Path) -> list[Finding]:
    raw = path.read_bytes()
    codes = tuple(c for c in CODES if all(m.search(raw) for m in MARKERS[c]))
    return check_script(Job(str(path), raw, "script", codes, Context())) if codes else []


def _every(path: Path) -> Iterator[Finding]:
    """Each rule alone, so that a crash names it."""
    text = decode(path.read_bytes())
    if isinstance(text, Unreadable):
        return
    gc.disable()
    try:
        doc = parse_script(SourceFile(str(path), text))
        if isinstance(doc, ParseProblem):
            return
        rules = [(m.META, m.Check) for m in (load_rule(c).module for c in CODES)]
        yield from run_script_rules(doc, rules, Context())
    except (RecursionError, MemoryError):
        return
    except Exception as error:
        crash = RULE_CRASHED.finding(SourceFile(str(path), text).location(doc.span(doc.module)), repr(error))
        yield replace(crash, message=f"{type(error).__name__}: {error}")
    finally:
        gc.enable()
        gc.collect()


MARKERS = {c: [re.compile(m.encode()) for m in load_rule(c).module.META.markers] for c in CODES}

if __name__ == "__main__":
    sys.exit(main())
