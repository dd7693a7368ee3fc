"""Simple commands of a script: what they assign, and the words and environment that they hand on."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dslint.core.fact import Fact
from dslint.core.source import Location, Span
from dslint.model.launch.command import Condition, Word
from dslint.model.shell.assigning import DECLARING, AssignmentReader
from dslint.model.shell.builtins import BUILTINS, CONTROL, NAME_OPERANDS, default_assignment, run_builtin
from dslint.model.shell.effects import assigned_names, side_effects
from dslint.model.shell.flow.choices import ForkNeededError, World, resolve
from dslint.model.shell.flow.expansion import Raws, alternatives_of
from dslint.model.shell.pieces import UnknownWordError
from dslint.model.shell.reasons import reason_of
from dslint.model.shell.scope import Scope, Template
from dslint.model.shell.words import ASSIGNMENT, expand, is_plain
from dslint.parse.shell import RETURN, with_returns
from dslint.parse.shelllex import CommandText, UnfinishedWordError, simple_command

if TYPE_CHECKING:
    from tree_sitter import Node

    from dslint.core.source import SourceFile


# Unquoted names that usually hold several words, and "$@" / "${array[@]}", which always may.
_MANY = re.compile(
    r"""\$[{]?(?:[@*]|\w+\[[@*]\]|\w*(?:ARGS?|OPTS?|OPTIONS?|FLAGS?|CMD|COMMANDS?|PARAMS?|EXTRAS?|LAUNCH\w*)\w*\b)""",
    re.I,
)


# Behind a command the grammar goes on to the next line, which is one of its own.
_NEXT_LINE = re.compile(r"[ \t\r;]*\n(?:\s|#[^\n]*\n)*(?=[^\s#])")


@dataclass(frozen=True, slots=True)
class Invocation:
    """A simple command: its words after expansion, its prefix assignments, and the state it is started in.

    ``conditions``: it looks like this when these tests went so.
    """

    node: Node
    words: tuple[Word, ...]
    env: dict[str, Fact[str]]
    scope: Scope
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A text that a command reads or writes to a file: ``sbatch <<EOF``, ``cat > job.sh <<'EOF'``.

    ``head`` is the line that it hangs on. ``start`` is the offset of the body in the text; ``is_literal``: bash
    hands it on as it stands.
    """

    node: Node
    head: str
    body: str
    start: int
    is_literal: bool
    scope: Scope


class CommandReader(AssignmentReader):
    """Runs simple commands in a scope. The syntax tree says where one begins, the lexer which words it has."""

    def visit(self, node: Node, scope: Scope) -> Any:
        """Run one statement in ``scope``; its status as a tree of booleans, ``None`` when nobody knows."""
        raise NotImplementedError

    def control(self, name: str, arguments: list[str], scope: Scope) -> None:
        """``exit``, ``return``, ``break``, ``continue``."""
        raise NotImplementedError

    def calculate(self, text: str, scope: Scope) -> bool:
        """Run ``i = 0`` or ``i++``; ``False`` when it is something else or its value is not known."""
        raise NotImplementedError

    def test(self, text: str, start: int, scope: Scope) -> Any:
        """The result of ``test ...``, which begins at ``start``."""
        raise NotImplementedError

    def read_other(self, source: SourceFile, scope: Scope) -> None:
        """Run another file in ``scope``."""
        raise NotImplementedError

    def simple(self, node: Node, scope: Scope, redirects: list[Node] | None = None) -> Any:
        """Run the simple command that begins where ``node`` begins; its status, ``None`` when nobody knows."""
        return self._simple_at(node, self.doc.start(node), scope, redirects)

    def _simple_at(self, node: Node, start: int, scope: Scope, redirects: list[Node] | None) -> Any:
        if start < self.read_up_to:
            return None  # the grammar made several nodes of one command
        command = self._command_at(start)
        if command is None:
            scope.forget(assigned_names(self.doc, node))
            return None
        self.read_up_to = command.end
        raws, count = command.words, command.prefix
        if count == len(raws):
            for raw, span in raws:
                self.assign(raw, span, scope)
            if self._next_line(node, command.end, scope, redirects):
                return None
            return None if any("$(" in raw or "`" in raw for raw, _ in raws) else True
        if raws[count][0] in DECLARING:
            self.declare(raws[count:], scope)
            return None
        return self._run(node, raws[:count], raws[count:], scope, redirects or [])

    def _command_at(self, start: int) -> CommandText | None:
        """The command that begins there; ``None`` when a quote or bracket in it is not closed."""
        known = self.doc.syntax.commands
        if start not in known:
            known[start] = _command_text(self.doc.text, start)
        return known[start]

    def _next_line(self, node: Node, end: int, scope: Scope, redirects: list[Node] | None) -> bool:
        """``A=1 B=2`` and the command on the next line are one command to the grammar, and two to bash."""
        following = None
        if node.type == "command":
            following = _NEXT_LINE.match(self.doc.text, end, self.doc.local(node).end)
        if following is not None:
            self._simple_at(node, following.end(), scope, redirects)
        return following is not None

    def _run(
        self,
        node: Node,
        prefix: Raws,
        raws: Raws,
        scope: Scope,
        redirects: list[Node],
    ) -> Any:
        raw = self.doc.text[raws[0][1].start : raws[-1][1].end]
        name = raws[0][0]
        if (self.may_begin is None or self.may_begin(name)) and self.wanted(raw):
            self._emit(node, prefix, raws, scope)
        status = None
        if name in self.functions:
            self._call(name, prefix, raws[1:], scope)
        elif name in BUILTINS or name in NAME_OPERANDS:
            given = [*redirects, *(c for c in node.children if c.type in _REDIRECTIONS)]
            ifs = next((text[4:] for text, _ in prefix if text.startswith("IFS=")), None)
            run_builtin(self, name, raws[1:], raw, scope, given, ifs)
        elif name == "test":
            status = self.test(raw, raws[0][1].start, scope)
        elif name in CONTROL:
            self.control(name, [text for text, _ in raws[1:]], scope)
        elif name in ("true", "false", ":"):
            status = name != "false"
        for text, _ in prefix:
            scope.forget(side_effects(text))
        if name == ":" or "$" in raw or "((" in raw:
            default_assignment(name, self.location(raws[0][1]), raw, scope)
        return status

    def _call(self, name: str, prefix: Raws, raws: Raws, scope: Scope) -> None:
        if not prefix:
            self.functions.call(name, self, raws, scope)
            return
        inner = scope.copy()
        for raw, span in prefix:
            self.assign(raw, span, inner, export=True)
        self.functions.call(name, self, raws, inner)
        scope.forget(self.functions.names(name))
        scope.ended = inner.ended

    def _emit(self, node: Node, prefix: Raws, raws: Raws, scope: Scope) -> None:
        inner = scope.copy()
        for raw, span in prefix:
            self.assign(raw, span, inner, export=True)
        for world, words in alternatives_of(self, raws, scope, inner):
            state = inner.at(world)
            if len({word.location.span for word in words}) < len(raws):
                words = self._with_lost(words, raws)
            self.found.append(Invocation(node, tuple(words), state.environment(), state, world.conditions()))

    def _with_lost(self, words: list[Word], raws: Raws) -> list[Word]:
        """The words, each with the text of those behind it that became nothing."""
        spans = [self.location(span).span for _, span in raws]
        kept = {word.location.span for word in words}
        lost: dict[Span, str] = {}
        last = spans[0]
        for span, (raw, _) in zip(spans, raws, strict=True):
            if span in kept:
                last = span
            else:
                lost[last] = f"{lost.get(last, '')} {raw}".strip()
        return [replace(word, lost=lost.get(word.location.span, "")) for word in words]

    def words(self, raw: str, span: Span, scope: Scope, world: World | None = None) -> list[Word]:
        """The words that one word of the text becomes, each with the places it comes from.

        Raises:
            ForkNeededError: a ``world`` is given that does not say how a fork went.
        """
        location = self.location(span)
        if is_plain(raw):
            return [Word(with_returns(raw), with_returns(raw), location)]
        lookup = scope.lookup(world)
        try:
            texts = expand(raw, lookup)
        except UnknownWordError as error:
            if world is not None and isinstance(error, ForkNeededError):
                raise
            tail, places = _tail(raw, scope, world)
            if self.doc.written and (shown := self.doc.written[span.start : span.end]) != raw:
                return [_filled_in(shown, location, places, tail)]
            return [Word(None, raw, location, places, _spreads(raw), tail, error.why or reason_of(raw))]
        if len(lookup.places) == len(texts):
            found = [Word(text, raw, location, (place,)) for text, place in zip(texts, lookup.places, strict=True)]
        else:
            origins = tuple(lookup.used)
            found = [Word(text, raw, location, origins) for text in texts]
        if RETURN in self.doc.text:
            found = [replace(word, text=with_returns(word.text or ""), raw=with_returns(raw)) for word in found]
        return found


def _command_text(text: str, start: int) -> CommandText | None:
    try:
        command = simple_command(text, start)
    except UnfinishedWordError:
        return None
    words = tuple([(text[w.start : w.end], w) for w in command.words])
    count = 0
    while count < len(words) and ASSIGNMENT.match(words[count][0]):
        count += 1
    return CommandText(words, count, command.end)


def _filled_in(shown: str, location: Location, places: tuple[Location, ...], tail: str) -> Word:
    """A word with ``${{ matrix.gpus }}``, into which the workflow puts a text before the shell sees it."""
    expression = _EXPRESSION.search(shown)
    name = re.findall(r"\w+", expression[0])[-1:] if expression is not None else []
    spreads = any(_spreads(f"${part}") for part in name) and not shown.startswith(('"', "'"))
    why = f"`{' '.join(expression[0].split())}` is filled in before the shell runs" if expression is not None else ""
    return Word(None, shown, location, places, spreads, tail, why)


_EXPRESSION = re.compile(r"\$\{\{.*?\}\}", re.DOTALL)
_REDIRECTIONS = frozenset({"file_redirect", "herestring_redirect"})
_VARIABLE = re.compile(r"""["']?\$\{?(\w+)\}?["']?""")


def kept_template(raws: list[str], scope: Scope, world: World | None = None) -> Template | None:
    """The command line that ``$run`` stands for; every word of an unquoted variable carries the same text.

    Raises:
        ForkNeededError: a ``world`` is given that does not say how a fork went.
    """
    match = _VARIABLE.fullmatch(raws[0]) if len(set(raws)) == 1 else None
    found = scope.templates.get(match[1]) if match else None
    if found is None:
        return None
    try:
        template = resolve(found, scope.here() if world is None else world)
    except ForkNeededError:
        if world is not None:
            raise
        return None
    return template if isinstance(template, Template) and not template.is_part else None


def _tail(raw: str, scope: Scope, world: World | None) -> tuple[str, tuple[Location, ...]]:
    """The port of ``$HOST:$PORT``, when only the host is not known."""
    _, colon, end = raw.rstrip("\"'").rpartition(":")
    lookup = scope.lookup(world)
    try:
        texts = expand(end, lookup) if colon and end and not end.startswith("-") else []
    except UnknownWordError as error:
        if world is not None and isinstance(error, ForkNeededError):
            raise
        return "", ()
    return (texts[0], tuple(lookup.used)) if len(texts) == 1 else ("", ())


def _spreads(raw: str) -> bool:
    """Whether an unknown word may stand for several."""
    if re.match(r"""["']""", raw) and "@" not in raw:
        return False
    return bool(_MANY.search(raw))
