"""The text that ``eval "$cmd"`` reads when variables inside ``cmd`` hold quotes: their values, put in as bash does."""

from __future__ import annotations

import re

from dslint.model.shell.flow.choices import ForkNeededError, resolve
from dslint.model.shell.pieces import UnknownWordError
from dslint.model.shell.scope import Scope, Template
from dslint.model.shell.words import expand_assignment
from dslint.parse.shell import ShellDoc

# How often a variable may hold another one.
_MOST = 3
_PIECE = re.compile(r"\\.|\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})|[$`]|[^\\$`]+", re.DOTALL)
_NAME = re.compile(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")

# What a command line in a variable means nothing by unless ``eval`` runs it.
_ACTIVE = re.compile(r"""['"\\`;|&<>]|\{[^{}$]*,""")
# What a text means something by when it is read as a command line.
_SPECIAL = re.compile(r"""[\\'"`$;|&<>(){}#*?\[~]""")
_ASKED = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")


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


def handed_on(body: str, scope: Scope, depth: int = 0) -> tuple[str, set[str]] | None:
    """What the inner shell reads of ``bash -c "body"``, and the names that the outer one leaves to it (``\\$NAME``).

    The outer shell puts in what it knows; what nobody knows stays, and so it is in the text of a variable of which only
    parts are known. ``None`` where other expansions stand in the body.
    """
    left = set(re.findall(r"\\\$\{?(\w+)", body))
    parts: list[str] = []
    for found in _PIECE.finditer(body):
        piece, name = found[0], found["plain"] or found["braced"]
        if piece[0] == "\\":
            parts.append("" if piece[1] == "\n" else piece[1] if piece[1] in '$`"\\' else piece)
        elif name:
            value = _value(name, scope)
            inside = "".join(parts).count("'") % 2 > 0
            kept = _kept(name, scope, depth) if value is None and not inside else None
            left |= kept[1] if kept is not None else set()
            value = kept[0] if kept is not None else value
            parts.append(value if value is not None else f"'\"{piece}\"'" if inside else piece)
        elif piece in "$`":
            return None
        else:
            parts.append(piece)
    return "".join(parts), left


def holds_parts(body: str, scope: Scope) -> bool:
    """A variable beside other words of a text holds a piece of a command line of which only parts are known."""
    names = {found["plain"] or found["braced"] for found in _NAME.finditer(body)}
    is_alone = _NAME.fullmatch(body.strip()) is not None
    return not is_alone and any(
        name in scope.templates and _value(name, scope) is None and _kept(name, scope, 0) is not None for name in names
    )


def _kept(name: str, scope: Scope, depth: int) -> tuple[str, set[str]] | None:
    """The text that stands in a variable, as far as it was known when it was set in double quotes."""
    found = scope.templates.get(name)
    try:
        template = resolve(found, scope.here()) if found is not None and depth < _MOST else None
    except ForkNeededError:
        return None
    return handed_on(template.text, template.scope, depth + 1) if isinstance(template, Template) else None


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


def reads_as_written(shell: ShellDoc, kept: Template, raws: list[str]) -> bool:
    """The command line in a variable means to bash what it means as a piece of the script.

    ``eval`` sees quotes that came out of other variables, ``$CMD`` alone sees no quotes and operators at all.
    """
    if raws[0] == "eval":
        return holds_plain_words(kept.text, kept.scope) and not quotes_variables(shell, kept)
    return raws[0].startswith('"') or _ACTIVE.search(re.sub(r"\\\r?\n|\$\{[^}]*\}", " ", kept.text)) is None


def with_exports(kept: Template, scope: Scope) -> Scope:
    """The state in which a kept command line was written, with what has been exported since.

    What the text itself asks for is as it was then.
    """
    found = kept.scope.at(scope.here())
    asked = set(_ASKED.findall(kept.text))
    for name in scope.exports:
        if name not in asked and name in scope.values:
            found.values[name], found.exports[name] = scope.values[name], scope.exports[name]
    return found


def holds_plain_words(body: str, scope: Scope) -> bool:
    """No variable in the text holds quotes or operators, which the shell that reads the text would see as such."""
    for name in set(re.findall(r"\$\{?(\w+)", body)):
        try:
            value = expand_assignment(f"${{{name}}}", scope.lookup())
        except UnknownWordError:
            continue
        if _SPECIAL.search(value):
            return False
    return True
