"""Results of script rules from earlier runs, keyed by content, context, settings and dslint itself.

Kept are the findings of the files that were judged, and for all files which rules find their markers in them.

The cache lives in the user's cache folder, not in the project (dslint writes into a project only what
``--fix`` was asked to write), and is JSON: a cache that could run code when loaded would be a hole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dslint import __version__
from dslint.core.finding import Confidence, Finding, Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.core.source import Location, Region, Span
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


def program_fingerprint() -> str:
    """Changes whenever the installed dslint changes, a source checkout under development included."""
    here = os.path.dirname(__file__)
    stamps = []
    for folder, _, names in os.walk(here):
        for name in names:
            if name.endswith((".py", ".json")):
                status = os.stat(os.path.join(folder, name))
                stamps.append(f"{name}:{status.st_size}:{status.st_mtime_ns}")
    return digest(__version__, *sorted(stamps))


# Entries of other contents are kept up to this number: branches are switched back and forth.
_MOST = 20_000


class ResultCache:
    """Findings by key for one project; unreadable or foreign cache files count as empty."""

    def __init__(self, directory: Path, root: str, fingerprint: str) -> None:
        self.file = directory / f"{digest(os.path.abspath(root), fingerprint)}.json"
        self._fresh = _Table()
        self._changed = False
        self._old = _Table.read(self.file)

    def get(self, key: str, path: str) -> list[Finding] | None:
        """The findings stored under a key, ``None`` when there are none stored."""
        row = self._old.findings.get(key)
        if row is None:
            return None
        try:
            findings = [decode_finding(item, path) for item in row]
        except (KeyError, ValueError, TypeError, IndexError, AttributeError):
            return None
        self._fresh.findings[key] = row
        return findings

    def put(self, key: str, findings: Sequence[Finding]) -> None:
        """Remember the findings of one file."""
        self._fresh.findings[key] = [encode_finding(f) for f in findings]
        self._changed = True

    def marked(self, content: str) -> tuple[str, ...] | None:
        """The rules that find their markers in the content with this digest, ``None`` when nobody has looked."""
        codes = self._old.marked.get(content)
        if not isinstance(codes, str) or not BY_CODE.keys() >= set(found := tuple(codes.split())):
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
            temporary.write_text(json.dumps(self._old.updated(self._fresh)))
            temporary.replace(self.file)
        except (OSError, ValueError):
            # The place of the cache may be a file, or no path at all.
            with suppress(OSError, ValueError):
                temporary.unlink(missing_ok=True)


class _Table:
    """What a cache file holds: findings by key, and rule codes by the digest of a content."""

    def __init__(self, findings: Any = None, marked: Any = None) -> None:
        self.findings: dict[str, Any] = findings if isinstance(findings, dict) else {}
        self.marked: dict[str, Any] = marked if isinstance(marked, dict) else {}

    @classmethod
    def read(cls, file: Path) -> _Table:
        """The content of a file; an empty table when it cannot be read."""
        try:
            loaded = json.loads(file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return cls()
        return cls(loaded.get("findings"), loaded.get("marked")) if isinstance(loaded, dict) else cls()

    def updated(self, fresh: _Table) -> dict[str, Any]:
        """Both tables as JSON data; this one only while it is small."""
        return {
            "findings": {**(self.findings if len(self.findings) < _MOST else {}), **fresh.findings},
            "marked": {**(self.marked if len(self.marked) < _MOST else {}), **fresh.marked},
        }


def encode_finding(f: Finding) -> dict[str, Any]:
    """A finding as JSON data; its path is the key's business."""
    row: dict[str, Any] = {
        "c": f.code, "n": f.name, "s": f.severity.value, "m": f.message, "l": _location(f.location),
        "k": f.confidence.value,
    }  # fmt: skip
    if f.related:
        row["r"] = [[*_location(x), x.path if x.path != f.location.path else None] for x in f.related]
    if f.hint:
        row["h"] = f.hint
    if f.pointer is not None:
        row["p"] = f.pointer
    if f.facts:
        row["a"] = f.facts
    if f.fix:
        row["f"] = [f.fix.title, f.fix.safety.value, [[e.span.start, e.span.end, e.text] for e in f.fix.edits]]
    return row


def decode_finding(row: dict[str, Any], path: str) -> Finding:
    """The inverse of :func:`encode_finding` for a file that now stands at ``path``."""
    fix = None
    if "f" in row:
        title, safety, edits = row["f"]
        fix = Fix(title, tuple(Edit(path, Span(a, b), text) for a, b, text in edits), Safety(safety))
    return Finding(
        code=row["c"],
        name=row["n"],
        severity=Severity(row["s"]),
        message=row["m"],
        location=_decode_location(row["l"], path),
        related=tuple(_decode_location(x[:-1], x[-1] or path) for x in row.get("r", ())),
        hint=row.get("h", ""),
        fix=fix,
        confidence=Confidence(row["k"]),
        pointer=row.get("p"),
        facts=tuple((name, value) for name, value in row.get("a", ())),
    )


def _location(loc: Location) -> list[Any]:
    r = loc.region
    return [loc.span.start, loc.span.end, r.line, r.column, r.end_line, r.end_column, r.cell, loc.label]


def _decode_location(row: list[Any], path: str) -> Location:
    start, end, line, column, end_line, end_column, cell, label = row
    return Location(path, Span(start, end), Region(line, column, end_line, end_column, cell), label)
