"""``for``, ``while`` and ``until``: turns that are known are run, of all others one is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dslint.core.source import Span
from dslint.model.shell.effects import assigned_names, side_effects
from dslint.model.shell.flow.branches import BranchReader
from dslint.model.shell.flow.choices import Choice, Fork, World, two_arms
from dslint.model.shell.flow.conditions import number, truth
from dslint.model.shell.flow.trees import preferred, tree_of
from dslint.model.shell.functions import gather
from dslint.model.shell.pieces import UnknownWordError, Value
from dslint.model.shell.scope import Scope
from dslint.parse.shelllex import UnfinishedWordError, simple_command

if TYPE_CHECKING:
    from tree_sitter import Node

    from dslint.model.launch.command import Word

_MAX_TURNS = 16
_MAX_ALL_TURNS = 64
# A loop that reads the arguments of the script: nobody knows them, and the values above it are the defaults.
_ARGUMENTS = re.compile(r"\$\{?(?:#(?!\w)|1\b|@|\*|#@)|\bgetopts\b")
_FOREVER = frozenset({"true", ":", "[ 1 ]", "[[ 1 ]]", "((1))", "(( 1 ))", "[ true ]"})
_STEP = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*(?:(?P<post>\+\+|--)|(?P<op>[-+*/%]?)=(?!=)(?P<value>[^=].*))"
    r"|(?P<pre>\+\+|--)(?P<other>[A-Za-z_]\w*))\s*",
    re.DOTALL,
)


@dataclass(slots=True)
class Loop:
    """An open loop: the states in which it was left, and those in which a turn was cut short."""

    breaks: list[Scope] = field(default_factory=list)
    continues: list[Scope] = field(default_factory=list)


class LoopReader(BranchReader):
    """Statements that run a part of the script several times."""

    def _for_statement(self, node: Node, scope: Scope) -> Any:
        body = node.child_by_field_name("body")
        name = next((self.doc.raw(c) for c in node.children if c.type == "variable_name"), "")
        if body is None or not name:
            self._some_turns(node, node.children, scope)
            return None
        words = self._items(node, body, scope)
        if node.children[0].type == "select" or words is None or len(words) > _MAX_TURNS:
            raw = self.doc.raw(node).partition("\n")[0]
            if words is None and _ARGUMENTS.search(raw.partition(";")[0]) and scope.values.get("@") is None:
                self._discarded(node, body, scope)
                return None
            if words:
                self._turn_with(name, words[0], body, scope.copy())
            self._some_turns(node, [body], scope, is_read=words is not None)
            return None
        self._turns(node, body, scope, ((lambda state, w=w: _give(name, w, state)) for w in words))
        return None

    def _items(self, node: Node, body: Node, scope: Scope) -> list[Word] | None:
        """The words that the loop goes over, ``None`` when one of them is not known."""
        start = next((c.end_byte for c in node.children if c.type == "in"), None)
        if start is None:
            raws: list[tuple[str, Span]] = [('"$@"', self.doc.local(node))]
        else:
            at = next(c for c in node.children if c.type == "in")
            begin = self.doc.local(at).end
            try:
                command = simple_command(self.doc.text, begin)
            except UnfinishedWordError:
                return None
            end = self.doc.local(body).start
            raws = [(self.doc.text[w.start : w.end], w) for w in command.words if w.start < end]

        def compute(world: World) -> tuple[Word, ...]:
            return tuple(word for raw, span in raws for word in self.words(raw, span, scope, world))

        words = tree_of(compute, scope.here())
        if not isinstance(words, tuple) or any(w.text is None for w in words):
            return None
        return list(words)

    def _turn_with(self, name: str, word: Word, body: Node, scope: Scope) -> None:
        _give(name, word, scope)
        self._body([body], scope, Loop())

    def _turns(self, node: Node, body: Node, scope: Scope, turns: Iterator[Any]) -> None:
        """Run the body once for each step; a step changes the state and may say that the loop ends."""
        loop, guards = Loop(), len(scope.guards)
        for step in turns:
            going = step(scope)
            if going is False:
                break
            if going is None or self._is_exhausted(scope):
                self._some_turns(node, [body], scope)
                break
            self._body([body], scope, loop)
            if scope.ended:
                break
        gather(scope, loop.breaks, guards)

    def _is_exhausted(self, scope: Scope) -> bool:
        scope.flow.turns += 1
        return scope.flow.turns > _MAX_ALL_TURNS

    def _body(self, nodes: Sequence[Node], scope: Scope, loop: Loop) -> None:
        """One turn."""
        self.loops.append(loop)
        guards, loop.continues = len(scope.guards), []
        position, self.read_up_to = self.read_up_to, 0
        self.sequence(nodes, scope)
        self.read_up_to = max(position, self.read_up_to)
        self.loops.pop()
        gather(scope, loop.continues, guards)

    def _while_statement(self, node: Node, scope: Scope) -> Any:
        body = node.child_by_field_name("body")
        at = next((i for i, c in enumerate(node.children) if c.type == "do_group"), None)
        if body is None or at is None:
            self._some_turns(node, node.children, scope)
            return None
        tests = node.children[1:at]
        raw = "".join(self.doc.raw(c) for c in tests if c.is_named).strip()
        until = node.children[0].type == "until"
        if _ARGUMENTS.search(raw) and not isinstance(scope.values.get("@"), (Value, Choice)):
            self._discarded(node, body, scope)
            return None
        if raw in _FOREVER:
            self._some_turns(node, [body], scope)
            return None

        def step(state: Scope) -> bool | None:
            before = state.copy()
            found, heredocs = len(self.found), len(self.heredocs)
            status = preferred(self.sequence(tests, state))
            if isinstance(status, bool):
                return status is not until
            # The test is read again with all names that the loop sets unknown.
            del self.found[found:], self.heredocs[heredocs:]
            state.become(before)
            return None

        loop, guards, position = Loop(), len(scope.guards), self.read_up_to
        for _ in range(_MAX_TURNS):
            self.read_up_to = 0
            going = step(scope)
            if going is False:
                break
            if going is None or self._is_exhausted(scope):
                self.read_up_to = 0
                self._some_turns(node, node.children, scope)
                break
            self._body([body], scope, loop)
            if scope.ended:
                break
        else:
            self.read_up_to = 0
            self._some_turns(node, node.children, scope)
        self.read_up_to = max(position, self.read_up_to)
        gather(scope, loop.breaks, guards)
        return None

    def _c_style_for_statement(self, node: Node, scope: Scope) -> Any:
        body = node.child_by_field_name("body")
        raw = self.doc.raw(node)
        head = raw[raw.find("((") + 2 : raw.find("))")].split(";")
        if body is None or len(head) != 3 or not self.calculate(head[0], scope):
            self._some_turns(node, node.children, scope)
            return None

        def steps() -> Iterator[Any]:
            def first(state: Scope) -> bool | None:
                return self._holds(head[1], state)

            def later(state: Scope) -> bool | None:
                return self._holds(head[1], state) if self.calculate(head[2], state) else None

            yield first
            for _ in range(_MAX_TURNS):
                yield later
            yield lambda _: None

        self._turns(node, body, scope, steps())
        return None

    def _holds(self, text: str, scope: Scope) -> bool | None:
        try:
            return truth(text, lambda name: scope.lookup().read(name).text)
        except (UnknownWordError, RecursionError):
            return None

    def calculate(self, text: str, scope: Scope) -> bool:
        """Run ``i = 0``, ``i++`` or ``i += 2``; ``False`` when it is something else or its value is not known."""
        match = _STEP.fullmatch(text)
        if match is None:
            return False
        name = match["name"] or match["other"]
        sign = match["op"] or (match["post"] or match["pre"] or "")[:1]
        value = match["value"] if match["value"] is not None else "1"
        expression = f"{name} {sign} ({value})" if sign else value
        if side_effects(f"(({value}))"):
            return False
        lookup = scope.lookup()
        try:
            result = number(expression, lambda n: lookup.read(n).text)
        except (UnknownWordError, RecursionError):
            return False
        scope.assign(name, Value(str(result), None, tuple(lookup.used), is_default=lookup.has_default))
        return True

    def _discarded(self, node: Node, body: Node, scope: Scope) -> None:
        """A loop over arguments that nobody knows: its commands are read, what it sets stays at its default."""
        inner = scope.under(self._maybe(node), True)
        inner.forget(assigned_names(self.doc, node), "an argument of the script may set it")
        loops, self.loops = self.loops, []
        with self.functions.apart():
            self._body([body], inner, Loop())
        self.loops = loops

    def _some_turns(self, node: Node, nodes: Sequence[Node], scope: Scope, is_read: bool = False) -> None:
        """Nobody knows how often the body runs: what it sets is not known, from the first turn on."""
        scope.forget(self._changed(node), "set in a loop")
        if is_read:
            return
        guards = len(scope.guards)
        inner, loop = scope.under(self._maybe(node), True), Loop()
        self._body(nodes, inner, loop)
        for end in [inner, *loop.breaks]:
            scope.merge(end)
        scope.guards = scope.guards[:guards]

    def _maybe(self, node: Node) -> Choice:
        head = " ".join(self.doc.raw(node).partition("\n")[0].split())[:60]
        return Choice(Fork(two_arms(self.doc.location(node), head)), (True, False))

    def _changed(self, node: Node) -> Set[str] | None:
        """Names that the loop sets, by itself or through functions that it calls."""
        names = assigned_names(self.doc, node)
        stack = [node]
        while stack and names is not None and self.functions.found:
            inner = stack.pop()
            if inner.type == "command_name" and self.doc.raw(inner) in self.functions:
                more = self.functions.names(self.doc.raw(inner))
                names = None if more is None else names | more
            stack += inner.named_children
        return names

    def control(self, name: str, arguments: list[str], scope: Scope) -> None:
        """``exit``, ``return``, ``break``, ``continue``, ``exec``."""
        if name in ("break", "continue"):
            depth = int(arguments[0]) if arguments and arguments[0].isdigit() else 1
            if self.loops and depth > 0:
                loop = self.loops[max(len(self.loops) - depth, 0)]
                (loop.breaks if name == "break" else loop.continues).append(scope.copy())
                scope.ended = True
        elif name == "return":
            self.functions.leave(scope)
        elif (name == "exit" or arguments) and not scope.flow.in_docs:
            scope.ended = True


def _give(name: str, word: Word, scope: Scope) -> bool:
    places = (*word.origins, word.location) if word.origins else (word.location,)
    scope.assign(name, Value(word.text or "", None, places))
    return True
