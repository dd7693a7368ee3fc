"""Apply fixes in rounds, prove each by judging the result, write atomically, or refuse and say so."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from dslint.core.finding import Finding
from dslint.core.fix import Edit, Fix, Safety, apply_edits
from dslint.engine.cache import RememberedResults
from dslint.engine.run import Result, check_paths, results_of, source_of
from dslint.parse.reading import declared_encoding
from dslint.rules.own import SYNTAX_ERROR

if TYPE_CHECKING:
    from dslint.settings import Settings

# A fix may uncover another finding; ten rounds are more than any real file needs.
_MAX_ROUNDS = 10


@dataclass(slots=True)
class Fixed:
    """Files with their texts before and after, the findings left, and the fixes that were refused."""

    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    applied: int = 0
    refused: list[str] = field(default_factory=list)
    result: Result = field(default_factory=Result)

    @property
    def changed(self) -> list[str]:
        """Paths whose text differs, in order."""
        return sorted(p for p, text in self.after.items() if text != self.before[p])

    @property
    def files(self) -> int:
        """How many files differ: a link and its target are one."""
        return len({os.path.realpath(path) for path in self.changed})


def is_allowed(fix: Fix | None, unsafe: bool) -> bool:
    """Whether ``--fix`` (with ``--unsafe-fixes``: ``unsafe``) may apply a fix."""
    return fix is not None and (unsafe or fix.safety is Safety.SAFE)


def fix_paths(
    paths: Sequence[str],
    settings: Settings,
    unsafe: bool = False,
    overrides: Mapping[str, str] | None = None,
    ignore_noqa: bool = False,
) -> Fixed:
    """Find, fix in memory, judge again, until nothing is left to fix. Nothing is written: see :func:`write`."""
    work = _Work(paths, settings, dict(overrides or {}), ignore_noqa)
    for _ in range(_MAX_ROUNDS):
        todo = [f for f in work.result.findings if is_allowed(f.fix, unsafe) and _identity(f) not in work.rejected]
        chosen = _compatible(todo, work.result.paths)
        if not chosen:
            break
        work.apply(chosen)
    work.out.result = work.result
    work.results.save()
    return work.out


class _Work:
    def __init__(self, paths: Sequence[str], settings: Settings, overrides: dict[str, str], ignore_noqa: bool) -> None:
        # A file that no fix has changed is judged once, also without a cache.
        self.results = RememberedResults(results_of(settings))
        self.check: Callable[[Mapping[str, str]], Result] = partial(
            check_paths, paths, settings, ignore_noqa=ignore_noqa, results=self.results
        )
        self.overrides = overrides
        self.out = Fixed()
        self.rejected: set[tuple[object, ...]] = set()
        # Why fixes proved bad alone.
        self.failed: dict[tuple[object, ...], str] = {}
        self.result = self.check(overrides)
        self.results.asks_cache = False

    def apply(self, chosen: Sequence[Finding]) -> None:
        """Apply the fixes that prove good together, and refuse those that do not even prove good alone."""
        accepted = self._proven(chosen)
        for finding in chosen:
            if finding not in accepted:
                self.rejected.add(_identity(finding))
                why = self.failed.pop(_identity(finding))
                self.out.refused.append(f"{finding.location}: the fix of {finding.code} was not applied: {why}")

    def _proven(self, findings: Sequence[Finding]) -> list[Finding]:
        """Apply as many of these fixes as prove good, and return them: first those that no failure speaks of."""
        suspects = self._tried(findings)
        if not suspects:
            return list(findings)
        if len(findings) == 1:
            return []
        others = [f for f in findings if f not in suspects]
        half = len(suspects) // 2
        parts = [others, suspects] if others else [suspects[:half], suspects[half:]]
        return [finding for part in parts for finding in self._proven(part)]

    def _tried(self, findings: Sequence[Finding]) -> list[Finding]:
        """Apply fixes when they prove good together; else return those whose files are worse or no better by them."""
        edited = self._edited(findings)
        result = self.check({**self.overrides, **edited})
        if wrong := _worse(self.result, result, findings):
            if len(findings) == 1:
                self.failed[_identity(findings[0])] = _why(self.result, result, findings[0])
            touched = [f for f in findings if wrong & {f.location.path, *_paths(f)}]
            return touched or list(findings)
        for path, text in edited.items():
            self.out.before.setdefault(path, self._text(path))
            self.out.after[path] = self.overrides[path] = text
        self.out.applied += len(findings)
        self.result = result
        return []

    def _edited(self, findings: Sequence[Finding]) -> dict[str, str]:
        edits: dict[str, list[Edit]] = {}
        for finding in findings:
            for edit in finding.fix.edits if finding.fix else ():
                edits.setdefault(edit.path, []).append(edit)
        return {path: apply_edits(self._text(path), group) for path, group in edits.items()}

    def _text(self, path: str) -> str:
        source = source_of(path, self.overrides)
        return source.text if source else ""


def _paths(finding: Finding) -> Iterator[str]:
    return (edit.path for edit in (finding.fix.edits if finding.fix else ()))


def _worse(before: Result, after: Result, fixed: Sequence[Finding]) -> set[str]:
    """Return the files where a fixed finding is still there, or a new one has come that is as severe."""
    earlier, now = _count(before.findings), _count(after.findings)
    gone = _count(fixed)
    wrong = {key[0] for key, number in gone.items() if now[key] > earlier[key] - number}
    # A file that could not be read as it was meant may have any finding now.
    unread = {f.location.path for f in fixed if f.code == SYNTAX_ERROR.code or (f.fix and f.fix.uncovers)}
    least = min(f.severity.rank for f in fixed)
    severe = _count(f for f in after.findings if f.severity.rank >= least)
    return wrong | {key[0] for key in severe if key[0] not in unread and now[key] > earlier[key]}


def _why(before: Result, after: Result, fixed: Finding) -> str:
    """What a fix that is refused would leave behind."""
    earlier, now = _count(before.findings), _count(after.findings)
    if now[_key(fixed)] >= earlier[_key(fixed)]:
        return "the finding would stay"
    new = next(f for f in after.findings if now[_key(f)] > earlier[_key(f)] and f.severity.rank >= fixed.severity.rank)
    return "the file would not parse" if new.code == SYNTAX_ERROR.code else f"{new.code} would come: {new.message}"


def _count(findings: Iterable[Finding]) -> Counter[tuple[str, str]]:
    return Counter(map(_key, findings))


def _key(finding: Finding) -> tuple[str, str]:
    return finding.location.path, finding.code


def _identity(finding: Finding) -> tuple[object, ...]:
    return (finding.code, finding.location.path, finding.message)


def _compatible(findings: Sequence[Finding], editable: Set[str]) -> list[Finding]:
    """The first findings in file order whose edits do not touch each other and stay in the given files."""
    chosen: list[Finding] = []
    taken: list[Edit] = []
    for finding in findings:
        edits = finding.fix.edits if finding.fix else ()
        if any(e.path not in editable for e in edits):
            continue
        # The same edit twice (one closing bracket, two findings) is one edit.
        new = [e for e in edits if e not in taken]
        if not any(_touch(e, t) for e in new for t in taken):
            chosen.append(finding)
            taken += new
    return chosen


def _touch(a: Edit, b: Edit) -> bool:
    return a.path == b.path and a.span.start <= b.span.end and b.span.start <= a.span.end


def write(fixed: Fixed) -> list[str]:
    """Write the changed files, each atomically; returns one line for each that could not be written."""
    problems = []
    for path in fixed.changed:
        try:
            _replace(path, fixed.before[path], fixed.after[path])
        except OSError as error:
            problems.append(f"{path}: not fixed: {error.strerror or error}")
    return problems


def _replace(path: str, before: str, after: str) -> None:
    # Through a symbolic link: the file it names changes, the link stays.
    target = os.path.realpath(path)
    with open(target, "rb") as handle:
        raw = handle.read()
    bom = b"\xef\xbb\xbf" if raw.startswith(b"\xef\xbb\xbf") else b""
    encoding = declared_encoding(raw) or "utf-8"
    try:
        data = bom + after.encode(encoding)
    except UnicodeEncodeError:
        raise OSError(0, f"what it would hold cannot be written in {encoding}") from None
    if raw == data:
        return  # fixed already, under another name
    if raw != bom + before.encode(encoding):
        raise OSError(0, "it changed while dslint was reading it")
    if not os.access(target, os.W_OK):
        # Its folder would let us, but somebody has locked the file.
        raise PermissionError(errno.EACCES, "the file is read-only")
    status = os.stat(target)
    descriptor, temporary = tempfile.mkstemp(prefix=".dslint-", dir=os.path.dirname(target))
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        with suppress(OSError):
            # Under sudo the file still belongs to its owner.
            os.chown(temporary, status.st_uid, status.st_gid)
        os.chmod(temporary, stat.S_IMODE(status.st_mode))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
