"""What a client asks about a document, answered from the last look at it."""

from __future__ import annotations

from typing import Any

from lsprotocol import types

from dslint.rules.registry import BY_CODE
from dslint.server import actions, completion, hover, runs
from dslint.server.app import DslintServer
from dslint.server.diagnostics import Places
from dslint.server.documents import path_of
from dslint.server.pages import page_of


def register(server: DslintServer) -> None:
    """Tell the server what it answers."""
    _in_text(server)
    _about_runs(server)
    _commands(server)


def _in_text(server: DslintServer) -> None:
    options = types.CodeActionOptions(code_action_kinds=list(actions.KINDS))

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)
    async def act(params: types.CodeActionParams) -> list[types.CodeAction]:
        outcome = await server.current(params.text_document.uri)
        # Edits of another text would fall on the wrong places.
        if outcome is None or outcome.wanted.number < server.asked:
            return []
        return actions.Actions(outcome, server.client_capabilities).of(params)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hovered(params: types.HoverParams) -> types.Hover | None:
        uri = params.text_document.uri
        document, path = server.documents.get(uri), path_of(uri)
        if document is None or path is None:
            return None
        outcome = await server.current(uri)
        return hover.hover(path, document.text, params.position, outcome.look if outcome is not None else None)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=completion.TRIGGERS))
    def completed(params: types.CompletionParams) -> list[types.CompletionItem]:
        # The last look is good enough for the release in use: whoever types waits for nothing.
        uri = params.text_document.uri
        document, path = server.documents.get(uri), path_of(uri)
        if document is None or path is None:
            return []
        outcome = server.outcome_of(path)
        return completion.completion(path, document.text, params.position, outcome.look if outcome else None)


def _about_runs(server: DslintServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions(resolve_provider=False))
    async def lenses(params: types.CodeLensParams) -> list[types.CodeLens]:
        uri = params.text_document.uri
        path = path_of(uri)
        outcome = await server.current(uri) if server.wishes.code_lens else None
        if outcome is None or path is None:
            return []
        return list(runs.lenses(path, outcome.look, Places(outcome.wanted.documents, outcome.look.texts)))

    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    async def hints(params: types.InlayHintParams) -> list[types.InlayHint]:
        uri = params.text_document.uri
        path = path_of(uri)
        outcome = await server.current(uri) if server.wishes.inlay_hints else None
        if outcome is None or path is None:
            return []
        places = Places(outcome.wanted.documents, outcome.look.texts)
        return list(runs.hints(path, outcome.look, places, params.range))


def _commands(server: DslintServer) -> None:
    @server.command(actions.WHY)
    def why(*arguments: Any) -> None:
        code = arguments[0] if arguments else None
        info = BY_CODE.get(code) if isinstance(code, str) else None
        if info is None:
            return
        page = page_of(info.code)
        window = server.client_capabilities.window
        if (
            page is not None
            and window is not None
            and window.show_document is not None
            and window.show_document.support
        ):
            server.window_show_document(types.ShowDocumentParams(page, external=False, take_focus=True))
            return
        where = f" ({page.removeprefix('file://')})" if page is not None else ""
        server.say(f"{info.code} {info.name}: {info.summary}{where}")

    @server.command(runs.PLAN)
    def plan(*arguments: Any) -> None:
        place = runs.argument_of(*arguments[:3]) if len(arguments) >= 3 else None
        document = server.documents.get(place[0]) if place is not None else None
        path = path_of(place[0]) if place is not None else None
        outcome = server.outcome_of(path) if path is not None else None
        if place is None or document is None or path is None or outcome is None:
            return
        found = runs.plans_at(path, document.text.offset(place[1]), outcome.look)
        if found:
            server.say(runs.plan_text(found, outcome.look))
