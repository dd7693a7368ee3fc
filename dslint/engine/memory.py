"""What is kept of the looks at a folder: files as they were read, and what was made of them, while texts change."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dslint.core.finding import Finding
from dslint.core.looked import Looked
from dslint.engine.discovery import Candidate, Discovery, discover
from dslint.engine.inputs import Inputs, LaunchFile, read_one
from dslint.engine.judge import Job, Judge
from dslint.engine.launchstage import LaunchRead, LaunchReader
from dslint.engine.moving import change_of
from dslint.engine.planning import excludes_of
from dslint.engine.projectfiles import ProjectFiles
from dslint.engine.surroundings import Surroundings
from dslint.model.keptworkspace import KeptWorkspace
from dslint.parse.reading import Unreadable, decode
from dslint.rules.own import SYNTAX_ERROR

if TYPE_CHECKING:
    from dslint.engine.run import Joined
    from dslint.model.context import Context
    from dslint.model.plan.runplan import RunPlan
    from dslint.parse.data import DataDoc
    from dslint.settings import Settings


@dataclass(frozen=True, slots=True)
class KeptScript:
    """A script as it was judged: its bytes, what it was judged with, and what was found."""

    raw: bytes
    context: Context
    is_named: bool
    findings: Sequence[Finding]

    @property
    def text(self) -> str | None:
        """The text that was judged; ``None`` where nobody can read it."""
        text = decode(self.raw)
        return None if isinstance(text, Unreadable) else text

    def holds_for(self, job: Job) -> bool:
        """The same bytes are to be judged with the same knowledge."""
        return self.raw == job.raw and self.is_named == job.is_named and self.context == job.context


class Memory:
    """One folder over texts that change. Which files exist stays the same, else there is a new one.

    ``stale`` are scripts whose last judgement no longer holds, ``fresh`` files whose text has changed since the last
    whole look. ``shown`` is what is said of a script for now, by the text that it is said of: what its last judgement
    said that could read it, moved with its text.
    """

    def __init__(self, paths: Sequence[str], settings: Settings, texts: Mapping[str, str]) -> None:
        self._excludes = excludes_of(settings)
        self.texts = dict(texts)
        self.found: Discovery = discover(paths, self._excludes, texts)
        self.surroundings = Surroundings(settings, texts)
        self.workspace = KeptWorkspace(texts)
        self.files = ProjectFiles(texts)
        self.judge = Judge(files=self.files)
        self.joined: Joined | None = None
        self.looked = Looked()
        self.scripts: dict[str, KeptScript] = {}
        self.asked: dict[str, frozenset[str]] = {}
        self.stale: set[str] = set()
        self.fresh: set[str] = set()
        # Suppressions that nothing needs, as the last look said that had judged all that has changed.
        self.unused: set[tuple[str, str]] = set()
        self.shown: dict[str, tuple[str, list[Finding]]] = {}
        self._said: dict[str, tuple[bytes, list[Finding]]] = {}
        self._before: dict[str, bytes] = {}
        self.documents: dict[tuple[str, int], tuple[Any, Context, list[Finding]]] = {}
        self.embedded: dict[str, tuple[bytes, list[DataDoc]]] = {}
        self.judged: dict[int, tuple[RunPlan, list[Finding]]] = {}
        self._candidates = {candidate.path: candidate for candidate in self.found.candidates}
        self._ignored: set[str] = set()
        self._on_disk: set[str] = set()
        self._parts: dict[str, Inputs] = {}
        self._reads: dict[str, tuple[LaunchFile, LaunchRead, frozenset[str]]] = {}
        # Launch files that were judged with other versions of libraries.
        self.old_reads: set[str] = set()

    @property
    def given(self) -> set[str]:
        """The files that are judged."""
        return set(self._candidates)

    # -- texts change ------------------------------------------------------------------------------------------

    def changed_on_disk(self, path: str) -> None:
        """The disk holds another text of a file, which was there before."""
        self._on_disk.add(path)

    def takes(self, texts: Mapping[str, str]) -> set[str] | None:
        """The files whose text differs now; ``None`` where other files exist now."""
        changed = {path for path in {*texts, *self.texts} if texts.get(path) != self.texts.get(path)}
        changed |= self._on_disk - texts.keys()
        self._on_disk.clear()
        return changed if all(self._is_known(path, texts) for path in changed) else None

    def _is_known(self, path: str, texts: Mapping[str, str]) -> bool:
        candidate = self._candidates.get(path)
        if candidate is None and path not in self._ignored:
            if path in texts and discover([path], self._excludes, texts).candidates:
                return False
            self._ignored.add(path)
        # A file that only its text has made one of ours, or that is nowhere else.
        return path in texts or ((candidate is None or not candidate.explicit) and os.path.isfile(path))

    def renew(self, texts: Mapping[str, str], changed: set[str]) -> None:
        """Take other texts."""
        self.texts = dict(texts)
        known = self.surroundings.renewed(texts, changed)
        if known is not self.surroundings:
            self._forget_versions(known)
        absolute = self.files.renew(texts, changed)
        importing = {path for path, asked in self.asked.items() if not asked.isdisjoint(absolute)}
        self.judge.renew(absolute, is_imported=not importing <= changed)
        touched = self.workspace.renew(texts, changed)
        self._reads = {p: r for p, r in self._reads.items() if p not in changed and touched.isdisjoint(r[2])}
        for path in changed:
            part = self._parts.pop(path, None)
            if part is not None and path in part.scripts:
                self._before[path] = part.scripts[path]
        self.fresh |= changed
        self.stale |= changed | importing

    def _forget_versions(self, surroundings: Surroundings) -> None:
        """Files say something else of the versions of libraries, or at another place: no finding holds.

        Those of scripts are said until these are judged again, as where something has changed that they import.
        """
        self.surroundings = surroundings
        self.stale |= set(self.scripts)
        self.joined = None
        self.judged.clear()
        self.old_reads = set(self._reads)

    # -- findings move with their texts ------------------------------------------------------------------------

    def move(self, scripts: Mapping[str, bytes]) -> None:
        """What scripts were said to do to others that have changed is said at its place in their texts of now."""
        for path, raw in self._before.items():
            before, now = decode(raw), decode(scripts.get(path, b""))
            if raw == scripts.get(path) or isinstance(before, Unreadable) or isinstance(now, Unreadable):
                continue
            change = change_of(path, before, now)
            for other, row in self.scripts.items():
                places = (place for finding in row.findings for place in (finding.location, *finding.related))
                if other != path and any(place.path == path for place in places):
                    self.scripts[other] = replace(row, findings=change.moved(row.findings))
        self._before.clear()

    def judged_now(self, path: str, row: KeptScript) -> None:
        """A script has been judged."""
        self.scripts[path] = row
        self.stale.discard(path)
        self._said.pop(path, None)
        is_read = not any(finding.code == SYNTAX_ERROR.code for finding in row.findings)
        if is_read and path in self.texts and (text := row.text) is not None:
            self.shown[path] = text, list(row.findings)

    def said(self, job: Job) -> list[Finding] | None:
        """What was said of this text at once, if it was: another file may have changed since."""
        raw, findings = self._said.get(job.path, (b"", None))
        return findings if raw == job.raw else None

    def shown_at_once(self, job: Job) -> list[Finding] | None:
        """What is said of a script whose text has changed, before it is judged; ``None`` where it is judged at once."""
        text = decode(job.raw)
        if isinstance(text, Unreadable):
            return None
        row = self.scripts[job.path]
        before, findings = self.shown.get(job.path) or (row.text, list(row.findings))
        if before is not None and before != text and job.kind == "script":
            findings = change_of(job.path, before, text).moved(findings)
        found = self.judge.at_once(job, text, findings)
        if found is not None:
            self.shown[job.path] = text, found
            self._said[job.path] = job.raw, found
        return found

    # -- what was read -----------------------------------------------------------------------------------------

    def inputs(self) -> Inputs:
        """All files of the folder, as one run reads them."""
        out = Inputs()
        for candidate in self.found.candidates:
            part = self._part(candidate)
            out.scripts.update(part.scripts)
            out.notebooks.update(part.notebooks)
            out.launch_files.update(part.launch_files)
            out.manifests.update(part.manifests)
            out.named |= part.named
            out.files += part.files
            for name in ("configs", "sections", "accelerate", "recipes", "findings"):
                if found := getattr(part, name):
                    getattr(out, name).extend(found)
        return out

    def _part(self, candidate: Candidate) -> Inputs:
        part = self._parts.get(candidate.path)
        if part is None:
            part = self._parts[candidate.path] = read_one(candidate, self.texts)
        return part

    def reads(self, files: Iterable[LaunchFile], reader: LaunchReader, is_quick: bool = False) -> list[LaunchRead]:
        """What the launch files hold, in their order. ``is_quick``: what other versions have said of them will do."""
        old = set() if is_quick else self.old_reads
        reader.use(self.workspace)
        found = []
        for file in files:
            known = self._reads.get(file.path)
            if known is None or known[0].raw is not file.raw or file.path in old:
                with self.workspace.noted() as needs:
                    read = reader.read(file)
                known = self._reads[file.path] = file, read, frozenset(needs)
                self.old_reads.discard(file.path)
            found.append(known[1])
        reader.sources.clear()
        if not is_quick:
            self.old_reads.clear()
        return found

    def forget_unused(self, inputs: Inputs, plans: Sequence[RunPlan], docs: Iterable[DataDoc]) -> None:
        """After a whole look: what belongs to texts that are gone."""
        commands = {id(plan.command) for plan in plans}
        self.workspace.keep_only([*(c for r in self._reads.values() for c in r[1].commands), *inputs.recipes])
        self.judged = {n: judged for n, judged in self.judged.items() if id(judged[0].command) in commands}
        alive = {id(doc) for doc in docs}
        self.documents = {key: row for key, row in self.documents.items() if key[1] in alive}
        self.scripts = {path: row for path, row in self.scripts.items() if path in self._candidates}
        self.shown = {path: row for path, row in self.shown.items() if path in self.texts}
        self._said = {path: row for path, row in self._said.items() if path in self.texts}
