"""The long run: every rewrite of every example, or thousands of random compositions.

python tests/metamorphic/long.py                     # single rewrites, and what the table should hold
python tests/metamorphic/long.py --together 3 -n 10  # ten compositions of up to three rewrites for each example
python tests/metamorphic/long.py --fixes             # the fixes of the rewritten bad examples
python tests/metamorphic/long.py --write             # single rewrites, and the table is written anew
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from metamorphic.examples import CASES, Case
from metamorphic.judge import generator_of, judged, misfixed, pick, rewritten
from metamorphic.subject import REWRITES, Rewrite, Subject
from metamorphic.table import TABLE, allowed

FILE = Path(__file__).with_name("abstentions.toml")
HEAD = FILE.read_text().partition("\n[[rewrite]]")[0]
TAIL = "".join(FILE.read_text().partition("\n[[together]]")[1:])

# rule, example, rewrites, verdict, what was said
Row = tuple[str, str, tuple[str, ...], str, str]


def subjects(case: Case, options: argparse.Namespace) -> Iterator[tuple[list[Rewrite], Subject]]:
    if not options.together:
        for rewrite in REWRITES.values():
            subject = rewritten(case, [rewrite], generator_of(case, rewrite.name))
            if subject is not None and subject.files != case.files:
                yield [rewrite], subject
        return
    for seed in range(options.n):
        generator = generator_of(case, "long", options.seed, seed)
        found = pick(case, generator, generator.randint(2, options.together))
        if found is not None:
            yield found


def rows(number: int, options: argparse.Namespace) -> list[Row]:
    root = Path(tempfile.mkdtemp())
    found: list[Row] = []
    for case in CASES[number :: options.jobs]:
        if options.fixes and case.example.fixed is None:
            continue
        for rewrites, subject in subjects(case, options):
            names = tuple(r.name for r in rewrites)
            if options.fixes:
                wrong = misfixed(root / "project", case, subject)
                found.append((case.code, case.name, names, "misfixed" if wrong else "fixed", wrong))
            else:
                verdict = judged(root / "project", case, subject)
                found.append((case.code, case.name, names, verdict.kind, "\n".join(verdict.said)))
    shutil.rmtree(root, ignore_errors=True)
    return found


def report(found: list[Row], options: argparse.Namespace) -> None:
    print(
        len(found),
        dict(Counter(kind for _, _, _, kind, _ in found)),
        f"{len(REWRITES)} rewrites, {len(CASES)} examples",
    )
    for _, name, names, kind, said in found:
        if kind in ("false alarm", "misfixed"):
            print(f"{kind}: {name} | {', '.join(names)}\n{said}")
        elif kind == "missed" and not allowed(name.split()[0], names):
            print(f"missed: {name} | {', '.join(names)}")
    if options.together or options.fixes:
        return
    missed: defaultdict[str, set[str]] = defaultdict(set)
    for code, _, names, kind, _ in found:
        if kind == "missed":
            missed[names[0]].add(code)
    for name in sorted({*missed, *TABLE}):
        stands = set(TABLE[name].rules) if name in TABLE else set()
        if stands != missed[name]:
            print(f"{name}: add {sorted(missed[name] - stands)}, drop {sorted(stands - missed[name])}")
    if options.write:
        names = [name for name in dict.fromkeys((*TABLE, *sorted(missed))) if missed[name]]
        FILE.write_text(HEAD + "".join(entry(name, missed[name]) for name in names) + TAIL)


def entry(name: str, codes: set[str]) -> str:
    """Return the text of one entry of the table, with the reason that it has."""
    why = TABLE[name].why.strip() if name in TABLE else "Nobody has looked into it yet."
    listed = textwrap.fill(", ".join(f'"{code}"' for code in sorted(codes)), 112)
    rules = f"[{listed}]" if "\n" not in listed and len(listed) < 100 else f"[\n{textwrap.indent(listed, '    ')},\n]"
    return f'\n[[rewrite]]\nname = "{name}"\nwhy = """\\\n{why}"""\nrules = {rules}\n'


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--together", type=int, default=0)
    parser.add_argument("-n", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixes", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    with multiprocessing.Pool(options.jobs) as pool:
        parts = pool.map(partial(rows, options=options), range(options.jobs))
    report([row for part in parts for row in part], options)
