"""Names of findings for programs that compare two reports."""

from __future__ import annotations

import hashlib
from collections import Counter

from dslint.core.finding import Finding
from dslint.report.sources import SourceReader


class Fingerprints:
    """A name for a finding that survives moved lines: rule, file, the text of the line, and how many before it."""

    def __init__(self, sources: SourceReader) -> None:
        self._sources = sources
        self._seen: Counter[str] = Counter()

    def of(self, finding: Finding) -> str:
        """``<hash>:<n>``, n-th finding of this rule on an equal line of this file."""
        region = finding.location.region
        lines = self._sources.lines(finding.location.path, region.cell)
        line = lines[region.line - 1] if 1 <= region.line <= len(lines) else ""
        parts = (finding.code, finding.location.path, " ".join(line.split()))
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._seen[digest] += 1
        return f"{digest}:{self._seen[digest]}"
