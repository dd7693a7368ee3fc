"""Code actions: fixes, safe and unsafe apart, ignoring a finding, the page of its rule, all safe fixes at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lsprotocol import types

from dslint.core.finding import Finding
from dslint.core.fix import Fix, Safety
from dslint.core.source import OUTSIDE
from dslint.server.diagnostics import Places
from dslint.server.edits import edits_of, workspace_edit
from dslint.server.ignoring import ignoring
from dslint.server.requests import Outcome

WHY = "dslint.why"
FIX_ALL = "source.fixAll.dslint"
# A client that asks for quick fixes gets these, too, and can tell them from the others.
UNSAFE = "quickfix.unsafe.dslint"
IGNORE = "quickfix.ignore.dslint"
KINDS: tuple[str, ...] = (types.CodeActionKind.QuickFix, types.CodeActionKind.SourceFixAll, FIX_ALL)


class Actions:
    """What can be done about the findings of one look."""

    def __init__(self, outcome: Outcome, capabilities: types.ClientCapabilities) -> None:
        documents = outcome.wanted.documents
        self._outcome = outcome
        self._places = Places(documents, outcome.look.texts)
        self._versions = {documents.uri(path): version for path, version in documents.versions().items()}
        self._capabilities = capabilities

    def of(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """The actions for a range, of the kinds that the client wants."""
        wanted = params.context.only
        return [action for action in self._all(params) if wanted is None or _is_among(action.kind or "", wanted)]

    def _all(self, params: types.CodeActionParams) -> Iterator[types.CodeAction]:
        uri = params.text_document.uri
        here = self._findings(uri)
        chosen = [(f, found) for f, found in here if _touch(found, params.range)]
        for finding, found in chosen:
            shown = [d for d in params.context.diagnostics if d.code == finding.code and d.range == found] or None
            yield from self._fixes(finding, shown)
        for finding, found in chosen:
            shown = [d for d in params.context.diagnostics if d.code == finding.code and d.range == found] or None
            yield from self._ignores(finding, shown)
        for finding in {finding.code: finding for finding, _ in chosen}.values():
            title = f"Why? {finding.code} {finding.name}"
            command = types.Command(title, WHY, arguments=[finding.code])
            yield types.CodeAction(title, types.CodeActionKind.QuickFix, command=command)
        yield from self._all_safe([finding for finding, _ in here], uri)

    def _findings(self, uri: str) -> list[tuple[Finding, types.Range]]:
        found = []
        for finding in self._outcome.look.result.findings:
            if not finding.location.path.startswith(OUTSIDE):
                place = self._places.of(finding.location)
                if place.uri == uri:
                    found.append((finding, place.range))
        return found

    def _fixes(self, finding: Finding, shown: Sequence[types.Diagnostic] | None) -> Iterator[types.CodeAction]:
        fix = finding.fix
        edit = self._edit(fix) if fix is not None else None
        if fix is None or edit is None:
            return
        is_safe = fix.safety is Safety.SAFE
        yield types.CodeAction(
            f"{fix.title} ({finding.code})" if is_safe else f"{fix.title} ({finding.code}, unsafe)",
            types.CodeActionKind.QuickFix if is_safe else UNSAFE,
            shown,
            is_preferred=True if is_safe else None,
            edit=edit,
        )

    def _edit(self, fix: Fix) -> types.WorkspaceEdit | None:
        return workspace_edit(edits_of(fix.edits, self._places), self._versions, self._capabilities)

    def _ignores(self, finding: Finding, shown: Sequence[types.Diagnostic] | None) -> Iterator[types.CodeAction]:
        found = ignoring(finding, self._places, self._outcome.settings)
        if found is None:
            return
        created = found.uri if found.created else None
        edit = workspace_edit({found.uri: [found.edit]}, self._versions, self._capabilities, created)
        if edit is not None:
            yield types.CodeAction(found.title, IGNORE, shown, edit=edit)

    def _all_safe(self, findings: Sequence[Finding], uri: str) -> Iterator[types.CodeAction]:
        """One edit with all safe fixes that concern this file alone and do not touch each other."""
        fixes = [f.fix for f in findings if f.fix is not None and f.fix.safety is Safety.SAFE]
        edits: list[types.TextEdit] = []
        for fix in fixes:
            by_uri = edits_of(fix.edits, self._places)
            own = by_uri.get(uri, [])
            if set(by_uri) == {uri} and not any(_touch(a.range, b.range) for a in own for b in edits):
                edits += own
        if edits:
            edit = workspace_edit({uri: edits}, self._versions, self._capabilities)
            yield types.CodeAction("Apply all safe fixes of dslint", FIX_ALL, edit=edit)


def _is_among(kind: str, wanted: Sequence[types.CodeActionKind | str]) -> bool:
    """The kind is one of the wanted ones, or below one of them."""
    names = [str(getattr(name, "value", name)) for name in wanted]
    kind = str(getattr(kind, "value", kind))
    return any(kind == name or kind.startswith(f"{name}.") or not name for name in names)


def _touch(one: types.Range, other: types.Range) -> bool:
    return _at(one.start) <= _at(other.end) and _at(other.start) <= _at(one.end)


def _at(position: types.Position) -> tuple[int, int]:
    return position.line, position.character
