"""``if``, ``case``, ``&&`` and ``||``: the arms that run, and what they leave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dslint.model.launch.command import Condition
from dslint.model.shell.commands import CommandReader
from dslint.model.shell.effects import assigned_names, side_effects
from dslint.model.shell.flow.choices import (
    MAX_WORLDS,
    Arm,
    Choice,
    Fork,
    ForkNeededError,
    Rule,
    Unknown,
    World,
    two_arms,
)
from dslint.model.shell.flow.conditions import EMPTY_DEFAULT, NAMES, Test
from dslint.model.shell.flow.patterns import is_literal, matches
from dslint.model.shell.flow.trees import chosen, leaves, mapped, overridden, paths, preferred, tree_of
from dslint.model.shell.pieces import UnknownWordError
from dslint.model.shell.scope import Scope
from dslint.model.shell.words import expand_assignment

if TYPE_CHECKING:
    from tree_sitter import Node

# A clause of ``if`` nests in the one before.
_MAX_CLAUSES = 40
# Longer lists are read without the connection between their parts.
_MAX_OPERANDS = 12
_Run = Callable[[Scope], Any]


def _narrowed(test: Any, alive: Sequence[tuple[Any, Scope]], before: Mapping[Fork, int]) -> tuple[dict[Fork, int], ...]:
    """The ways that come out of the arms, where one of them lets only some of its own ways out.

    ``if A; then if B; then exit; fi; fi``: not A, or A and not B. Empty where every arm lets all ways out.
    """
    ways, is_narrow = [], False
    for result, inner in alive:
        learnt = {fork: number for fork, number in inner.world.items() if before.get(fork) != number}
        for way in paths(test, result):
            if all(learnt.get(fork, number) == number for fork, number in way.items()):
                is_narrow |= not learnt.keys() <= way.keys()
                ways.append({**way, **learnt})
    return tuple(ways) if is_narrow and len(alive) > 1 else ()


class BranchReader(CommandReader):
    """Statements that run one part of the script or another."""

    def sequence(self, nodes: Sequence[Node], scope: Scope) -> Any:
        """Run statements one after the other; the status of the last."""
        raise NotImplementedError

    def test(self, text: str, start: int, scope: Scope) -> Any:
        """The result of ``test ...``, which begins at ``start``."""
        return self._tested(text, start, scope, ())

    def _tested(self, text: str, start: int, scope: Scope, assumed: Collection[str]) -> Any:
        place = self.doc.source_span(start, start + len(text))
        tree = Test(text, self.doc.source.location(place), scope, assumed).tree()
        scope.forget(side_effects(text))
        return tree

    def condition(self, nodes: Sequence[Node], scope: Scope, assumed: Collection[str]) -> Any:
        """Run the statements that decide, and what they decide."""
        before, self.assumed = self.assumed, assumed
        status = self.sequence(nodes, scope)
        self.assumed = before
        if status is not None or not nodes:
            return status
        named = [n for n in nodes if n.is_named]
        return self.unknown(named[-1]) if named else True

    def unknown(self, node: Node, is_expected: bool = False) -> Choice:
        """Nobody knows whether this statement succeeds; ``is_expected``: the script counts on it (``cd x && ...``)."""
        text = " ".join(self.doc.raw(node).replace("\\\n", " ").split())
        short = text if len(text) <= 60 else text[:56] + " ..."
        phrases = (f"`{short}` succeeds", f"`{short}` fails")
        good, bad = two_arms(self.doc.location(node), short, phrases)
        return Choice(Fork((Arm(None) if is_expected else good, bad)), (True, False))

    def fork(self, test: Any, scope: Scope, yes: _Run, no: _Run) -> Any:
        """Run ``yes`` or ``no``, or both where the test may go either way; the status."""
        if isinstance(test, bool):
            return yes(scope) if test else no(scope)
        usual, begin = preferred(test), self.read_up_to
        if isinstance(usual, bool):
            inner = scope.copy()
            status = yes(inner) if usual else no(inner)
            if not inner.ended:
                self._otherwise(scope.under(test, not usual), overridden(test), no if usual else yes, begin)
                scope.become(inner)
                return status
            self.read_up_to = begin
        else:
            test = usual
        (first, ended), (second, _) = self.both(test, [(True, yes), (False, no)], scope)
        if ended:
            return second
        return None if first is None or second is None else chosen(((test, True),), first, second)

    def _otherwise(self, scope: Scope, names: Collection[str], run: _Run, begin: int) -> None:
        """Read the commands of an arm that runs when the caller sets ``names``; what it leaves is forgotten.

        ``begin``: up to where the text was read before the arms.
        """
        scope.forget(names, "the caller may set it")
        loops, self.loops = self.loops, []
        end, self.read_up_to = self.read_up_to, begin
        with self.functions.apart():
            run(scope)
        self.loops, self.read_up_to = loops, max(end, self.read_up_to)

    def both(self, test: Any, arms: Sequence[tuple[Any, _Run]], scope: Scope) -> list[tuple[Any, bool]]:
        """Run the arms, each in its own state, and bring the states together behind them.

        Returns the status of each arm, and whether the control flow ends there.
        """
        known, alive, ends = len(scope.guards), [], []
        begin = end = self.read_up_to
        for result, run in arms:
            inner = scope.under(test, result)
            self.read_up_to = begin
            ends.append((run(inner), inner.ended))
            end = max(end, self.read_up_to)
            if not inner.ended:
                alive.append((result, inner))
        self.read_up_to = end
        if not alive:
            scope.ended = True
            return ends
        results = [result for result, _ in alive]
        narrowed = _narrowed(test, alive, scope.world)
        _, first = alive.pop()
        for result, inner in reversed(alive):
            first.join(inner, ((test, result),))
            first.guards = first.guards[:known]
        if 1 < len(results) < len(arms):
            # The other arms do not come here.
            first.limits = (*first.limits, tuple(way for result in results for way in paths(test, result)))
        if narrowed:
            first.limits = (*first.limits, narrowed)
        scope.become(first)
        return ends

    def _list(self, node: Node, scope: Scope) -> Any:
        operands: list[tuple[str, Node]] = []
        while node.type == "list":
            parts = [c for c in node.children if c.type != "comment"]
            if len(parts) < 3:
                break
            operands.append((parts[1].type, parts[2]))
            node = parts[0]
        changed = [self._defaults([operand]) for _, operand in operands]
        before, self.assumed = self.assumed, set(self.assumed).union(*changed)
        status = self.visit(node, scope)
        self.assumed = before
        for sign, operand in reversed(operands):
            if scope.ended:
                return None
            status = self.unknown(node, is_expected=True) if status is None else status
            status = self._second(sign == "&&", operand, status, scope)
            status = status if len(operands) <= _MAX_OPERANDS else None
        return status

    def _second(self, conjunction: bool, operand: Node, status: Any, scope: Scope) -> Any:
        def run(inner: Scope) -> Any:
            found = self.visit(operand, inner)
            return self.unknown(operand, is_expected=True) if found is None else found

        def skip(_: Scope) -> bool:
            return not conjunction

        return self.fork(status, scope, run if conjunction else skip, skip if conjunction else run)

    def _negated_command(self, node: Node, scope: Scope) -> Any:
        status = self.sequence(node.named_children, scope)
        return None if status is None else mapped(status, lambda leaf: not leaf)

    def _test_command(self, node: Node, scope: Scope) -> Any:
        return self._tested(self.doc.raw(node), self.doc.local(node).start, scope, self.assumed)

    def _defaults(self, nodes: Sequence[Node]) -> set[str]:
        """Names that an arm sets: a test whether they are empty asks whether somebody else has set them."""
        found = [assigned_names(self.doc, node) for node in nodes]
        return set().union(*(names for names in found if names))

    # -- if --------------------------------------------------------------------------------------------------------

    def _if_statement(self, node: Node, scope: Scope) -> Any:
        return self._clauses(list(node.children), scope, 0)

    def _clauses(self, children: list[Node], scope: Scope, depth: int) -> Any:
        """``if``, or ``elif`` with what follows it."""
        if depth > _MAX_CLAUSES:
            for child in children:
                scope.forget(assigned_names(self.doc, child))
            return None
        at = next((i for i, c in enumerate(children) if c.type == "then"), len(children))
        rest = [c for c in children[at:] if c.type in ("elif_clause", "else_clause")]
        body = [c for c in children[at:] if c not in rest]
        test = self.condition(children[1:at], scope, self._defaults(body))
        if scope.ended:
            return None

        def otherwise(inner: Scope) -> Any:
            if not rest:
                return True
            if rest[0].type == "else_clause":
                return self.sequence(rest[0].children, inner)
            return self._clauses([*rest[0].children, *rest[1:]], inner, depth + 1)

        return self.fork(test, scope, lambda inner: self.sequence(body, inner), otherwise)

    # -- case ------------------------------------------------------------------------------------------------------

    def _case_statement(self, node: Node, scope: Scope) -> Any:
        items = [c for c in node.named_children if c.type == "case_item"]
        if not items:
            return None
        subject = EMPTY_DEFAULT.sub(r"${\1}", self.doc.raw(node.named_children[0]))
        patterns = [[self.doc.raw(p) for p in item.children_by_field_name("value")] for item in items]
        soft: list[bool] = []
        tree = self._case(node, subject, patterns, scope, soft)
        if any(c.type == ";;&" for item in items for c in item.children):
            scope.forget(assigned_names(self.doc, node))

        runner = partial(self._run_items, items)
        possible = sorted(leaves(tree))
        if len(possible) == 1:
            others = [n for n in range(len(items)) if n != possible[0]] if any(soft) else []
            begin = self.read_up_to
            for number in others:
                self._otherwise(scope.copy(), NAMES.findall(subject), partial(runner, number), begin)
            self.read_up_to = begin
            return runner(possible[0], scope)
        self.both(tree, [(number, partial(runner, number)) for number in possible], scope)
        return None

    def _run_items(self, items: Sequence[Node], number: int, scope: Scope) -> None:
        """Run an item of ``case``, and those that it falls into."""
        for item in items[number:]:
            self.sequence(item.named_children[len(item.children_by_field_name("value")) :], scope)
            if scope.ended or all(c.type != ";&" for c in item.children):
                break

    def _case(self, node: Node, subject: str, patterns: list[list[str]], scope: Scope, soft: list[bool]) -> Any:
        """The number of the item that runs; behind the last one: none does.

        ``soft`` receives whether the default of a variable decided.
        """

        def compute(world: World) -> int:
            try:
                lookup = scope.lookup(world)
                text = expand_assignment(subject, lookup)
                soft.append(lookup.has_default)
                hits = (n for n, group in enumerate(patterns) if any(matches(p, text, lookup) for p in group))
                return next(hits, len(patterns))
            except ForkNeededError:
                raise
            except UnknownWordError:
                key = test.key_of(repr(patterns) + subject, world)
                about = test.key_of(test.plain(subject), world)
                return world.arm(scope.flow.fork(key, lambda: self._arms(node, subject, patterns, about)))

        test = Test(subject, self.doc.location(node), scope)
        tree = tree_of(compute, scope.here(), MAX_WORLDS)
        if tree is None or isinstance(tree, Unknown):
            arms = self._arms(node, subject, patterns, object())
            return Choice(Fork(arms), tuple(range(len(arms))))
        return tree

    def _arms(self, node: Node, subject: str, patterns: list[list[str]], about: object) -> tuple[Arm, ...]:
        plain = Test.plain(subject)
        name = plain[1:] if plain[1:].isidentifier() or plain[1:].isdigit() else ""
        place = self.doc.location(node.named_children[0])
        arms: list[Arm] = []
        seen: set[str] = set()
        for group in patterns:
            texts = {p.strip("\"'") for p in group if is_literal(p)}
            words = "|".join(group)
            rule = Rule(about, frozenset(texts), name=name) if len(texts) == len(group) else None
            phrase = f"`{plain}` is {' or '.join(p.strip(chr(34)) for p in group)}"
            if words == "*":
                rule = Rule(about, frozenset(seen), False, name)
                phrase = f"`{plain}` is something else"
            arms.append(Arm(Condition(place, f"case {subject} in {words}", True, phrase), rule))
            seen |= texts
        if not any("*" in group for group in patterns):
            everything = "|".join(p for group in patterns for p in group)
            condition = Condition(place, f"case {subject} in {everything}", False, f"`{plain}` is something else")
            arms.append(Arm(condition, Rule(about, frozenset(seen), False, name)))
        return tuple(arms)
