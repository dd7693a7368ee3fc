"""Measure how far the interpreter of Python comes in real projects: what it reaches, and what it knows there.

    python scripts/measure_reach.py DIR... [--seconds 60] [--json FILE]

For each project: the share of the functions that mention a library call of interest that an entry reaches (from a
script, and from any entry), the share of the events of methods whose receiver is known, and the reasons for which
receivers and arguments of these events are unknown.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dslint.engine.projectfiles import ProjectFiles
from dslint.python.entries import Analysis
from dslint.python.events import Event, events
from dslint.python.libraries import libraries
from dslint.python.relevance import TAGS, FunctionNode, Relevance, event_words
from dslint.python.shared import Shared
from dslint.python.source import Module
from dslint.python.values import Instance, Unknown, Value
from dslint.python.varies import LOST

_QUOTED = re.compile(r"`[^`]*`")
_SKIPPED = frozenset({".git", "build", "dist", "node_modules", "__pycache__", "third_party"})


class Watched(Analysis):
    """An analysis that remembers what the script alone reached."""

    from_script: frozenset[int] = frozenset()

    def open(self, module: Module) -> None:
        """Interpret what nothing has reached, after taking down what the script has."""
        if self.entries and self.entries[0].kind == "script":
            self.from_script = frozenset(self.machine.reached)
        super().open(module)


@dataclass
class Measured:
    """The figures of one project."""

    name: str
    files: int = 0
    read: int = 0
    functions: int = 0
    from_script: int = 0
    reached: int = 0
    events: int = 0
    methods: int = 0
    known: int = 0
    collectives: int = 0
    ranks_known: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    errors: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """Return the figures as a table."""
        found = {key: value for key, value in vars(self).items() if not isinstance(value, Counter)}
        return {**found, "unknown": dict(self.unknown.most_common(20)), "lost": dict(self.lost.most_common())}


def python_files(folder: str) -> list[str]:
    """Return the files of a project, scripts first."""
    found: list[tuple[bool, str]] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _SKIPPED)
        for name in sorted(names):
            path = os.path.join(root, name)
            if name.endswith(".py") and os.path.isfile(path):
                found.append((b"__main__" not in Path(path).read_bytes(), os.path.abspath(path)))
    return [path for _, path in sorted(found)]


def measure(folder: str, seconds: float) -> Measured:
    """Return the figures of one project; files that are not read in time are left out."""
    found = Measured(Path(folder).name)
    paths = python_files(folder)
    found.files = len(paths)
    files = ProjectFiles()
    shared = Shared()
    scripts: set[int] = set()
    reached: set[int] = set()
    seen: set[tuple[int, str]] = set()
    start = time.process_time()
    for path in paths:
        if time.process_time() - start > seconds:
            break
        before = time.process_time()
        analysis = Watched(files, shared=shared)
        try:
            is_script = b"__main__" in Path(path).read_bytes()
            (analysis.script if is_script else analysis.module)(path)
        except Exception as error:  # a figure, too
            found.errors += 1
            print(f"{path}: {type(error).__name__}: {error}", file=sys.stderr)
        found.read += 1
        found.slowest = max(found.slowest, time.process_time() - before)
        scripts |= analysis.from_script
        reached |= analysis.machine.reached
        found.lost.update(analysis.machine.lost)
        _count_events(found, analysis, seen)
    found.seconds = time.process_time() - start
    _count_functions(found, shared.parsed, paths[: found.read], scripts, reached)
    return found


def _count_functions(
    found: Measured, parsed: dict[str, Module | None], paths: list[str], scripts: set[int], reached: set[int]
) -> None:
    """Count the functions that mention a library call of interest, and those of them that were reached."""
    index = Relevance(libraries())
    words = event_words(libraries())
    for path in paths:
        module = parsed.get(path)
        if module is None:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, FunctionNode) and _calls(node, module, index, words):
                found.functions += 1
                found.from_script += id(node) in scripts
                found.reached += id(node) in reached


def _calls(node: ast.AST, module: Module, index: Relevance, words: frozenset[str]) -> bool:
    """Return whether a function itself calls something of interest, by name."""
    if index.words(node, module).isdisjoint(words):
        return False
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            name = inner.func.attr if isinstance(inner.func, ast.Attribute) else getattr(inner.func, "id", "")
            if name in words:
                return True
    return False


def _count_events(found: Measured, analysis: Watched, seen: set[tuple[int, str]]) -> None:
    for entry in analysis.entries:
        for event in events(entry.tree):
            key = (id(event.node), event.api)
            if key in seen or not {tag.partition(" ")[0] for tag in event.tags} & TAGS:
                continue
            seen.add(key)
            found.events += 1
            if event.receiver is not None:
                found.methods += 1
                found.known += _is_known(event.receiver)
            if "collective" in event.tags:
                found.collectives += 1
                found.ranks_known += not event.varies & LOST
            found.unknown.update(_reasons(event, analysis))


def _is_known(value: Value) -> bool:
    """Return whether a receiver is an object of a known class, for certain."""
    return bool(value.atoms) and all(
        bool(atom.cls) if isinstance(atom, Instance) else not isinstance(atom, Unknown) for atom in value.atoms
    )


def _reasons(event: Event, analysis: Watched) -> Iterator[str]:
    """Yield why the receiver and the arguments of an event are unknown."""
    for value in (event.receiver, *event.arguments.values()):
        for atom in value.atoms if value is not None else ():
            held = atom
            if isinstance(atom, Instance) and not atom.cls:
                content = analysis.machine.store.peek((atom, "#content"))
                held = next((a for a in content.atoms if isinstance(a, Unknown)), atom) if content is not None else atom
            if isinstance(held, Unknown):
                yield f"{held.kind}: {_QUOTED.sub('`…`', held.reason)}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:5.1f} %" if whole else "      -"


def table(rows: list[Measured]) -> str:
    """Return the figures as a text for people."""
    head = (
        f"{'project':24} {'files':>11} {'functions':>9} {'script':>8} {'any':>8} {'events':>7} {'receiver':>8} "
        f"{'ranks':>8} {'s':>6} {'slowest':>7} {'errors':>6}"
    )
    lines = [head]
    total = Measured("all")
    for row in rows:
        lines.append(_line(row))
        for name, value in vars(row).items():
            if isinstance(value, Counter):
                getattr(total, name).update(value)
            elif isinstance(value, int | float):
                setattr(total, name, getattr(total, name) + value)
    total.slowest = max((row.slowest for row in rows), default=0.0)
    lines += [_line(total), "", "unknown receivers and arguments of events, by reason:"]
    lines += [f"  {count:6} {reason}" for reason, count in total.unknown.most_common(25)]
    lines += ["", "passed over:", *(f"  {count:6} {reason}" for reason, count in total.lost.most_common())]
    return "\n".join(lines)


def _line(row: Measured) -> str:
    return (
        f"{row.name:24} {row.read:5}/{row.files:5} {row.functions:9} {_share(row.from_script, row.functions):>8} "
        f"{_share(row.reached, row.functions):>8} {row.events:7} {_share(row.known, row.methods):>8} "
        f"{_share(row.ranks_known, row.collectives):>8} {row.seconds:6.1f} {row.slowest:7.2f} {row.errors:6}"
    )


def main() -> None:
    """Measure the projects that are named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time for each project")
    parser.add_argument("--json", help="file for the figures")
    options = parser.parse_args()
    gc.disable()
    sys.setrecursionlimit(5000)
    libraries()
    rows = []
    for folder in options.folders:
        rows.append(measure(folder, options.seconds))
        gc.collect()
    print(table(rows))
    if options.json:
        Path(options.json).write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
