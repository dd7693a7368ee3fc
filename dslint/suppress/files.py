"""Per-file ignores of the settings, with JSON pointers for configs, which have no comments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dslint.core.finding import Severity
from dslint.core.source import Location, SourceFile, Span
from dslint.core.suppressed import Suppressed
from dslint.rules.own import UNUSED_SUPPRESSION
from dslint.settings.selection import prefix_of, split_pointer_selector

if TYPE_CHECKING:
    from dslint.core.finding import Finding
    from dslint.settings import Settings


class _Pattern:
    """One line of the table: a file pattern and its selectors as written, code prefix, pointer."""

    def __init__(self, glob: str, selectors: Iterable[str]) -> None:
        self.glob = glob
        self.negated = glob.startswith("!")
        parts = [(s, *split_pointer_selector(s)) for s in selectors]
        self.selectors = [(text, prefix_of(rule), pointer) for text, rule, pointer in parts]
        self.used: set[str] = set()

    @cached_property
    def _matches(self) -> Callable[[str], bool]:
        from pathspec import GitIgnoreSpec

        return GitIgnoreSpec.from_lines([self.glob.removeprefix("!")]).match_file

    def covers(self, relative: str) -> bool:
        """The file at a path relative to the root is meant."""
        if self.negated:
            return not self._matches(relative)
        return relative == self.glob or self._matches(relative)

    def selector_of(self, finding: Finding) -> str | None:
        """The selector that names the finding's rule and, where it has one, its place in the document."""
        for text, prefix, pointer in self.selectors:
            if finding.code.startswith(prefix) and (pointer is None or _below(finding.pointer, pointer)):
                return text
        return None


def _below(pointer: str | None, ancestor: str) -> bool:
    return pointer is not None and (pointer == ancestor or pointer.startswith(ancestor.rstrip("/") + "/"))


class FileIgnores:
    """``per-file-ignores`` of one run; remembers which entries were needed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.patterns = [_Pattern(glob, selectors) for glob, selectors in settings.per_file_ignores.items()]

    def apply(self, findings: Iterable[Finding]) -> tuple[list[Finding], list[Suppressed]]:
        """Findings to report, and those that the settings ignore."""
        if not self.patterns:
            return list(findings), []
        kept: list[Finding] = []
        suppressed: list[Suppressed] = []
        for finding in findings:
            glob = self.ignored_by(finding)
            if glob is None:
                kept.append(finding)
            else:
                suppressed.append(Suppressed(finding, f"per-file-ignores: {glob}", "external"))
        return kept, suppressed

    def ignored_by(self, finding: Finding) -> str | None:
        """The pattern that ignores a finding."""
        relative = self._relative(finding.location.path)
        for pattern in self.patterns:
            selector = pattern.selector_of(finding)
            if selector is not None and pattern.covers(relative):
                pattern.used.add(selector)
                return pattern.glob
        return None

    def _relative(self, path: str) -> str:
        return os.path.relpath(os.path.abspath(path), self.settings.root).replace(os.sep, "/")

    def unused(self, paths: Set[str], judged: Callable[[str], bool]) -> list[Finding]:
        """Entries for one judged file that match no finding; a pattern may be meant for files to come."""
        if not self.patterns:
            return []
        judged_files = {self._relative(p) for p in paths}
        findings = []
        for pattern in self.patterns:
            if pattern.glob not in judged_files:
                continue
            for text, prefix, pointer in pattern.selectors:
                if pointer and text not in pattern.used and _lacks(self.settings.root / pattern.glob, pointer):
                    message = f"`{pattern.glob}` has nothing at `{pointer}`, so this entry ignores nothing"
                    findings += self._found(pattern.glob, message, "Correct the pointer, or delete the entry")
                    continue
                # A prefix names rules in advance; a code or a pointer names a finding.
                exact = len(prefix) == len(UNUSED_SUPPRESSION.code) or pointer is not None
                if exact and text not in pattern.used and judged(prefix):
                    message = f"`{text}` matches no finding in `{pattern.glob}`, so it would only hide the next one"
                    findings += self._found(pattern.glob, message, "Delete the entry of `per-file-ignores`")
        return findings

    def stale(self, paths: Set[str], is_whole: bool) -> list[Finding]:
        """Patterns that no file matches; ``is_whole``: ``paths`` are all files of the project."""
        judged = {self._relative(path) for path in paths} if self.patterns or is_whole else set()
        findings = self._idle_tables(judged) if is_whole else []
        for pattern in self.patterns:
            literal = pattern.glob.strip("/")
            if pattern.negated or pattern.used or not pattern.selectors or any(map(pattern.covers, judged)):
                continue
            is_path = "/" in literal and not set("*?[\\") & set(literal)
            if is_path and not os.path.lexists(self.settings.root / literal):
                message = f"there is no `{literal}`: this entry of `per-file-ignores` ignores nothing"
                findings += self._found(pattern.glob, message, "Correct the path, or delete the entry")
            elif is_whole and not is_path:
                message = f"`{pattern.glob}` matches no file that dslint looks at"
                found = self._found(pattern.glob, message, "Correct the pattern, or delete the entry")
                # It may be meant for files to come.
                findings += [replace(finding, severity=Severity.INFO) for finding in found]
        return findings

    def _idle_tables(self, judged: Set[str]) -> list[Finding]:
        """Patterns of `launches` and `consumers` that no file matches: notes, since files may come."""
        findings = []
        for table, globs in (("launches", self.settings.launches), ("consumers", self.settings.consumers)):
            for glob in globs:
                if not any(map(_Pattern(glob, ()).covers, judged)):
                    message = f"`{glob}` of `{table}` matches no file that dslint looks at"
                    found = self._found(glob, message, "Correct the pattern, or delete the entry", table)
                    findings += [replace(finding, severity=Severity.INFO) for finding in found]
        return findings

    def _found(self, glob: str, message: str, hint: str, table: str = "per-file-ignores") -> list[Finding]:
        place = self._place(glob, table)
        return [UNUSED_SUPPRESSION.finding(place, message, hint=hint)] if place else []

    def _place(self, glob: str, section: str) -> Location | None:
        """The line of the settings file, ``None`` where the entry stands elsewhere (``extend``)."""
        shown = self.settings.source
        try:
            text = Path(shown).read_text(encoding="utf-8") if shown else ""
        except (OSError, ValueError):
            return None
        for table in ((), ("tool", "dslint")):
            key = (*table, section, glob)
            from dslint.settings.places import find_line

            line = find_line(text, key)
            source = SourceFile(shown or "", text)
            if line is not None and glob in source.line_text(line):
                start = source.offset(line, 1)
                return source.location(Span(start, start + len(source.line_text(line))))
        return None


def _lacks(file: Path, pointer: str) -> bool:
    """The data file can be read, and has no such key."""
    from dslint.parse.jsondoc import parse_json
    from dslint.parse.reading import Unreadable, read_text
    from dslint.parse.yamldoc import parse_yaml

    text = read_text(str(file))
    suffix = file.suffix.lower()
    if isinstance(text, Unreadable) or suffix not in (".json", ".jsonc", ".yaml", ".yml"):
        return False
    doc = (parse_json if suffix.startswith(".js") else parse_yaml)(SourceFile(str(file), text))
    return not doc.problems and not doc.has(pointer)


def per_file_ignores(settings: Settings, finding: Finding) -> bool:
    """Whether the settings ignore one finding; :class:`FileIgnores` is for many."""
    return FileIgnores(settings).ignored_by(finding) is not None
