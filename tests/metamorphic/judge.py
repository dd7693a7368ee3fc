"""One rewritten example before dslint: found, missed, a false alarm, or nothing to judge."""

from __future__ import annotations

import ast
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from dslint.engine.fixer import fix_paths
from metamorphic import blocks, calls, imports, layout, ranks, structure, tests_of_ranks, values
from metamorphic.examples import Case, findings, loud, own
from metamorphic.subject import REWRITES, Rewrite, Subject

# Each module adds its rewrites to the list.
ROOMS = (imports, tests_of_ranks, ranks, calls, structure, blocks, values, layout)


@dataclass(frozen=True)
class Verdict:
    """``kind``: found, weaker, missed, false alarm, silent (as it must be)."""

    kind: str
    subject: Subject
    said: tuple[str, ...]


def rewritten(case: Case, rewrites: Sequence[Rewrite], generator: Random) -> Subject | None:
    """The example after all of them, or ``None`` where one does not apply."""
    path = generator.choice(case.scripts())
    subject = Subject(dict(case.files), path)
    for rewrite in sorted(rewrites, key=lambda r: r.phase):
        if subject.is_imported and not rewrite.keeps_interface:
            return None
        try:
            new = rewrite.apply(subject, generator)
            if new is None:
                return None
            if new.path.endswith(".py"):
                ast.parse(new.text.removeprefix("\ufeff"))
        except SyntaxError:
            if len(rewrites) == 1:
                raise
            return None  # layouts that do not go together, such as tabs and lines moved by blanks
        subject = new
    return subject


def generator_of(case: Case, *more: object) -> Random:
    """The same choices for the same example, whatever examples others add."""
    return Random(zlib.crc32(repr((case.name, *more)).encode()))


def judged(root: Path, case: Case, subject: Subject) -> Verdict:
    found = findings(root, case, subject.files)
    said = tuple(f"{f.location} {f.severity.value} {f.code}: {f.message}" for f in found)
    if not case.is_bad:
        return Verdict("false alarm" if loud(case, found) else "silent", subject, said)
    mine = own(case, found)
    if not mine:
        return Verdict("missed", subject, said)
    wanted = case.severities
    is_weaker = bool(wanted) and not wanted & {f.severity.value for f in mine}
    return Verdict("weaker" if is_weaker else "found", subject, said)


def pick(case: Case, generator: Random, count: int) -> tuple[list[Rewrite], Subject] | None:
    """Some rewrites that apply to an example together."""
    known = sorted(REWRITES)
    for _ in range(40):
        chosen = [REWRITES[name] for name in generator.sample(known, count)]
        if sum(r.phase == 4 for r in chosen) > 1:
            continue
        subject = rewritten(case, chosen, generator)
        if subject is not None and subject.files != case.files:
            return chosen, subject
    return None


def misfixed(root: Path, case: Case, subject: Subject) -> str:
    """What is wrong with the fix of a rewritten bad example; empty when nothing is, or when there is none."""
    mine = [f for f in own(case, findings(root, case, subject.files)) if f.fix is not None]
    if not mine or not subject.path.endswith(".py"):
        return ""
    is_unsafe = case.rule.meta.fix == "unsafe"
    done = fix_paths(["."], case.settings(root, select=[case.code]), is_unsafe, {})
    if done.refused:
        return f"refused: {done.refused[0]}"
    after = {**subject.files, **done.after}
    try:
        places = {path: _changed(subject.files[path], after[path]) for path in done.after}
    except SyntaxError as error:
        return f"does not parse: {error}"
    if sum(places.values()) > len(mine) * _STATEMENTS_A_FIX:
        return f"touches {sum(places.values())} statements for {len(mine)} findings"
    left = [f for f in own(case, findings(root, case, after)) if f.fix is not None]
    return f"{len(left)} findings with a fix are left" if left else ""


# A fix replaces, adds or removes one statement, and an ``if`` that it empties, or the import that it needs.
_STATEMENTS_A_FIX = 3


def _changed(before: str, after: str) -> int:
    old, new = _statements(before), _statements(after)
    return max(sum((old - new).values()), sum((new - old).values()))


def _statements(text: str) -> Counter[str]:
    """The statements of a file, of compound ones what stands before the colon."""
    found: Counter[str] = Counter()
    for node in ast.walk(ast.parse(text.removeprefix("\ufeff"))):
        if isinstance(node, ast.stmt):
            parts = [
                v for f, v in ast.iter_fields(node) if f not in ("body", "orelse", "finalbody", "handlers", "cases")
            ]
            found[type(node).__name__ + "".join(map(_dumped, parts))] += 1
    return found


def _dumped(part: object) -> str:
    if isinstance(part, list):
        return "".join(map(_dumped, part))
    return ast.dump(part) if isinstance(part, ast.AST) else repr(part)
