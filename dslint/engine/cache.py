"""Results of script rules from earlier runs, keyed by content, context, settings and dslint itself.

Kept are the findings of the files that were judged, and for all files which rules find their markers in them.

The cache lives in the user's cache folder, not in the project (dslint writes into a project only what
``--fix`` was asked to write), and is JSON: a cache that could run code when loaded would be a hole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dslint import __version__
from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Location, Region, Span
from dslint.python.search import Question
from dslint.rules.markers import BY_RUN
from dslint.rules.registry import BY_CODE


def default_directory() -> Path:
    """``$XDG_CACHE_HOME/dslint``, else ``~/.cache/dslint``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # then it is to be ignored, says the specification of this variable
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "dslint"


def digest(*parts: bytes | str) -> str:
    """A short stable hash of the parts in order."""
    from hashlib import blake2b  # loads OpenSSL, which a run on one config has no use for

    state = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "big") + data)
    return state.hexdigest()


# Changes with the meaning of what is stored: rows of another format are never looked at.
_FORMAT = "2"


def program_fingerprint() -> str:
    """Changes whenever the installed dslint changes, a source checkout under development included."""
    package = os.path.dirname(os.path.dirname(__file__))
    stamps = []
    for folder, _, names in os.walk(package):
        for name in names:
            if name.endswith((".py", ".json")):
                status = os.stat(os.path.join(folder, name))
                stamps.append(f"{name}:{status.st_size}:{status.st_mtime_ns}")
    return digest(__version__, _FORMAT, *sorted(stamps))


# Entries of other contents are kept up to this number: branches are switched back and forth.
_MOST = 20_000
_MOST_ANSWERS = 100_000


class ResultCache:
    """Findings by key for one project; unreadable or foreign cache files count as empty."""

    def __init__(self, directory: Path, root: str, fingerprint: str) -> None:
        self.file = directory / f"{digest(os.path.abspath(root), fingerprint)}.json"
        self._fresh = _Table()
        self._changed = False
        self._old = _Table.read(self.file)
        self._held: dict[int, bool] = {}
        self._numbers = {tuple(answer): number for number, answer in enumerate(self._old.answers)}

    def get(self, key: str, path: str, answer: Callable[[Question], str]) -> list[Finding] | None:
        """The findings stored under a key; ``None`` when there are none, or a question behind them has a new answer."""
        row = self._old.findings.get(key)
        if row is None:
            return None
        try:
            asked = row[0]["asked"] if row and "asked" in row[0] else []
            if not all(self._holds(number, answer) for number in asked):
                return None
            findings = [decode_finding(item, path) for item in row[bool(asked) :]]
        except (KeyError, ValueError, TypeError, IndexError, AttributeError):
            return None
        self._fresh.findings[key] = row
        return findings

    def asked(self, key: str) -> list[tuple[Question, str]]:
        """The questions about other files behind the findings that were found under a key, with their answers."""
        row = self._fresh.findings.get(key) or [{}]
        answers = [self._old.answers[number] for number in row[0].get("asked", ())]
        return [(tuple(question), answer) for *question, answer in answers]

    def _holds(self, number: int, answer: Callable[[Question], str]) -> bool:
        """The answer with this number is still given."""
        if number not in self._held:
            *question, before = self._old.answers[number]
            self._held[number] = answer(tuple(question)) == before
        return self._held[number]

    def put(self, key: str, path: str, findings: Sequence[Finding], asked: Sequence[tuple[Question, str]] = ()) -> None:
        """Remember the findings of one file, and the answers about other files that they rest on."""
        # Files ask the same questions: each is kept once, and rows have numbers.
        numbers = [self._numbers.setdefault((*question, answer), len(self._numbers)) for question, answer in asked]
        head = [{"asked": numbers}] if asked else []
        self._fresh.findings[key] = [*head, *(encode_finding(finding, path) for finding in findings)]
        self._changed = True

    def marked(self, content: str) -> tuple[str, ...] | None:
        """The rules that find their markers in the content with this digest, ``None`` when nobody has looked."""
        codes = self._old.marked.get(content)
        if not isinstance(codes, str):
            return None
        found = tuple(codes.split())
        if any(code.removesuffix(BY_RUN) not in BY_CODE for code in found):
            return None
        self._fresh.marked[content] = codes
        return found

    def mark(self, content: str, codes: Sequence[str]) -> None:
        """Remember which rules find their markers in a content."""
        self._fresh.marked[content] = " ".join(codes)
        self._changed = True

    def save(self) -> None:
        """Write what this run used; a cache that cannot be written is no error."""
        if not self._changed:
            return
        temporary = self.file.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            table = self._old.updated(self._fresh)
            temporary.write_text(json.dumps({**table, "answers": list(self._numbers)}))
            temporary.replace(self.file)
        except (OSError, ValueError):
            # The place of the cache may be a file, or no path at all.
            with suppress(OSError, ValueError):
                temporary.unlink(missing_ok=True)


class RememberedResults:
    """Results of the runs of one process over texts that change: `cache`, if any, is asked first."""

    def __init__(self, cache: ResultCache | None) -> None:
        self._cache = cache
        # The cache asks each question once: not any more when the answers change with the texts.
        self.asks_cache = True
        self._findings: dict[str, tuple[list[Finding], Sequence[tuple[Question, str]]]] = {}
        self._marked: dict[str, tuple[str, ...]] = {}
        self._from_cache: dict[str, tuple[list[Finding], Sequence[tuple[Question, str]]]] = {}

    def use(self, cache: ResultCache | None) -> None:
        """Ask this cache from now on."""
        self._cache = cache

    def get(self, key: str, path: str, answer: Callable[[Question], str]) -> list[Finding] | None:
        """The findings stored under a key; ``None`` when there are none, or a question behind them has a new answer."""
        known = self._findings.get(key) or self._from_cache.get(key)
        if known is not None:
            return known[0] if all(answer(question) == before for question, before in known[1]) else None
        found = self._cache.get(key, path, answer) if self._cache is not None and self.asks_cache else None
        if self._cache is not None and found is not None:
            self._from_cache[key] = (found, self._cache.asked(key))
        return found

    def put(self, key: str, path: str, findings: Sequence[Finding], asked: Sequence[tuple[Question, str]] = ()) -> None:
        """Remember the findings of one file, and the answers about other files that they rest on."""
        self._findings[key] = (list(findings), asked)
        if self._cache is not None:
            self._cache.put(key, path, findings, asked)

    def rests_on(self, key: str) -> Sequence[tuple[Question, str]]:
        """The questions about other files behind what is remembered under a key."""
        known = self._findings.get(key) or self._from_cache.get(key)
        return known[1] if known is not None else ()

    def forget(self, key: str) -> None:
        """Nobody will ask for this key again."""
        self._findings.pop(key, None)
        self._from_cache.pop(key, None)
        if len(self._marked) > _MOST:
            self._marked.clear()

    def marked(self, content: str) -> tuple[str, ...] | None:
        """The rules that find their markers in the content with this digest, ``None`` when nobody has looked."""
        found = self._marked.get(content)
        return self._cache.marked(content) if found is None and self._cache is not None else found

    def mark(self, content: str, codes: Sequence[str]) -> None:
        """Remember which rules find their markers in a content."""
        self._marked[content] = tuple(codes)
        if self._cache is not None:
            self._cache.mark(content, codes)

    def save(self, is_last: bool = False) -> None:
        """Write what the runs used. ``is_last``: what comes later stays in this process."""
        if self._cache is not None:
            self._cache.save()
        if is_last:
            self._cache = None


Results = ResultCache | RememberedResults


class _Table:
    """What a cache file holds: findings by key, rule codes by the digest of a content, answers about other files.

    An answer is a list: the question, and behind it what was answered.
    """

    def __init__(self, findings: Any = None, marked: Any = None, answers: Any = None) -> None:
        self.findings: dict[str, Any] = findings if isinstance(findings, dict) else {}
        self.marked: dict[str, Any] = marked if isinstance(marked, dict) else {}
        rows = answers if isinstance(answers, list) else []
        is_right = all(isinstance(row, list) and all(isinstance(word, str) for word in row) for row in rows)
        is_right = is_right and len({tuple(row) for row in rows}) == len(rows)
        self.answers: list[list[str]] = rows if is_right and len(rows) < _MOST_ANSWERS else []
        if len(self.answers) != len(rows):
            self.findings = {}  # their numbers mean nothing any more

    @classmethod
    def read(cls, file: Path) -> _Table:
        """The content of a file; an empty table when it cannot be read."""
        try:
            loaded = json.loads(file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return cls()
        if not isinstance(loaded, dict):
            return cls()
        return cls(loaded.get("findings"), loaded.get("marked"), loaded.get("answers"))

    def updated(self, fresh: _Table) -> dict[str, Any]:
        """Both tables as JSON data; this one only while it is small."""
        return {
            "findings": {**(self.findings if len(self.findings) < _MOST else {}), **fresh.findings},
            "marked": {**(self.marked if len(self.marked) < _MOST else {}), **fresh.marked},
        }


def encode_finding(f: Finding, path: str) -> dict[str, Any]:
    """A finding as JSON data; the path of the file that was judged is the key's business."""
    row: dict[str, Any] = {
        "c": f.code, "n": f.name, "s": f.severity.value, "m": f.message, "l": _location(f.location),
    }  # fmt: skip
    if f.location.path != path:
        row["o"] = f.location.path
    if f.assumptions:
        row["u"] = f.assumptions
    if f.related:
        row["r"] = [[*_location(x), x.path if x.path != path else None] for x in f.related]
    if f.hint:
        row["h"] = f.hint
    if f.pointer is not None:
        row["p"] = f.pointer
    if f.facts:
        row["a"] = f.facts
    if f.fix:
        row["f"] = [f.fix.title, f.fix.safety.value, [_edit(e, path) for e in f.fix.edits], int(f.fix.uncovers)]
    return row


def _edit(edit: Edit, path: str) -> list[Any]:
    place = [edit.span.start, edit.span.end, edit.text]
    return place if edit.path == path else [*place, edit.path]


def decode_finding(row: dict[str, Any], path: str) -> Finding:
    """The inverse of :func:`encode_finding`."""
    fix = None
    if "f" in row:
        title, safety, edits, uncovers = row["f"]
        fix = Fix(title, tuple(_decode_edit(*edit, path) for edit in edits), Safety(safety), bool(uncovers))
    return Finding(
        code=row["c"],
        name=row["n"],
        severity=Severity(row["s"]),
        message=row["m"],
        location=_decode_location(row["l"], row.get("o", path)),
        related=tuple(_decode_location(x[:-1], x[-1] or path) for x in row.get("r", ())),
        hint=row.get("h", ""),
        fix=fix,
        assumptions=tuple(row.get("u", ())),
        pointer=row.get("p"),
        facts=tuple((name, value) for name, value in row.get("a", ())),
    )


def _decode_edit(start: int, end: int, text: str, path: str, *_: str) -> Edit:
    """The path of another file, if there is one, comes before that of the file that was judged."""
    return Edit(path, Span(start, end), text)


def _location(loc: Location) -> list[Any]:
    r = loc.region
    return [loc.span.start, loc.span.end, r.line, r.column, r.end_line, r.end_column, r.cell, loc.label]


def _decode_location(row: list[Any], path: str) -> Location:
    start, end, line, column, end_line, end_column, cell, label = row
    return Location(path, Span(start, end), Region(line, column, end_line, end_column, cell), label)
