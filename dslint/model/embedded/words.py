"""The words of a command of a script as texts that know their places, and where its input and output go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.source import Location, Span
from dslint.model.embedded.shelltext import MARK, Written
from dslint.model.shell.flow.choices import ForkNeededError
from dslint.model.shell.scope import Scope
from dslint.parse.shell import ShellDoc
from dslint.parse.shelllex import UnfinishedWordError, simple_command

if TYPE_CHECKING:
    from tree_sitter import Node

_PIECE = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|([^'"\\]+)""", re.DOTALL)
_VARIABLE = re.compile(r'"?\$\{?([A-Za-z_]\w*)\}?"?')
_OUTPUT = re.compile(r"\d*>")
# What runs a command only sometimes, or several times.
_UNCERTAIN = frozenset(
    {"if_statement", "while_statement", "for_statement", "c_style_for_statement", "case_item", "function_definition"}
)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a pipe: its words, and the files and texts behind ``>``, ``>>``, ``<`` and ``<<<``."""

    words: tuple[Written, ...]
    output: Written | None = None
    appends: bool = False
    input: Written | None = None
    text: Written | None = None

    @property
    def name(self) -> str:
        """Return the name of the program."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""


def pipe_at(node: Node, shell: ShellDoc, scope: Scope) -> list[Command] | None:
    """Return the commands of the pipe that ends with a node; ``None`` where it does not run once for certain."""
    nodes = [node]
    top = node
    if node.parent is not None and node.parent.type == "redirected_statement":
        top = node.parent
    if top.parent is not None and top.parent.type == "pipeline":
        nodes = [child for child in top.parent.named_children if child.type in ("command", "redirected_statement")]
        if nodes[-1] != top:
            return []
        top = top.parent
        if top.parent is not None and top.parent.type == "redirected_statement":
            top = top.parent
    read = [_command(each, shell, scope) for each in nodes[:-1]]
    read.append(_command(node, shell, scope, [*_redirects(node.parent), *_redirects(top)]))
    found = [command for command in read if command is not None]
    return found if _is_certain(top) and len(found) == len(read) else None


def _is_certain(node: Node) -> bool:
    at = node
    while at.parent is not None:
        around = at.parent
        if around.type in _UNCERTAIN:
            return False
        if around.type == "list":
            before = around.children.index(at)
            if before and around.children[before - 1].type == "||":
                return False
        at = around
    return True


def _redirects(node: Node | None) -> list[Node]:
    return list(node.named_children) if node is not None and node.type == "redirected_statement" else []


def _command(node: Node, shell: ShellDoc, scope: Scope, around: list[Node] | None = None) -> Command | None:
    others = [*(around or _redirects(node)), *node.children]
    inner = next((c for c in node.named_children if c.type == "command"), node)
    try:
        spans = simple_command(shell.text, shell.start(inner)).words
    except UnfinishedWordError:
        return None
    words = tuple(word(shell, span, scope) for span in spans)
    command = Command(words)
    for redirect in others:
        target = redirect.named_children[-1] if redirect.named_children else None
        if target is None or redirect.type not in ("file_redirect", "herestring_redirect"):
            continue
        text = word(shell, shell.local(target), scope)
        sign = shell.raw(redirect).strip()
        if redirect.type == "herestring_redirect":
            command = Command(words, command.output, command.appends, command.input, text)
        elif sign.startswith("<"):
            command = Command(words, command.output, command.appends, text, command.text)
        elif _OUTPUT.match(sign) and not sign.startswith("2"):
            command = Command(words, text, ">>" in sign[:3], command.input, command.text)
    return command


def word(shell: ShellDoc, span: Span, scope: Scope) -> Written:
    """Return what one word becomes; a variable alone is the text at the place that sets it."""
    raw = shell.text[span.start : span.end]
    variable = _VARIABLE.fullmatch(raw)
    if variable is not None:
        try:
            value = scope.lookup().get(variable[1])
        except ForkNeededError:  # a test decides
            value = None
        if value is not None and value.items is None and len(value.origins) == 1:
            there = _at_origin(shell, value.origins[0], scope, value.text)
            if there is not None:
                return there
    return _pieces(shell, raw, span.start + shell.base, scope)


def _at_origin(shell: ShellDoc, origin: Location, scope: Scope, text: str) -> Written | None:
    if origin.path != shell.source.path:
        return None
    raw = shell.source.text[origin.span.start : origin.span.end]
    cut = len(raw) - len(re.sub(r"\A\w+=", "", raw))
    made = _pieces(shell, raw[cut:], origin.span.start + cut, scope)
    return made if made.text == text else None


def _pieces(shell: ShellDoc, raw: str, base: int, scope: Scope) -> Written:
    made = Written(shell.source)
    at = 0
    for match in _PIECE.finditer(raw):
        if match.start() != at:
            break
        at = match.end()
        _add(made, match, base, scope)
    if at != len(raw):
        made.add(MARK, Span(base + at, base + len(raw)), False, False)
    return made


def _add(made: Written, match: re.Match[str], base: int, scope: Scope) -> None:
    literal, quoted, escaped, plain = match.groups()
    begin = base + match.start()
    if literal is not None:
        inner = Written.of_body(made.source, literal, begin + 1, None)
    elif quoted is not None:
        inner = Written.of_body(made.source, quoted, begin + 1, scope.lookup(), quoted=True)
    elif escaped is not None:
        inner = Written.of_body(made.source, escaped, begin + 1, None)
    else:
        inner = Written.of_body(made.source, plain, begin, scope.lookup())
    for part, text in inner.pieces():
        made.add(text, part.host, part.is_literal, part.is_known)


def operands(command: Command, *, with_value: frozenset[str] = frozenset()) -> Iterator[tuple[str, Written]]:
    """Yield the options (with their values) and the other words (``""``) of a command."""
    pending = iter(command.words[1:])
    for each in pending:
        if not each.text.startswith("-") or each.text == "-":
            yield "", each
        elif each.text in with_value:
            value = next(pending, None)
            if value is not None:
                yield each.text, value
        else:
            yield each.text, each
