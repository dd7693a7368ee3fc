"""The protocol through pytest-lsp, whose client checks each message against the types of the specification."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from lsp_client import CONFIG, ROOT, make_project, uri_of
from lsprotocol import types

pytest_plugins = ["lsp_fixtures"]

pytest_lsp = pytest.importorskip("pytest_lsp", reason="pip install pytest-lsp")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("protocol") / "project")


CONFIGURATION = pytest_lsp.ClientServerConfig(
    server_command=[sys.executable, "-m", "dslint", "server"],
    server_env={**os.environ, "PYTHONPATH": str(ROOT)},
)


@pytest_lsp.fixture(config=CONFIGURATION)  # type: ignore[untyped-decorator]
async def editor(lsp_client: pytest_lsp.LanguageClient, folder: Path) -> AsyncIterator[None]:
    # Only what this client answers itself.
    edits = types.WorkspaceEditClientCapabilities(document_changes=True)
    capabilities = types.ClientCapabilities(workspace=types.WorkspaceClientCapabilities(workspace_edit=edits))
    folders = [types.WorkspaceFolder(uri_of(folder), "project")]
    parameters = types.InitializeParams(capabilities, root_uri=uri_of(folder), workspace_folders=folders)
    await lsp_client.initialize_session(parameters)
    yield
    await lsp_client.shutdown_session()


@pytest.mark.asyncio
async def test_a_session(editor: pytest_lsp.LanguageClient, folder: Path) -> None:
    uri = uri_of(folder / "ds.json")
    item = types.TextDocumentItem(uri, "json", 1, CONFIG)
    editor.text_document_did_open(types.DidOpenTextDocumentParams(item))
    while not editor.diagnostics.get(uri):
        await editor.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    found = {d.code: d for d in editor.diagnostics[uri]}
    assert found["DSL101"].severity is types.DiagnosticSeverity.Error
    document, place = types.TextDocumentIdentifier(uri), found["DSL103"].range
    asked = types.CodeActionParams(document, place, types.CodeActionContext([found["DSL103"]]))
    actions = await editor.text_document_code_action_async(asked) or []
    fix = next(a for a in actions if isinstance(a, types.CodeAction) and a.is_preferred)
    assert list(fix.diagnostics or ()) == [found["DSL103"]]
    assert fix.edit is not None
    assert fix.edit.document_changes
    hover = await editor.text_document_hover_async(types.HoverParams(document, types.Position(4, 28)))
    assert hover is not None
    assert isinstance(hover.contents, types.MarkupContent)
    lenses = await editor.text_document_code_lens_async(
        types.CodeLensParams(types.TextDocumentIdentifier(uri_of(folder / "run.sh")))
    )
    assert [lens.command.title for lens in lenses or () if lens.command] == ["8 ranks, batch 30, ZeRO 2"]
    hints = types.InlayHintParams(document, types.Range(types.Position(0, 0), types.Position(9, 0)))
    assert not await editor.text_document_inlay_hint_async(hints)
    completion = await editor.text_document_completion_async(types.CompletionParams(document, types.Position(5, 0)))
    assert completion is not None
