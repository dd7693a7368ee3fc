"""A baseline: findings that a project has today and wants to hear of no more.

A finding is known again by its rule, the text that it marks and its file, wherever the lines have moved to. A file that
is gone hands its entries to a file that is new: a renamed file keeps its baseline.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from dslint.core.finding import Finding
from dslint.core.source import SourceFile
from dslint.core.suppressed import Suppressed

VERSION = 1
# The text that the places of a finding count in.
TextOf = Callable[[Finding], SourceFile | None]


class BaselineError(ValueError):
    """A baseline that cannot be used, as one line."""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A finding as a baseline knows it: the path is relative to the folder of the baseline."""

    path: str
    code: str
    fingerprint: str


def fingerprint(finding: Finding, source: SourceFile | None) -> str:
    """A name of what is marked that does not change when lines move or are indented anew."""
    marked = ""
    if source is not None:
        span = finding.location.span
        if finding.pointer is not None:
            # A config may be one line: the key and what it holds, without what stands around.
            marked = source.text[span.start : span.end]
        else:
            start = source.text.rfind("\n", 0, span.start) + 1
            end = source.text.find("\n", span.start)
            marked = source.text[start : len(source.text) if end < 0 else end]
    parts = (finding.code, finding.pointer or "", " ".join(marked.split()))
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()


def write_baseline(file: str, findings: Iterable[Finding], text_of: TextOf) -> int:
    """Write the baseline of these findings, sorted so that a diff says what changed; returns how many there are.

    Raises:
        OSError: the file cannot be written.
    """
    folder = os.path.dirname(os.path.abspath(file))
    rows = []
    for finding in findings:
        path = _relative(finding.location.path, folder)
        mark = fingerprint(finding, text_of(finding))
        rows.append({"path": path, "code": finding.code, "fingerprint": mark, "message": finding.message})
    rows.sort(key=lambda row: (row["path"], row["code"], row["fingerprint"], row["message"]))
    text = json.dumps({"version": VERSION, "findings": rows}, indent=1, ensure_ascii=False) + "\n"
    # All of it or nothing: a baseline that was cut off would hide nothing.
    temporary = f"{file}.{os.getpid()}.tmp"
    try:
        Path(temporary).write_text(text, encoding="utf-8", errors="surrogateescape")
        os.replace(temporary, file)
    except OSError as error:
        error.filename = file  # the name of the other one means nothing to anybody
        raise
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    return len(rows)


class Baseline:
    """The entries of a file, applied to the findings of one run."""

    def __init__(self, file: str, entries: Counter[Entry]) -> None:
        self.file = file
        self.entries = entries
        self._folder = os.path.dirname(os.path.abspath(file))

    @classmethod
    def read(cls, file: str) -> Baseline:
        """Read a baseline.

        Raises:
            BaselineError: it is not there, or it is no baseline.
        """
        try:
            found: Any = json.loads(Path(file).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BaselineError(f"{file}: there is no such baseline; `--write-baseline {file}` makes it") from None
        except (OSError, ValueError, RecursionError) as error:
            raise BaselineError(f"{file}: the baseline cannot be read: {error}") from None
        if (
            not isinstance(found, dict)
            or found.get("version") != VERSION
            or not isinstance(found.get("findings"), list)
        ):
            raise BaselineError(f"{file}: is no baseline of version {VERSION}; `--write-baseline {file}` makes one")
        try:
            entries = [Entry(*(str(row[key]) for key in ("path", "code", "fingerprint"))) for row in found["findings"]]
        except (KeyError, TypeError):
            raise BaselineError(f"{file}: an entry lacks its path, code or fingerprint") from None
        return cls(file, Counter(entries))

    def apply(
        self, findings: Sequence[Finding], text_of: TextOf, judged: Collection[str]
    ) -> tuple[list[Finding], list[Suppressed], list[Entry]]:
        """Findings to report, those that the baseline knows, and entries of judged files that match nothing more.

        A rule that speaks about another run may need its entry: only files and rules that were judged count.
        """
        left = Counter(self.entries)
        known = [self._entry(finding, text_of) for finding in findings]
        is_known = [_taken(left, entry) for entry in known]
        # What has another path now: the old file is gone, and none of its entries is needed there.
        gone: dict[tuple[str, str], list[Entry]] = {}
        for entry in left.elements():
            if not os.path.exists(os.path.join(self._folder, entry.path)):
                gone.setdefault((entry.code, entry.fingerprint), []).append(entry)
        for number, entry in enumerate(known):
            moved = gone.get((entry.code, entry.fingerprint))
            if not is_known[number] and moved and not self._knows(entry.path):
                is_known[number] = _taken(left, moved.pop())
        kept = [finding for finding, old in zip(findings, is_known, strict=True) if not old]
        suppressed = [
            Suppressed(finding, f"baseline: {self.file}", "external")
            for finding, old in zip(findings, is_known, strict=True)
            if old
        ]
        return kept, suppressed, self._over(left, judged)

    def is_covered_by(self, judged: Collection[str]) -> bool:
        """All files that the baseline names and that are still there were judged."""
        here = {_relative(path, self._folder) for path in judged}
        return all(path in here or not self._exists(path) for path in {entry.path for entry in self.entries})

    def _entry(self, finding: Finding, text_of: TextOf) -> Entry:
        path = _relative(finding.location.path, self._folder)
        return Entry(path, finding.code, fingerprint(finding, text_of(finding)))

    def _knows(self, path: str) -> bool:
        return any(entry.path == path for entry in self.entries)

    def _over(self, left: Counter[Entry], judged: Collection[str]) -> list[Entry]:
        here = {_relative(path, self._folder) for path in judged}
        return sorted(entry for entry in left.elements() if entry.path in here or not self._exists(entry.path))

    def _exists(self, path: str) -> bool:
        return os.path.exists(os.path.join(self._folder, path))


def _taken(left: Counter[Entry], entry: Entry) -> bool:
    """Take one of these entries away, if one is left."""
    if left[entry] < 1:
        return False
    left[entry] -= 1
    return True


def _relative(path: str, folder: str) -> str:
    try:
        return os.path.relpath(os.path.abspath(path), folder).replace(os.sep, "/")
    except ValueError:  # another drive
        return os.path.abspath(path).replace(os.sep, "/")
