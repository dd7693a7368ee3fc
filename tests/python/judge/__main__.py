"""`python -m python.judge 0 100` judges generated programs; `--show SEED` prints one, `--ignorant` needs no engine."""

from __future__ import annotations

import argparse

from .engine import Ignorance, believe
from .programs import ALL, program
from .verdict import judge_many


def main() -> int:
    parser = argparse.ArgumentParser(prog="judge", description="CPython judges dslint.python on random programs.")
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("stop", type=int, nargs="?", default=20)
    parser.add_argument("--family", choices=ALL)
    parser.add_argument("--show", type=int, metavar="SEED")
    parser.add_argument("--ignorant", action="store_true", help="judge an engine that knows nothing")
    parser.add_argument("--most", type=int, default=10, help="violations to print")
    options = parser.parse_args()
    if options.show is not None:
        for path, text in program(options.show, options.family).files.items():
            print(f"# {path}\n{text}")
        return 0
    drawn = (program(seed, options.family) for seed in range(options.first, options.stop))
    verdict = judge_many(drawn, (lambda files, job: Ignorance()) if options.ignorant else believe)
    for violation in verdict.violations[: options.most]:
        print(violation, end="\n\n")
    print(verdict.report())
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
