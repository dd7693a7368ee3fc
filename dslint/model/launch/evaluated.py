"""The text that ``eval "$cmd"`` reads when variables inside ``cmd`` hold quotes: their values, put in as bash does."""

from __future__ import annotations

import re

from dslint.model.shell.pieces import UnknownWordError
from dslint.model.shell.scope import Scope, Template
from dslint.model.shell.words import expand_assignment
from dslint.parse.shell import ShellDoc

_NAME = re.compile(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")


def filled_text(shell: ShellDoc, kept: Template, scope: Scope) -> str | None:
    """The command line with the variables that are known; the others stay, for the reader of the text.

    ``None`` where that could read another command: other expansions, a text that was not assigned in double quotes.
    """
    if kept.start < 1 or shell.source.text[kept.start - 1] != '"' or re.search(r'[`"]|\\[^\n]', kept.text):
        return None
    parts: list[str] = []
    at = 0
    for found in _NAME.finditer(kept.text):
        parts.append(kept.text[at : found.start()])
        at = found.end()
        value = _value(found["plain"] or found["braced"], scope)
        if value is None and "".join(parts).count("'") % 2:  # bash has put it in before it sees the quotes
            value = f"'\"{found[0]}\"'"
        parts.append(found[0] if value is None else value)
    parts.append(kept.text[at:])
    text = "".join(parts)
    return None if "$" in _NAME.sub("", text) else text


def quotes_variables(shell: ShellDoc, kept: Template) -> bool:
    """A variable stands between single quotes in a text in double quotes: to bash these quotes mean nothing yet."""
    if kept.start < 1 or shell.source.text[kept.start - 1] != '"' or "'" not in kept.text:
        return False
    return any(kept.text.count("'", 0, found.start()) % 2 for found in _NAME.finditer(kept.text))


def _value(name: str, scope: Scope) -> str | None:
    try:
        return expand_assignment(f"${{{name}}}", scope.lookup())
    except UnknownWordError:
        return None
