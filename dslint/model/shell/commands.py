"""Simple commands of a script: what they assign, and the words and environment that they hand on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import Location, Span
from dslint.model.launch.command import Word
from dslint.model.shell.builtins import BUILTINS, NAME_OPERANDS, default_assignment, run_builtin
from dslint.model.shell.effects import assigned_names, side_effects
from dslint.model.shell.functions import Functions
from dslint.model.shell.pieces import UnknownWordError, Value
from dslint.model.shell.scope import Scope, Template
from dslint.model.shell.words import ASSIGNMENT, NAME, expand, expand_assignment
from dslint.parse.shell import ShellDoc
from dslint.parse.shelllex import UnfinishedWordError, array_items, simple_command

if TYPE_CHECKING:
    from tree_sitter import Node

    from dslint.core.source import SourceFile

# Finds the file that ``source PATH`` reads, given the directory that the script is in.
FindFile = Callable[[str, Scope], "SourceFile | None"]

# Unquoted names that usually hold several words, and "$@" / "${array[@]}", which always may.
_MANY = re.compile(
    r"""\$[{]?(?:[@*]|\w+\[[@*]\]|\w*(?:ARGS?|OPTS?|OPTIONS?|FLAGS?|CMD|COMMANDS?|PARAMS?|EXTRAS?|LAUNCH\w*)\w*\b)""",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Invocation:
    """A simple command: its words after expansion, its prefix assignments, and the state it is started in."""

    node: Node
    words: tuple[Word, ...]
    env: dict[str, Fact[str]]
    scope: Scope


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


class CommandReader:
    """Runs simple commands in a scope. The syntax tree says where one begins, the lexer which words it has."""

    def __init__(
        self,
        doc: ShellDoc,
        wanted: Callable[[str], bool],
        find_file: FindFile | None = None,
        functions: Functions | None = None,
    ) -> None:
        self.doc = doc
        self.wanted = wanted
        self.find_file = find_file
        self.found: list[Invocation] = []
        self.heredocs: list[Heredoc] = []
        self.functions = functions or Functions()
        self.read_up_to = 0
        self.depth = 0

    def visit(self, node: Node, scope: Scope) -> None:
        """Run one statement in ``scope``."""
        raise NotImplementedError

    def read_other(self, source: SourceFile, scope: Scope) -> None:
        """Run another file in ``scope``."""
        raise NotImplementedError

    def simple(self, node: Node, scope: Scope, redirects: list[Node] | None = None) -> None:
        """Run the simple command that begins where ``node`` begins."""
        self._simple_at(node, self.doc.local(node).start, scope, redirects)

    def _simple_at(self, node: Node, start: int, scope: Scope, redirects: list[Node] | None) -> None:
        if start < self.read_up_to:
            return  # the grammar made several nodes of one command
        try:
            command = simple_command(self.doc.text, start)
        except UnfinishedWordError:
            scope.forget(assigned_names(self.doc, node))
            return
        self.read_up_to = command.end
        raws = [(self.doc.text[w.start : w.end], w) for w in command.words]
        count = next((i for i, (raw, _) in enumerate(raws) if not ASSIGNMENT.match(raw)), len(raws))
        if count == len(raws):
            for raw, span in raws:
                self.assign(raw, span, scope)
            self._next_line(node, command.end, scope, redirects)
        elif raws[count][0] in _DECLARING:
            self._declare(raws[count:], scope)
        else:
            self._run(node, raws[:count], raws[count:], scope, redirects or [])

    def _next_line(self, node: Node, end: int, scope: Scope, redirects: list[Node] | None) -> None:
        """``A=1 B=2`` and the command on the next line are one command to the grammar, and two to bash."""
        rest = self.doc.text[end : self.doc.local(node).end]
        following = re.match(r"[ \t\r;]*\n(?:\s|#[^\n]*\n)*(?=[^\s#])", rest) if node.type == "command" else None
        if following is not None:
            self._simple_at(node, end + following.end(), scope, redirects)

    def assign(self, raw: str, span: Span, scope: Scope, export: bool = False) -> None:
        """``name=value``, ``name+=(a b)``."""
        match = ASSIGNMENT.match(raw)
        if match is None:
            return
        name = match["name"]
        value = None if match["index"] else self._value(raw, span, match.end(), scope)
        if value is not None and match["append"]:
            value = _appended(scope.values.get(name), value)
        scope.forget(side_effects(raw))
        scope.assign(name, value, export)
        if not match["append"] and self.wanted(raw):
            self._keep_template(name, raw, span, scope)

    def _keep_template(self, name: str, raw: str, span: Span, scope: Scope) -> None:
        """``run="torchrun ..."``: a later ``eval $run`` reads the text as it stands here."""
        # Quotes in the middle (``"... --schedule "LE" ..."``) make no difference to the text that eval reads.
        match = re.fullmatch(r"\w+=(?:\"([^`]*)\"|'([^']*)')", raw, re.DOTALL)
        if match is None or self.doc.anchor is not None or re.search(r"\\[^\n]", match[1] or ""):
            return
        start = span.start + match.start(1 if match[1] is not None else 2)
        scope.templates[name] = Template(match[1] or match[2] or "", start + self.doc.base, scope.copy())

    def _value(self, raw: str, span: Span, begin: int, scope: Scope) -> Value | None:
        lookup = scope.lookup()
        try:
            if raw.startswith("(", begin):
                spans = array_items(self.doc.text, span.start + begin + 1, span.end - 1)
                return self._array(spans, span, scope)
            text = expand_assignment(raw[begin:], lookup)
        except (UnknownWordError, UnfinishedWordError):
            return None
        return Value(text, None, (self.location(span), *lookup.used))

    def _array(self, spans: list[Span], whole: Span, scope: Scope) -> Value | None:
        items: list[str] = []
        places: list[Location] = []
        used: list[Location] = []
        for span in spans:
            raw = self.doc.text[span.start : span.end]
            lookup = scope.lookup()
            if raw.startswith("["):
                return None
            texts = expand(raw, lookup)
            items += texts
            copied = len(lookup.places) == len(texts)
            places += lookup.places if copied else [self.location(span)] * len(texts)
            used += [] if copied else lookup.used
        return Value("", tuple(items), (self.location(whole), *used), tuple(places))

    def location(self, span: Span) -> Location:
        """The place of a range of the text in the host file."""
        place = self.doc.anchor or span.shifted(self.doc.base)
        return self.doc.source.location(place)

    def _declare(self, raws: list[tuple[str, Span]], scope: Scope) -> None:
        """``export``, ``declare``, ``local``, ``readonly``, ``unset``."""
        (command, _), *arguments = raws
        flags = [raw for raw, _ in arguments if raw.startswith(("-", "+"))]
        if command == "local" and not self.functions.is_inside:
            return  # an error in bash
        export = command == "export" or any("x" in f for f in flags)
        for raw, span in arguments:
            if raw in flags:
                continue
            match = ASSIGNMENT.match(raw) or NAME.fullmatch(raw)
            if match is None:
                scope.forget(None)  # ``export $(cat .env)``
                continue
            name = match[1] if match.re is ASSIGNMENT else raw
            if command in ("local", "declare", "typeset"):
                self.functions.keep(name, scope)
            if match.re is ASSIGNMENT and command != "unset":
                self.assign(raw, span, scope, export)
            else:
                _mention(command, name, export, scope)
            if any(not re.fullmatch(r"-[xrga]+", f) for f in flags):
                scope.forget({name})

    def _run(
        self,
        node: Node,
        prefix: list[tuple[str, Span]],
        raws: list[tuple[str, Span]],
        scope: Scope,
        redirects: list[Node],
    ) -> None:
        raw = self.doc.text[raws[0][1].start : raws[-1][1].end]
        if self.wanted(raw):
            self._emit(node, prefix, raws, scope)
        name = raws[0][0]
        if name in self.functions:
            self._call(name, prefix, raws[1:], scope)
        elif name in BUILTINS or name in NAME_OPERANDS:
            run_builtin(self, name, raws[1:], raw, scope, redirects)
        for text, _ in prefix:
            scope.forget(side_effects(text))
        default_assignment(name, self.location(raws[0][1]), raw, scope)

    def _call(self, name: str, prefix: list[tuple[str, Span]], raws: list[tuple[str, Span]], scope: Scope) -> None:
        words = [word for raw, span in raws for word in self.words(raw, span, scope)]
        if not prefix:
            self.functions.call(name, words, scope)
            return
        inner = scope.copy()
        for raw, span in prefix:
            self.assign(raw, span, inner, export=True)
        self.functions.call(name, words, inner)
        scope.forget(self.functions.names(name))

    def _emit(self, node: Node, prefix: list[tuple[str, Span]], raws: list[tuple[str, Span]], scope: Scope) -> None:
        inner = scope.copy()
        env = scope.environment()
        for raw, span in prefix:
            self.assign(raw, span, inner, export=True)
            name = raw.partition("=")[0].rstrip("+")
            value = inner.values.get(name)
            env[name] = known(value.text, *value.origins) if value else unknown(f"`{name}` is computed")
        words = [word for raw, span in raws for word in self.words(raw, span, scope)]
        self.found.append(Invocation(node, tuple(words), env, inner))

    def words(self, raw: str, span: Span, scope: Scope) -> list[Word]:
        """The words that one word of the text becomes, each with the places it comes from."""
        location = self.location(span)
        lookup = scope.lookup()
        try:
            texts = expand(raw, lookup)
        except UnknownWordError:
            tail, places = _tail(raw, scope)
            return [Word(None, raw, location, places, _spreads(raw), tail)]
        if len(lookup.places) == len(texts):
            return [Word(text, raw, location, (place,)) for text, place in zip(texts, lookup.places, strict=True)]
        origins = tuple(lookup.used)
        return [Word(text, raw, location, origins) for text in texts]


def _mention(command: str, name: str, export: bool, scope: Scope) -> None:
    """``export NAME``, ``local NAME``, ``unset NAME``."""
    if command == "unset":
        scope.remove(name)
    elif export:
        scope.exported.add(name)
        if name not in scope.values:  # the caller sets it
            scope.forget({name})
    elif command == "local":
        scope.values.pop(name, None)


_DECLARING = frozenset({"export", "declare", "typeset", "local", "readonly", "unset"})
_VARIABLE = re.compile(r"""["']?\$\{?(\w+)\}?["']?""")


def kept_template(raws: list[str], scope: Scope) -> Template | None:
    """The command line that ``$run`` stands for; every word of an unquoted variable carries the same text."""
    match = _VARIABLE.fullmatch(raws[0]) if len(set(raws)) == 1 else None
    return scope.templates.get(match[1]) if match else None


def _appended(old: Value | None, new: Value) -> Value | None:
    if old is None:
        return None
    origins = (*old.origins, *(o for o in new.origins if o not in old.origins))
    if new.items is not None and old.items is not None:
        return Value("", old.items + new.items, origins, old.places + new.places)
    if new.items is None and old.items is None:
        return Value(old.text + new.text, None, origins)
    return None


def _tail(raw: str, scope: Scope) -> tuple[str, tuple[Location, ...]]:
    """The port of ``$HOST:$PORT``, when only the host is not known."""
    _, colon, end = raw.rstrip("\"'").rpartition(":")
    lookup = scope.lookup()
    try:
        texts = expand(end, lookup) if colon and end and not end.startswith("-") else []
    except UnknownWordError:
        return "", ()
    return (texts[0], tuple(lookup.used)) if len(texts) == 1 else ("", ())


def _spreads(raw: str) -> bool:
    """Whether an unknown word may stand for several."""
    if re.match(r"""["']""", raw) and "@" not in raw:
        return False
    return bool(_MANY.search(raw))
