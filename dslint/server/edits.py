"""Edits of texts as the protocol wants them, for clients that know versions and for those that do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lsprotocol import types

from dslint.core.fix import Edit
from dslint.server.diagnostics import Places


def edits_of(edits: Iterable[Edit], places: Places) -> dict[str, list[types.TextEdit]]:
    """Edits of the engine by the URI of their file."""
    found: dict[str, list[types.TextEdit]] = {}
    for edit in edits:
        changed = types.TextEdit(places.text(edit.path).range(edit.span), edit.text)
        found.setdefault(places.uri(edit.path), []).append(changed)
    return found


def workspace_edit(
    edits: Mapping[str, list[types.TextEdit]],
    versions: Mapping[str, int | None],
    capabilities: types.ClientCapabilities,
    created: str | None = None,
) -> types.WorkspaceEdit | None:
    """One edit of several files; ``versions`` by URI, ``created`` is a file that is made first.

    ``None`` where the client cannot do it.
    """
    known = capabilities.workspace.workspace_edit if capabilities.workspace is not None else None
    if known is None or not known.document_changes:
        return types.WorkspaceEdit(changes=dict(edits)) if created is None else None
    changes: list[types.TextDocumentEdit | types.CreateFile | types.RenameFile | types.DeleteFile] = []
    if created is not None:
        if types.ResourceOperationKind.Create not in (known.resource_operations or ()):
            return None
        changes.append(types.CreateFile(created, options=types.CreateFileOptions(ignore_if_exists=True)))
    for uri, texts in edits.items():
        document = types.OptionalVersionedTextDocumentIdentifier(uri, versions.get(uri))
        changes.append(types.TextDocumentEdit(document, list(texts)))
    return types.WorkspaceEdit(document_changes=changes)
