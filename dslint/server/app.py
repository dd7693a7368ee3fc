"""The server: what the client says is kept, looks are asked for, and their findings are published."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from dslint import __version__
from dslint.server.analyst import Analyst
from dslint.server.client_settings import Wishes
from dslint.server.diagnostics import by_uri
from dslint.server.documents import Documents, path_of
from dslint.server.requests import Listener, Outcome
from dslint.settings.load import FILE_NAMES
from dslint.translate import language_of, translator

log = logging.getLogger(__name__)

_NOTEBOOKS = types.NotebookDocumentSyncOptions(
    [
        types.NotebookDocumentFilterWithNotebook(
            "jupyter-notebook", [types.NotebookCellLanguage("python"), types.NotebookCellLanguage("markdown")]
        )
    ]
)
_SETTINGS = frozenset({*FILE_NAMES, ".gitignore"})
_WATCHED = (
    "**/{*.py,*.ipynb,*.json,*.jsonc,*.hjson,*.yaml,*.yml,*.sh,*.bash,*.sbatch,*.slurm,*.md,*.toml,*.txt,*.cfg,*.lock,"
    "*.mk,Makefile,Dockerfile*,Justfile,.gitignore}"
)
# Seconds that a request waits for a look at the text that the client has.
_WAIT = 20.0


class DslintServer(LanguageServer, Listener):
    """State of one client. All of it belongs to the thread of the protocol."""

    def __init__(self) -> None:
        super().__init__("dslint", __version__, types.TextDocumentSyncKind.Incremental, _NOTEBOOKS)
        self.documents = Documents()
        self.wishes = Wishes()
        self.raw: Mapping[str, Any] = {}
        self.outcomes: dict[str, Outcome] = {}
        self._analyst: Analyst | None = None
        self._published: dict[str, dict[str, list[types.Diagnostic]]] = {}
        # What the client was told last of each file: items, the version of the text, and whether it was open.
        self._told: dict[str, tuple[list[types.Diagnostic], int | None, bool]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.asked = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._in_progress: set[str] = set()
        self._locale = ""
        self._said: set[str] = set()
        self.is_said = False

    # -- what the client says ----------------------------------------------------------------------------------

    def begin(self, params: types.InitializeParams) -> None:
        """The client has introduced itself."""
        encoding = self.workspace.position_encoding or types.PositionEncodingKind.Utf16
        self.documents = Documents(getattr(encoding, "value", str(encoding)))
        self._locale = params.locale or ""
        self.take_wishes(params.initialization_options)
        roots = self._roots()
        if roots:
            try:
                os.chdir(roots[0])
            except OSError as error:
                log.warning("cannot work in %s: %s", roots[0], error)
        self._loop = asyncio.get_running_loop()
        self._analyst = Analyst(self._roots(), self.wishes, self.raw, self)
        self._analyst.start()

    def opened(self, item: types.TextDocumentItem) -> None:
        """The client has opened a document, and waits to hear of it whatever it has heard before."""
        self.documents.open(item)
        self._told.pop(item.uri, None)
        self.look()

    def take_wishes(self, given: object) -> None:
        """The wishes of the client; what is wrong with them is said."""
        self.wishes = Wishes.of(given)
        self.raw = given if isinstance(given, dict) else {}
        for problem in self.wishes.problems:
            self.warn(problem)

    def renew(self) -> None:
        """Folders, settings or files on disk have changed."""
        if self._analyst is not None:
            self._analyst.use(self._roots(), self.wishes, self.raw)
            self.outcomes.clear()
            self.look()

    def on_disk(self, changes: Sequence[types.FileEvent]) -> None:
        """Files have changed on disk: those of settings begin everything anew, open ones are what the client says."""
        paths = {path: change.type for change in changes if (path := path_of(change.uri)) is not None}
        if any(os.path.basename(path) in _SETTINGS for path in paths):
            self.renew()
        elif self._analyst is not None:
            changed = [p for p, kind in paths.items() if kind == types.FileChangeType.Changed]
            self._analyst.note(changed, others_exist=len(changed) < len(paths))
            self.look()

    def watch(self) -> None:
        """Have the client tell of changes on disk, where it can."""
        workspace = self.client_capabilities.workspace
        watched = workspace.did_change_watched_files if workspace is not None else None
        if watched is not None and watched.dynamic_registration:
            options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher(_WATCHED)])
            asked = types.Registration("dslint-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            self.client_register_capability(types.RegistrationParams([asked]))

    def look(self, is_saved: bool = False) -> None:
        """Ask for a look at what the client has now; ``is_saved``: it has saved a document."""
        if self._analyst is not None:
            self.asked = self._analyst.want(self.documents, is_saved)

    def end(self, is_said: bool = False) -> None:
        """The client is gone; ``is_said``: it has asked to shut down."""
        self.is_said |= is_said
        if self._analyst is not None:
            self._analyst.close()

    def _roots(self) -> list[str]:
        folders = [to_fs_path(uri) for uri in self.workspace.folders]
        if not folders and self.workspace.root_uri:
            folders = [to_fs_path(self.workspace.root_uri)]
        found = [os.path.abspath(folder) for folder in folders if folder and os.path.isdir(folder)]
        # A folder inside of another one is looked at with that one.
        return [f for f in found if not any(f != other and f.startswith(other.rstrip("/") + "/") for other in found)]

    async def current(self, uri: str) -> Outcome | None:
        """The look at a document as the client has it; ``None`` where there is none in time."""
        path = self.documents.file_of(uri)
        if path is None:
            return None
        if all(outcome.wanted.number < self.asked for outcome in self.outcomes.values()):
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((self.asked, waiting))
            try:
                await asyncio.wait_for(waiting, _WAIT)
            except asyncio.TimeoutError:
                return None
        return self.outcome_of(path)

    def outcome_of(self, path: str) -> Outcome | None:
        """The last look that has seen a file."""
        absolute = os.path.abspath(path)
        found = [o for o in self.outcomes.values() if absolute.startswith(os.path.abspath(o.folder).rstrip("/") + "/")]
        return max(found, key=lambda o: len(os.path.abspath(o.folder)), default=None)

    # -- what the analyst says, in its own thread --------------------------------------------------------------

    def looked(self, outcome: Outcome) -> None:
        """A look has ended."""
        translate = translator(self.wishes.language or language_of({"LANG": self._locale.replace("-", "_")}))
        found = by_uri(outcome.look, outcome.wanted.documents, self.wishes.least, translate)
        self._call(self._publish, outcome, found)

    def first_look(self, root: str, share: str) -> None:
        """The first look at a folder goes on."""
        self._call(self._progress, root, share)

    def failed(self, error: Exception) -> None:
        """A look has failed."""
        self._call(self.warn, f"internal error: {type(error).__name__}: {error} (please report it)")

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        if self._loop is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(function, *arguments)
            except RuntimeError:
                log.debug("the client is gone")

    # -- what the client hears ---------------------------------------------------------------------------------

    def warn(self, text: str) -> None:
        """Show a sentence to the user, once."""
        if text not in self._said:
            self._said.add(text)
            self.window_show_message(types.ShowMessageParams(types.MessageType.Warning, f"dslint: {text}"))

    def say(self, text: str) -> None:
        """Show a text that the user has asked for."""
        self.window_show_message(types.ShowMessageParams(types.MessageType.Info, text))

    def _publish(self, outcome: Outcome, found: dict[str, list[types.Diagnostic]]) -> None:
        if outcome.problem:
            self.warn(outcome.problem)
        self.outcomes[outcome.folder] = outcome
        before = self._published.get(outcome.folder, {})
        # A glance has judged its own files only: what stands in others stays as it was.
        kept = (
            {}
            if outcome.look.is_whole
            else {u: d for u, d in before.items() if path_of(u) not in outcome.look.result.paths}
        )
        now = {**kept, **found}
        for uri in {*before, *now, *(d for d in self._open_uris(outcome.look.texts))}:
            self._tell_diagnostics(uri, now.get(uri, []), outcome)
        self._published[outcome.folder] = {uri: items for uri, items in now.items() if items}
        self._answer(outcome)

    def _tell_diagnostics(self, uri: str, items: list[types.Diagnostic], outcome: Outcome) -> None:
        """Publish what is said of a file, unless the client has it."""
        document, seen = self.documents.get(uri), outcome.wanted.documents.get(uri)
        version = seen.version if document is not None and seen is not None else None
        if document is not None and seen is not None and document.version != version:
            return  # places in a text that the client has no more; a look at the new one has been asked for
        state = (items, version, document is not None)
        if self._told.get(uri, ([], None, False)) == state:
            return
        if items or document is not None:
            self._told[uri] = state
        else:
            self._told.pop(uri, None)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, items, version))

    def _open_uris(self, texts: Mapping[str, str]) -> list[str]:
        return [self.documents.uri(path) for path in texts if self.documents.at(path) is not None]

    def _answer(self, outcome: Outcome) -> None:
        """Let those go on who wait for this look, and have what is shown in the text drawn again."""
        for number, waiting in self._waiting:
            if number <= outcome.wanted.number and not waiting.done():
                waiting.set_result(None)
        self._waiting = [(number, waiting) for number, waiting in self._waiting if not waiting.done()]
        if not outcome.look.is_settled:
            return
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.code_lens is not None and workspace.code_lens.refresh_support:
            self.workspace_code_lens_refresh(None)
        if workspace is not None and workspace.inlay_hint is not None and workspace.inlay_hint.refresh_support:
            self.workspace_inlay_hint_refresh(None)

    def _progress(self, root: str, share: str) -> None:
        window = self.client_capabilities.window
        if window is None or not window.work_done_progress:
            return
        token = f"dslint first look {root}"
        if root not in self._in_progress:
            if not share:
                return
            self._in_progress.add(root)
            begin = types.WorkDoneProgressBegin(
                title="dslint: first look", message=os.path.basename(os.path.abspath(root))
            )
            self.work_done_progress.create(token, lambda *_: self._tell(token, begin))
        elif share:
            self._tell(token, types.WorkDoneProgressReport(message=share))
        else:
            self._in_progress.discard(root)
            self._tell(token, types.WorkDoneProgressEnd(message="done"))
            self.work_done_progress.tokens.pop(token, None)

    def _tell(self, token: str, value: Any) -> None:
        self.progress(types.ProgressParams(token, value))
