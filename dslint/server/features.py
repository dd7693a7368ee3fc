"""Which messages of the protocol are answered, and by whom."""

from __future__ import annotations

import logging
from typing import Any

from lsprotocol import types

from dslint.server import asked
from dslint.server.app import DslintServer

log = logging.getLogger(__name__)


def register(server: DslintServer) -> None:
    """Tell the server what it answers."""
    _life(server)
    _texts(server)
    _notebooks(server)
    _workspace(server)
    asked.register(server)


def _life(server: DslintServer) -> None:
    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.begin(params)

    @server.feature(types.INITIALIZED)
    def initialized(_: types.InitializedParams) -> None:
        server.watch()
        server.look()

    @server.feature(types.SHUTDOWN)
    def shutdown(_: Any) -> None:
        server.end(is_said=True)


def _texts(server: DslintServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        server.opened(params.text_document)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        document = params.text_document
        if server.documents.change(document.uri, document.version, params.content_changes):
            server.look()
        else:
            log.warning("a change of %s, which is not open", document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(_: types.DidSaveTextDocumentParams) -> None:
        server.look(is_saved=True)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.documents.close(params.text_document.uri)
        server.look()


def _notebooks(server: DslintServer) -> None:
    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenNotebookDocumentParams) -> None:
        server.documents.open_notebook(params)
        server.look()

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeNotebookDocumentParams) -> None:
        if server.documents.change_notebook(params):
            server.look()

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_SAVE)
    def saved(_: types.DidSaveNotebookDocumentParams) -> None:
        server.look(is_saved=True)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseNotebookDocumentParams) -> None:
        server.documents.close_notebook(params)
        server.look()


def _workspace(server: DslintServer) -> None:
    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configured(params: types.DidChangeConfigurationParams) -> None:
        server.take_wishes(params.settings)
        server.renew()

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def folders(_: types.DidChangeWorkspaceFoldersParams) -> None:
        server.renew()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def watched(params: types.DidChangeWatchedFilesParams) -> None:
        server.on_disk(params.changes)
