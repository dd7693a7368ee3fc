"""Simple commands of a script: what they assign, and the words and environment that they hand on."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dslint.core.fact import Fact
from dslint.core.source import Location, Span
from dslint.model.launch.command import Condition, Word
from dslint.model.shell.builtins import BUILTINS, CONTROL, NAME_OPERANDS, default_assignment, run_builtin
from dslint.model.shell.effects import assigned_names, side_effects
from dslint.model.shell.flow.choices import UNSET, Deferred, ForkNeededError, Unknown, World, leaves, resolve, tree_of
from dslint.model.shell.flow.expansion import alternatives_of
from dslint.model.shell.functions import Functions
from dslint.model.shell.pieces import UnknownWordError, Value
from dslint.model.shell.reasons import reason_of
from dslint.model.shell.scope import Scope, Template
from dslint.model.shell.words import ASSIGNMENT, NAME, expand, expand_assignment
from dslint.parse.shell import ShellDoc
from dslint.parse.shelllex import UnfinishedWordError, array_items, simple_command

if TYPE_CHECKING:
    from tree_sitter import Node

    from dslint.core.source import SourceFile
    from dslint.model.shell.flow.loops import Loop

# Finds the file that ``source PATH`` reads, given the directory that the script is in.
FindFile = Callable[[str, Scope], "SourceFile | None"]

# Unquoted names that usually hold several words, and "$@" / "${array[@]}", which always may.
_MANY = re.compile(
    r"""\$[{]?(?:[@*]|\w+\[[@*]\]|\w*(?:ARGS?|OPTS?|OPTIONS?|FLAGS?|CMD|COMMANDS?|PARAMS?|EXTRAS?|LAUNCH\w*)\w*\b)""",
    re.I,
)


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
        # Names that the arms of the test at hand give a default.
        self.loops: list[Loop] = []
        self.assumed: Collection[str] = ()

    def visit(self, node: Node, scope: Scope) -> Any:
        """Run one statement in ``scope``; its status as a tree of booleans, ``None`` when nobody knows."""
        raise NotImplementedError

    def control(self, name: str, arguments: list[str], scope: Scope) -> None:
        """``exit``, ``return``, ``break``, ``continue``."""
        raise NotImplementedError

    def test(self, text: str, start: int, scope: Scope) -> Any:
        """The result of ``test ...``, which begins at ``start``."""
        raise NotImplementedError

    def read_other(self, source: SourceFile, scope: Scope) -> None:
        """Run another file in ``scope``."""
        raise NotImplementedError

    def simple(self, node: Node, scope: Scope, redirects: list[Node] | None = None) -> Any:
        """Run the simple command that begins where ``node`` begins; its status, ``None`` when nobody knows."""
        return self._simple_at(node, self.doc.local(node).start, scope, redirects)

    def _simple_at(self, node: Node, start: int, scope: Scope, redirects: list[Node] | None) -> Any:
        if start < self.read_up_to:
            return None  # the grammar made several nodes of one command
        try:
            command = simple_command(self.doc.text, start)
        except UnfinishedWordError:
            scope.forget(assigned_names(self.doc, node))
            return None
        self.read_up_to = command.end
        raws = [(self.doc.text[w.start : w.end], w) for w in command.words]
        count = next((i for i, (raw, _) in enumerate(raws) if not ASSIGNMENT.match(raw)), len(raws))
        if count == len(raws):
            for raw, span in raws:
                self.assign(raw, span, scope)
            if self._next_line(node, command.end, scope, redirects):
                return None
            return None if any("$(" in raw or "`" in raw for raw, _ in raws) else True
        if raws[count][0] in _DECLARING:
            self._declare(raws[count:], scope)
            return None
        return self._run(node, raws[:count], raws[count:], scope, redirects or [])

    def _next_line(self, node: Node, end: int, scope: Scope, redirects: list[Node] | None) -> bool:
        """``A=1 B=2`` and the command on the next line are one command to the grammar, and two to bash."""
        rest = self.doc.text[end : self.doc.local(node).end]
        following = re.match(r"[ \t\r;]*\n(?:\s|#[^\n]*\n)*(?=[^\s#])", rest) if node.type == "command" else None
        if following is not None:
            self._simple_at(node, end + following.end(), scope, redirects)
        return following is not None

    def assign(self, raw: str, span: Span, scope: Scope, export: bool = False) -> None:
        """``name=value``, ``name+=(a b)``."""
        match = ASSIGNMENT.match(raw)
        if match is None:
            return
        name = match["name"]
        value = None if match["index"] else self._value(raw, span, match, scope)
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

    def _value(self, raw: str, span: Span, match: re.Match[str], scope: Scope) -> Any:
        """What ``name=value`` assigns: where it depends on forks, a choice, or a value for later."""
        states: list[Scope] = []
        is_array = any(isinstance(v, Value) and v.items is not None for v in leaves(scope.values.get(match["name"])))

        def compute(world: World) -> Value | Unknown:
            # A value for later is worked out in the state of the assignment.
            state = states[0] if states else scope
            lookup = state.lookup(world)
            begin = match.end()
            try:
                if raw.startswith("(", begin):
                    spans = array_items(self.doc.text, span.start + begin + 1, span.end - 1)
                    value = self._array(spans, span, state, world)
                else:
                    text = expand_assignment(raw[begin:], lookup)
                    places = (self.location(span), *lookup.used)
                    value = Value(text, None, places, is_default=lookup.has_default)
            except UnfinishedWordError:
                raise UnknownWordError from None
            except UnknownWordError as error:
                error.why = error.why or reason_of(raw[begin:])
                name = _INPUT.fullmatch(raw[begin:])
                if name is None or match["append"] or isinstance(error, ForkNeededError):
                    raise
                return Unknown(error.why, is_input=not state.open and state.held(name[1], world) is UNSET)
            if match["append"]:
                return _appended(state.held(match["name"], world), value)
            if is_array and value.items is None:
                # ``L=x`` sets the first element.
                old = state.held(match["name"], world)
                items = (old.items or ("",))[1:] if isinstance(old, Value) else ()
                return replace(value, items=(value.text, *items), places=()) if items else value
            return value

        tree = tree_of(compute, scope.here())
        if tree is None:
            states.append(scope.copy())
            return Deferred(compute)
        return tree

    def _array(self, spans: list[Span], whole: Span, scope: Scope, world: World) -> Value:
        items: list[str] = []
        places: list[Location] = []
        used: list[Location] = []
        for span in spans:
            raw = self.doc.text[span.start : span.end]
            lookup = scope.lookup(world)
            if raw.startswith("["):
                raise UnknownWordError
            texts = expand(raw, lookup)
            items += texts
            copied = len(lookup.places) == len(texts)
            places += lookup.places if copied else [self.location(span)] * len(texts)
            used += [] if copied else lookup.used
        return Value(items[0] if items else "", tuple(items), (self.location(whole), *used), tuple(places))

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
    ) -> Any:
        raw = self.doc.text[raws[0][1].start : raws[-1][1].end]
        if self.wanted(raw):
            self._emit(node, prefix, raws, scope)
        name = raws[0][0]
        status = None
        if name in self.functions:
            self._call(name, prefix, raws[1:], scope)
        elif name in BUILTINS or name in NAME_OPERANDS:
            run_builtin(self, name, raws[1:], raw, scope, redirects)
        elif name == "test":
            status = self.test(raw, raws[0][1].start, scope)
        elif name in CONTROL:
            self.control(name, [text for text, _ in raws[1:]], scope)
        elif name in ("true", "false", ":"):
            status = name != "false"
        for text, _ in prefix:
            scope.forget(side_effects(text))
        default_assignment(name, self.location(raws[0][1]), raw, scope)
        return status

    def _call(self, name: str, prefix: list[tuple[str, Span]], raws: list[tuple[str, Span]], scope: Scope) -> None:
        if not prefix:
            self.functions.call(name, self, raws, scope)
            return
        inner = scope.copy()
        for raw, span in prefix:
            self.assign(raw, span, inner, export=True)
        self.functions.call(name, self, raws, inner)
        scope.forget(self.functions.names(name))
        scope.ended = inner.ended

    def _emit(self, node: Node, prefix: list[tuple[str, Span]], raws: list[tuple[str, Span]], scope: Scope) -> None:
        inner = scope.copy()
        for raw, span in prefix:
            self.assign(raw, span, inner, export=True)
        for world, words in alternatives_of(self, raws, scope, inner):
            state = inner.at(world)
            self.found.append(Invocation(node, tuple(words), state.environment(), state, world.conditions()))

    def words(self, raw: str, span: Span, scope: Scope, world: World | None = None) -> list[Word]:
        """The words that one word of the text becomes, each with the places it comes from.

        Raises:
            ForkNeededError: a ``world`` is given that does not say how a fork went.
        """
        location = self.location(span)
        lookup = scope.lookup(world)
        try:
            texts = expand(raw, lookup)
        except UnknownWordError as error:
            if world is not None and isinstance(error, ForkNeededError):
                raise
            tail, places = _tail(raw, scope, world)
            return [Word(None, raw, location, places, _spreads(raw), tail, error.why or reason_of(raw))]
        if len(lookup.places) == len(texts):
            return [Word(text, raw, location, (place,)) for text, place in zip(texts, lookup.places, strict=True)]
        origins = tuple(lookup.used)
        return [Word(text, raw, location, origins) for text in texts]


def _mention(command: str, name: str, export: bool, scope: Scope) -> None:
    """``export NAME``, ``local NAME``, ``unset NAME``."""
    if command == "unset":
        scope.remove(name)
    elif export:
        scope.exports[name] = True
        if name not in scope.values:
            scope.forget({name}, f"`${name}` is set by who starts the script")
    elif command == "local":
        scope.values.pop(name, None)


_DECLARING = frozenset({"export", "declare", "typeset", "local", "readonly", "unset"})
# A value that the caller hands over as it is.
_INPUT = re.compile(r"""["']?\$\{?(\w+)(?::?-)?\}?["']?""")
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
    return template if isinstance(template, Template) else None


def _appended(old: Any, new: Value) -> Value:
    if not isinstance(old, Value):
        raise UnknownWordError(getattr(old, "why", ""))
    origins = (*old.origins, *(o for o in new.origins if o not in old.origins))
    if new.items is not None and old.items is not None:
        items = old.items + new.items
        return Value(items[0] if items else "", items, origins, old.places + new.places)
    if new.items is None and old.items is None:
        return Value(old.text + new.text, None, origins, is_default=old.is_default or new.is_default)
    raise UnknownWordError


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
