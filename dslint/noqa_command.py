"""``dslint --add-noqa``: suppression comments for what is found today, or nothing at all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dslint.core.commandline import say

if TYPE_CHECKING:
    from dslint.core.finding import Finding
    from dslint.engine.fixer import Fixed
    from dslint.engine.run import Result
    from dslint.settings import Settings

DONE, LEFT, TROUBLE = 0, 1, 2
REASON = "not judged yet"
# Where a code of a file is suppressed: at each place, in the whole file, in the settings, nowhere.
_STEPS = ("line", "file", "settings", "nowhere")
_NEVER = frozenset({"DSL900", "DSL901", "DSL902", "DSL903", "DSL904"})


@dataclass(slots=True)
class _Work:
    """What is to be suppressed, and where each code of each file is by now."""

    targets: list[Finding]
    texts: dict[str, str]
    reason: str
    steps: dict[tuple[str, str], int] = field(default_factory=dict)

    def step(self, finding: Finding) -> str:
        return _STEPS[self.steps.get((finding.location.path, finding.code), 0)]

    def escalate(self, path: str, code: str) -> None:
        self.steps[path, code] = min(self.steps.get((path, code), 0) + 1, len(_STEPS) - 1)

    def changed(self) -> dict[str, str]:
        """The files with their comments; what a file does not take goes one step further."""
        while True:
            before = dict(self.steps)
            texts = self._commented()
            if self.steps == before:
                return texts

    def _commented(self) -> dict[str, str]:
        from dslint.suppress.insertion import with_file_comment, with_line_comments

        out = {}
        for path, text in self.texts.items():
            own = [finding for finding in self.targets if finding.location.path == path]
            after, refused = with_line_comments(text, path, [f for f in own if self.step(f) == "line"], self.reason)
            for code in refused:
                self.escalate(path, code)
            whole = sorted({finding.code for finding in own if self.step(finding) == "file"})
            commented = with_file_comment(after, path, whole, self.reason) if whole else after
            for code in whole if commented is None else ():
                self.escalate(path, code)
            out[path] = after if commented is None else commented
        return out

    def ignores(self, root: Path) -> dict[str, list[str]]:
        """What the settings are to ignore: places of configs by their pointer."""
        found: dict[str, list[str]] = {}
        for finding in self.targets:
            if self.step(finding) == "settings":
                path = os.path.relpath(os.path.abspath(finding.location.path), root).replace(os.sep, "/")
                selector = finding.code + (f":{finding.pointer}" if finding.pointer else "")
                if selector not in found.setdefault(path, []):
                    found[path].append(selector)
        return found


def add_noqa(paths: list[str], settings: Settings, reason: str | None, least: str | None, quiet: bool) -> int:
    """Suppress what is found at or above a severity; returns the exit code."""
    from dslint.core.finding import Severity
    from dslint.core.words import counted
    from dslint.engine.fixer import write
    from dslint.engine.run import check_paths, source_of

    result = check_paths(paths, settings)
    if result.problems:
        for line in result.problems:
            say(line)
        return TROUBLE
    threshold = Severity(least or "warning").rank
    targets = [f for f in result.findings if f.severity.rank >= threshold and f.code not in _NEVER]
    texts = {}
    for path in sorted({finding.location.path for finding in targets}):
        source = source_of(path, {})
        if source is not None:
            texts[path] = source.text
    work = _Work([f for f in targets if f.location.path in texts], texts, reason or REASON)
    fixed, left = _proven(work, paths, settings, result)
    problems = write(fixed)
    for line in problems:
        say(line)
    for finding in left:
        say(f"{finding.location}: {finding.code} cannot be suppressed here without changing what the file means")
    if not quiet:
        number = len(work.targets) - len(left)
        say(f"suppressed {counted(number, 'finding')} in {counted(fixed.files, 'file')}")
    return TROUBLE if problems else LEFT if left else DONE


def _proven(work: _Work, paths: list[str], settings: Settings, before: Result) -> tuple[Fixed, list[Finding]]:
    """Texts in which nothing is left of what they suppress, and the findings for which there are none."""
    from dslint.engine.fixer import Fixed
    from dslint.engine.run import check_paths

    idle = _idle(before.findings)
    while True:
        texts = work.changed()
        ignores = work.ignores(settings.root)
        file, changed = _settings_text(settings, ignores)
        if ignores and changed is None:
            _give_up(work)
            continue
        merged = {**settings.per_file_ignores}
        for path, rules in ignores.items():
            merged[path] = (*rules, *merged.get(path, ()))
        after = check_paths(paths, replace(settings, per_file_ignores=merged), texts)
        targets = {(f.location.path, f.code) for f in work.targets if work.step(f) != "nowhere"}
        wrong = {(f.location.path, f.code) for f in after.findings} & targets
        # A comment that silences nothing stands at the wrong place.
        wrong |= {key for key in targets if key[0] in _idle(after.findings) - idle and work.steps.get(key, 0) == 0}
        if not wrong:
            break
        for path, code in wrong:
            work.escalate(path, code)
    out = Fixed(before=dict(work.texts), after=texts)
    if changed is not None:
        name = os.path.relpath(file)
        out.before[name] = file.read_text(encoding="utf-8") if file.exists() else ""
        out.after[name] = changed
        if not file.exists():
            file.touch()
    return out, [finding for finding in work.targets if work.step(finding) == "nowhere"]


def _idle(findings: Sequence[Finding]) -> set[str]:
    """Files with suppressions that nobody needs."""
    return {finding.location.path for finding in findings if finding.code == "DSL903"}


def _give_up(work: _Work) -> None:
    for finding in work.targets:
        if work.step(finding) == "settings":
            work.escalate(finding.location.path, finding.code)


def _settings_text(settings: Settings, ignores: Mapping[str, Sequence[str]]) -> tuple[Path, str | None]:
    """The settings file and its text with these entries; no text where there are none, or none that can be written."""
    from dslint.suppress.insertion import with_ignores

    file = Path(settings.source) if settings.source else settings.root / "dslint.toml"
    if not ignores:
        return file, None
    try:
        text = file.read_text(encoding="utf-8") if settings.source else ""
    except (OSError, ValueError):
        return file, None
    return file, with_ignores(text, ("tool", "dslint") if file.name == "pyproject.toml" else (), ignores)
