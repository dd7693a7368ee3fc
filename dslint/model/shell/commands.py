"""Simple commands of a script: what they assign, and the words and environment that they hand on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.fact import Fact, known, unknown
from dslint.core.source import Location, Span
from dslint.model.launch.command import Word
from dslint.model.shell.effects import OPENERS, SETTERS, assigned_names, command_names, side_effects, text_names
from dslint.model.shell.folder import changed_directory
from dslint.model.shell.scope import Scope, Template
from dslint.model.shell.words import ASSIGNMENT, NAME, UnknownWordError, Value, expand, expand_assignment, expand_quoted
from dslint.parse.shell import ShellDoc
from dslint.parse.shelllex import UnfinishedWordError, array_items, simple_command

if TYPE_CHECKING:
    from tree_sitter import Node

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


class CommandReader:
    """Runs simple commands in a scope. The syntax tree says where one begins, the lexer which words it has."""

    def __init__(self, doc: ShellDoc, wanted: Callable[[str], bool]) -> None:
        self.doc = doc
        self.wanted = wanted
        self.found: list[Invocation] = []
        # Names that functions of this file set: any call of one may change them.
        self.functions: dict[str, set[str] | None] = {}
        self.read_up_to = 0
        self.depth = 0
        # Names that are set behind a function, by the identity of its node.
        self.assigned: dict[int, set[str] | None] = {}

    def simple(self, node: Node, scope: Scope, redirects: list[Node] | None = None) -> None:
        """Run the simple command that begins where ``node`` begins."""
        start = self.doc.local(node).start
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
                self._assign(raw, span, scope)
        elif raws[count][0] in _DECLARING:
            self._declare(raws[count:], scope)
        else:
            self._run(node, raws[:count], raws[count:], scope, redirects or [])

    def _assign(self, raw: str, span: Span, scope: Scope, export: bool = False) -> None:
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
                texts = [self.doc.text[s.start : s.end] for s in spans]
                if any(t.startswith("[") for t in texts):
                    return None
                items = tuple(w for t in texts for w in expand(t, lookup))
                return Value("", items, (self._location(span), *lookup.used))
            text = expand_assignment(raw[begin:], lookup)
        except (UnknownWordError, UnfinishedWordError):
            return None
        return Value(text, None, (self._location(span), *lookup.used))

    def _location(self, span: Span) -> Location:
        place = self.doc.anchor or span.shifted(self.doc.base)
        return self.doc.source.location(place)

    def _declare(self, raws: list[tuple[str, Span]], scope: Scope) -> None:
        """``export``, ``declare``, ``local``, ``readonly``, ``unset``."""
        (command, _), *arguments = raws
        flags = [raw for raw, _ in arguments if raw.startswith(("-", "+"))]
        export = command == "export" or any("x" in f for f in flags)
        for raw, span in arguments:
            match = ASSIGNMENT.match(raw) or NAME.fullmatch(raw)
            if raw in flags:
                continue
            if match is None:
                scope.forget(None)  # ``export $(cat .env)``
                continue
            name = match[1] if match.re is ASSIGNMENT else raw
            if command == "unset":
                scope.remove(name)
            elif match.re is ASSIGNMENT:
                self._assign(raw, span, scope, export)
            elif export:
                scope.exported.add(name)
                if name not in scope.values:  # the caller sets it
                    scope.forget({name})
            if command == "local" or any(not re.fullmatch(r"-[xrga]+", f) for f in flags):
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
        if name in self.functions or name in OPENERS or name in SETTERS or name in _STATE:
            self._builtin(name, [r for r, _ in raws[1:]], raw, scope, redirects)
        for text, _ in prefix:
            scope.forget(side_effects(text))
        self._default_assignment(name, raws[0][1], raw, scope)

    def _emit(self, node: Node, prefix: list[tuple[str, Span]], raws: list[tuple[str, Span]], scope: Scope) -> None:
        inner = scope.copy()
        env = scope.environment()
        for raw, span in prefix:
            self._assign(raw, span, inner, export=True)
            name = raw.partition("=")[0].rstrip("+")
            value = inner.values.get(name)
            env[name] = known(value.text, *value.origins) if value else unknown(f"`{name}` is computed")
        words = [word for raw, span in raws for word in self._words(raw, span, scope)]
        self.found.append(Invocation(node, tuple(words), env, inner))

    def _words(self, raw: str, span: Span, scope: Scope) -> list[Word]:
        location = self._location(span)
        lookup = scope.lookup()
        try:
            texts = expand(raw, lookup)
        except UnknownWordError:
            return [Word(None, raw, location, spreads=_spreads(raw))]
        origins = tuple(lookup.used)
        return [Word(text, raw, location, origins) for text in texts]

    def _default_assignment(self, name: str, span: Span, raw: str, scope: Scope) -> None:
        """``: ${X:=4}`` gives X a value unless it has one."""
        names = side_effects(raw)
        match = _DEFAULT.fullmatch(raw) if name == ":" else None
        if match is None or scope.open:
            scope.forget(names)
        elif match[2] not in scope.values:
            scope.assign(match[2], Value(match[3], None, (self._location(span),)))
        elif (old := scope.values[match[2]]) is None or not old.text:
            scope.forget(names)

    def _builtin(self, name: str, arguments: list[str], raw: str, scope: Scope, redirects: list[Node]) -> None:
        if name in self.functions:
            scope.forget(set() if self.functions[name] == set() else _union(self.functions))
        elif name == "cd":
            scope.cwd = changed_directory(arguments, self.doc.source.path, scope)
        elif name == "set":
            self._set(arguments, scope)
        elif name == "eval" and (kept := kept_template([w.strip('"') for w in arguments], scope)) is not None:
            scope.forget(text_names(kept.text))
        elif name == "read" and (body := self._read_heredoc(arguments, scope, redirects)) is not None:
            scope.assign(arguments[-1], body)
        else:
            scope.forget(command_names(raw))

    def _set(self, arguments: list[str], scope: Scope) -> None:
        flags = " ".join(arguments).partition("--")[0]
        if re.search(r"(^|\s)-\w*a|allexport", flags):
            scope.export_all = "+o" not in flags
        elif re.search(r"(^|\s)\+\w*a", flags):
            scope.export_all = False

    def _read_heredoc(self, arguments: list[str], scope: Scope, redirects: list[Node]) -> Value | None:
        """``read -r -d '' NAME <<EOF``: the way scripts keep a long command in a variable."""
        flags = "".join(arguments[:-1]).replace('"', "").replace("'", "")
        if flags not in ("-r-d", "-d-r", "-rd") or len(redirects) != 1 or "IFS" in scope.values:
            return None
        parts = {c.type: c for c in redirects[0].children}
        if "heredoc_body" not in parts or "<<" not in parts or len(parts) != 4:
            return None
        body = self.doc.raw(parts["heredoc_body"])
        lookup = scope.lookup()
        if not re.search(r"[\"'\\]", self.doc.raw(parts["heredoc_start"])):
            try:
                body = expand_quoted(body, lookup)
            except UnknownWordError:
                return None
        elif "\\" in body:
            return None
        return Value(body.strip(" \t\n"), None, (self.doc.location(redirects[0]), *lookup.used))


_VARIABLE = re.compile(r"""["']?\$\{?(\w+)\}?["']?""")
_DECLARING = frozenset({"export", "declare", "typeset", "local", "readonly", "unset"})
_DEFAULT = re.compile(r""":\s+(["']?)\$\{(\w+):?=([^}"'$`\\]*)\}\1""")
_STATE = frozenset({"cd", "set", "command", "builtin", "pushd", "popd"})


def kept_template(raws: list[str], scope: Scope) -> Template | None:
    """The command line that ``$run`` stands for; every word of an unquoted variable carries the same text."""
    match = _VARIABLE.fullmatch(raws[0]) if len(set(raws)) == 1 else None
    return scope.templates.get(match[1]) if match else None


def _appended(old: Value | None, new: Value) -> Value | None:
    if old is None:
        return None
    origins = (*old.origins, *(o for o in new.origins if o not in old.origins))
    if new.items is not None and old.items is not None:
        return Value("", old.items + new.items, origins)
    if new.items is None and old.items is None:
        return Value(old.text + new.text, None, origins)
    return None


def _union(functions: dict[str, set[str] | None]) -> set[str] | None:
    names: set[str] = set()
    for assigned in functions.values():
        if assigned is None:
            return None
        names |= assigned
    return names


def _spreads(raw: str) -> bool:
    """Whether an unknown word may stand for several."""
    if re.match(r"""["']""", raw) and "@" not in raw:
        return False
    return bool(_MANY.search(raw))
