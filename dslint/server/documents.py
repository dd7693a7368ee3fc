"""The documents that the client has open, and the way between its URIs and the paths of dslint."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import quote, unquote, urlsplit

from lsprotocol import types

from dslint.parse.limits import MAX_BYTES
from dslint.server.positions import Text


def path_of(uri: str) -> str | None:
    """The path of a file as dslint names it, relative below the working directory; ``None`` for what is no file."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = unquote(parts.path, errors="surrogateescape")
    if not path or "\0" in path:
        return None
    return shown(path)


def uri_of(path: str) -> str:
    """The URI of a path; bytes of its name that are no UTF-8 stay what they are."""
    absolute = os.path.abspath(path).replace(os.sep, "/")
    return "file://" + quote(absolute if absolute.startswith("/") else f"/{absolute}", errors="surrogateescape")


def shown(path: str) -> str:
    """The path as dslint names it."""
    here, path = os.getcwd(), os.path.normpath(path)
    if os.path.isabs(path) and (path + os.sep).startswith(here.rstrip(os.sep) + os.sep):
        path = os.path.relpath(path, here)
    return path.replace(os.sep, "/")


@dataclass
class Document:
    """A text of the client."""

    uri: str
    version: int | None
    text: Text
    language: str = ""


@dataclass
class Notebook:
    """A notebook of a client that sends its cells one by one."""

    uri: str
    version: int
    cells: list[types.NotebookCell] = field(default_factory=list)


class Documents:
    """What is open; only the thread of the protocol changes it.

    ``encoding`` is what the client counts columns in.
    """

    def __init__(self, encoding: str = "utf-16") -> None:
        self.encoding = encoding
        self._open: dict[str, Document] = {}
        self._notebooks: dict[str, Notebook] = {}

    def open(self, item: types.TextDocumentItem) -> None:
        """Take a document that the client has opened."""
        text = Text(item.text.removeprefix("\ufeff"), self.encoding)
        self._open[item.uri] = Document(item.uri, item.version, text, item.language_id)

    def change(self, uri: str, version: int | None, changes: Sequence[types.TextDocumentContentChangeEvent]) -> bool:
        """Change a document; false when it is not open."""
        document = self._open.get(uri)
        if document is None:
            return False
        for change in changes:
            document.text = document.text.changed(change)
        document.version = version
        return True

    def close(self, uri: str) -> None:
        """Forget a document: from now on the disk says what it holds."""
        self._open.pop(uri, None)

    def get(self, uri: str) -> Document | None:
        """The open document with this URI."""
        return self._open.get(uri)

    def at(self, path: str) -> Document | None:
        """The open document of a file."""
        return next((document for uri, document in self._open.items() if path_of(uri) == path), None)

    def uri(self, path: str) -> str:
        """The URI of a path, spelled as the client does where it has the file open."""
        for uri in (*self._open, *self._notebooks):
            if path_of(uri) == path:
                return uri
        return uri_of(path)

    # -- notebooks ---------------------------------------------------------------------------------------------

    def open_notebook(self, params: types.DidOpenNotebookDocumentParams) -> None:
        """Take a notebook with its cells."""
        item = params.notebook_document
        self._notebooks[item.uri] = Notebook(item.uri, item.version, list(item.cells))
        for cell in params.cell_text_documents:
            self.open(cell)

    def change_notebook(self, params: types.DidChangeNotebookDocumentParams) -> bool:
        """Change cells of a notebook; false when it is not open."""
        notebook = self._notebooks.get(params.notebook_document.uri)
        if notebook is None:
            return False
        notebook.version = params.notebook_document.version
        cells = params.change.cells
        if cells is None:
            return True
        if cells.structure is not None:
            array = cells.structure.array
            notebook.cells[array.start : array.start + array.delete_count] = array.cells or ()
            for opened in cells.structure.did_open or ():
                self.open(opened)
            for closed in cells.structure.did_close or ():
                self.close(closed.uri)
        for content in cells.text_content or ():
            self.change(content.document.uri, content.document.version, content.changes)
        return True

    def close_notebook(self, params: types.DidCloseNotebookDocumentParams) -> None:
        """Forget a notebook and its cells."""
        self._notebooks.pop(params.notebook_document.uri, None)
        for cell in params.cell_text_documents:
            self.close(cell.uri)

    def cell_uri(self, path: str, number: int) -> str | None:
        """The URI of a cell, counted from 1, of a notebook that came cell by cell."""
        for uri, notebook in self._notebooks.items():
            if path_of(uri) == path and number <= len(notebook.cells):
                return notebook.cells[number - 1].document
        return None

    def file_of(self, uri: str) -> str | None:
        """The path of the file that a document belongs to: of a cell, whose URI is the client's own, its notebook."""
        for notebook in self._notebooks.values():
            if any(cell.document == uri for cell in notebook.cells):
                return path_of(notebook.uri)
        return path_of(uri)

    def cell_uris(self, path: str) -> list[str]:
        """The URIs of all cells of a notebook that came cell by cell."""
        return [c.document for uri, n in self._notebooks.items() if path_of(uri) == path for c in n.cells]

    def _notebook_text(self, notebook: Notebook) -> str:
        cells = []
        for cell in notebook.cells:
            document = self._open.get(cell.document)
            kind = "code" if cell.kind == types.NotebookCellKind.Code else "markdown"
            cells.append({"cell_type": kind, "source": document.text.text if document else "", "metadata": {}})
        return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})

    def copy(self) -> Documents:
        """What is open now, for another thread."""
        found = Documents(self.encoding)
        found._open = {uri: replace(document) for uri, document in self._open.items()}
        found._notebooks = {uri: replace(n, cells=list(n.cells)) for uri, n in self._notebooks.items()}
        return found

    # -- for the engine ----------------------------------------------------------------------------------------

    def texts(self) -> dict[str, str]:
        """The texts that replace those on disk, by path; one that is too large is none for dslint, as on disk."""
        found = {
            path: _without_halves(document.text.text)
            for uri, document in self._open.items()
            if len(document.text.text) <= MAX_BYTES and (path := path_of(uri)) is not None
        }
        for uri, notebook in self._notebooks.items():
            if (path := path_of(uri)) is not None:
                found[path] = self._notebook_text(notebook)
        return found

    def versions(self) -> Mapping[str, int | None]:
        """The versions of the open documents, by path."""
        return {path: d.version for uri, d in self._open.items() if (path := path_of(uri)) is not None}


def _without_halves(text: str) -> str:
    """The text without single surrogates, which JSON can send and no file can hold."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text
