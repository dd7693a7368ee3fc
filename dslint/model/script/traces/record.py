"""The trace of one rank through a function of one module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import libcst as cst

from dslint.model.script.across.project import Foreign
from dslint.model.script.collective.collectives import Collective
from dslint.model.script.dotted import last_name
from dslint.model.script.ranks.guards import is_abort, is_exit
from dslint.model.script.ranks.rankset import number_of
from dslint.model.script.traces.called import ending
from dslint.model.script.traces.calls import CallTraces
from dslint.model.script.traces.elements import (
    Choice,
    Decided,
    Element,
    Hole,
    Leave,
    Protected,
    Repeat,
    Trace,
    filled,
    has_hole,
    leaves_early,
    resolved,
    speaks,
)
from dslint.model.script.traces.ground import Ground
from dslint.model.script.traces.questions import has_choice, leaves_itself
from dslint.model.script.traces.side import Side
from dslint.model.script.traces.symbols import Symbols
from dslint.model.script.tree import block_of_one_turn

_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)


class Recorder:
    """Records traces of one side. One instance for each module and side; functions are recorded once."""

    def __init__(
        self,
        ground: Ground,
        collective: Callable[[cst.Call], Collective | None],
        side: Side,
        symbols: Symbols,
        elsewhere: Callable[[cst.Call], tuple[Foreign, Recorder] | None] = lambda _: None,
        alike: dict[int, Trace] | None = None,
    ) -> None:
        """``alike``: the traces that are the same for all ranks that are compared; their recorders share it.

        ``lost``: the statements after which nobody knows who goes on, and whether they leave by themselves.
        """
        self._alike = {} if alike is None else alike
        self.lost: list[tuple[cst.CSTNode, bool]] = []
        self.tree = ground.tree
        self._names = ground.names
        self._news = ground.news
        self.side = side
        self._functions: dict[int, Trace] = {}
        self._symbols = symbols
        self._split = 0
        self._calls = CallTraces(self, ground, collective, elsewhere)

    def scope(self, scope: cst.CSTNode) -> Trace:
        """The trace of a function, or of the statements of the module."""
        if type(scope) is not cst.FunctionDef:
            return tuple(self._block(scope.body)) if type(scope) is cst.Module else ()
        found = self._functions.get(id(scope))
        if found is None:
            found = self._alike.get(id(scope))
        if found is None:
            self._functions[id(scope)] = ()  # a recursive function adds nothing to itself
            told = self.side.told
            let_in = self.side.runs(scope)
            body = list(self._block(scope.body.body)) if let_in is not False else []
            head: list[Element] = [Decided(scope.decorators[0], scope)] if let_in is not None else []
            found = self._functions[id(scope)] = (*head, *body)
            if self.side.told == told:
                self._alike[id(scope)] = found
        return found

    def called(self, helper: cst.FunctionDef, recorder: Recorder) -> Trace:
        """The trace of a function that this side calls; where it depends on the rank, so does that of the caller."""
        found = recorder.scope(helper)
        if not recorder.is_alike(helper):
            self.side.told += 1
        return found

    def apart(self, helper: cst.FunctionDef, recorder: Recorder) -> Trace:
        """That trace, as it is wherever the call stands: a test of the rank around the call is none inside."""
        split, self._split = self._split, 0
        found = self.called(helper, recorder)
        self._split = split
        return found

    def text(self, value: cst.BaseExpression) -> str:
        """The name of what is unknown in an expression."""
        return self._symbols.of(value, self.side)

    def is_alike(self, function: cst.FunctionDef) -> bool:
        """The trace of a function is the same for all ranks that are compared."""
        return id(function) in self._alike

    @property
    def is_split(self) -> bool:
        """A test of the rank has sent some ranks elsewhere."""
        return bool(self._split)

    # -- statements ---------------------------------------------------------------------------------------------

    def _block(self, statements: Sequence[cst.CSTNode]) -> list[Element]:
        found: list[Element] = []
        split = self._split
        for statement in statements:
            if not self._news.is_in(statement):
                continue
            found += self._statement(statement)
            if found and type(found[-1]) is Leave:
                break
        self._split = split
        return found

    def _suite(self, suite: cst.BaseSuite) -> list[Element]:
        return self._block(suite.body)

    def _statement(self, node: cst.CSTNode) -> list[Element]:
        if isinstance(node, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            return [e for small in node.body for e in self._small(small)]
        if type(node) is cst.If:
            return [*self._expression(node.test), *self._if(node)]
        if type(node) is cst.For:
            body = self._repeat(node, lambda: f"for {self.tree.text(node.iter)}", tuple(self._suite(node.body)))
            return [*self._expression(node.iter), *body, *self._unbroken(node)]
        if type(node) is cst.While:
            return [*self._while(node), *self._unbroken(node)]
        if type(node) is cst.With:
            return self._with(list(node.items), node.body)
        if isinstance(node, cst.Try | cst.TryStar):
            return self._try(node)
        if type(node) is cst.Match:
            return [*self._expression(node.subject), *self._match(node.subject, list(node.cases))]
        return self._small(node) if isinstance(node, cst.BaseSmallStatement) else []

    def _small(self, node: cst.CSTNode) -> list[Element]:
        if type(node) is cst.Raise:
            raised = node.exc.func if type(node.exc) is cst.Call else node.exc
            return [Leave(ending(node.exc) if last_name(raised) == "SystemExit" else "crash")]
        found = self._expression(node)
        if type(node) is cst.Return:
            found.append(Leave("return"))
        elif isinstance(node, cst.Break | cst.Continue):
            found.append(Leave("break" if isinstance(node, cst.Break) else "continue"))
        elif isinstance(node, cst.Expr) and is_exit(node.value, self._names):
            found.append(Leave(ending(node.value)))
        elif isinstance(node, cst.Expr) and is_abort(node.value, self._names):
            found.append(Leave("crash"))
        return found

    def _if(self, node: cst.If) -> list[Element]:
        return self._branch(
            node.test, node, lambda: self._suite(node.body), lambda: self._else(node.orelse), is_block=True
        )

    def _else(self, node: cst.If | cst.Else | None) -> list[Element]:
        if type(node) is cst.If:
            return [*self._expression(node.test), *self._if(node)]
        return self._suite(node.body) if node is not None else []

    def _unbroken(self, loop: cst.For | cst.While) -> list[Element]:
        """The ``else`` of a loop, which a ``break`` passes over."""
        found = self._else(loop.orelse)
        if not found or not self.tree.own(loop.body, cst.Break):
            return found
        return self._choice(lambda: f"no break of the loop at {self.tree.position(loop)}", tuple(found), ())

    def _branch(
        self,
        test: cst.BaseExpression,
        owner: cst.CSTNode,
        then: Callable[[], Iterable[Element]],
        orelse: Callable[[], Iterable[Element]],
        *,
        is_block: bool = False,
    ) -> list[Element]:
        """What a test decides, when it does; else a choice."""
        answer = self.side.decide(test)
        is_split = self.side.is_split(test)
        self._split += is_split
        if answer is None:
            symbol = partial(self._symbols.of, test, self.side)
            found = self._choice(symbol, tuple(then()), tuple(orelse()), split=is_split)
            if leaves_early(tuple(found)) and not is_split and self._asks_for_rank(test):
                self.lost.append((owner, leaves_itself(tuple(found))))
                found = [Leave("lost")]  # which ranks go on from here is not known
        else:
            found = list(then() if answer else orelse())
        # After ``if rank != 0: ...; return`` only the other ranks go on.
        if not (is_block and found and type(found[-1]) is Leave):
            self._split -= is_split
        return [Decided(test, owner), *found] if is_split else found

    @staticmethod
    def _choice(named: Callable[[], str], then: Trace, orelse: Trace, *, split: bool = False) -> list[Element]:
        if not (speaks(then) or speaks(orelse)):
            return []  # most tests: their text is not asked for
        symbol = named()
        if symbol.startswith("not "):
            symbol, then, orelse = symbol.removeprefix("not ").strip(), orelse, then
        if any(map(has_choice, (then, orelse))):  # asked again inside, it answers the same
            then, orelse = resolved(then, {symbol: True}), resolved(orelse, {symbol: False})
        return [Choice(symbol, then, orelse, split=split)] if speaks(then) or speaks(orelse) else []

    def _asks_for_rank(self, test: cst.BaseExpression) -> bool:
        """The rank is part of a test that does not tell which ranks pass: ``rank in ranks``."""
        nodes = (n for n in self.tree.descendants(test) if isinstance(n, cst.BaseExpression))
        return any(self.side.is_rank(n) for n in nodes if type(n) is not cst.Name or self.tree.is_variable(n))

    def _while(self, node: cst.While) -> list[Element]:
        once = block_of_one_turn(node)
        if once is not None:
            return self._block(once)
        header = self._expression(node.test)

        def body() -> list[Element]:
            symbol = partial(self._symbols.of, node.test, self.side)
            return self._repeat(node, lambda: f"while {symbol()}", (*header, *self._suite(node.body)))

        if self.side.decide(node.test) is None:
            return [*header, *body()]
        return [*header, *self._branch(node.test, node, body, list)]

    def _with(self, items: list[cst.WithItem], body: cst.BaseSuite) -> list[Element]:
        if not items:
            return self._suite(body)
        entered = self._expression(items[0].item)
        rest = self._with(items[1:], body)
        return list(filled(tuple(entered), tuple(rest))) if has_hole(tuple(entered)) else [*entered, *rest]

    def _try(self, node: cst.Try | cst.TryStar) -> list[Element]:
        body = self._suite(node.body)
        if not (body and type(body[-1]) is Leave):
            body += self._else(node.orelse)
        final = self._suite(node.finalbody.body) if node.finalbody is not None else []
        if not speaks(tuple(final)):
            return body
        return [Protected(tuple(body), tuple(final))] if leaves_early(tuple(body)) else [*body, *final]

    def _match(self, subject: cst.BaseExpression, cases: list[cst.MatchCase]) -> list[Element]:
        if not cases:
            return []
        case, rest = cases[0], cases[1:]
        pattern = case.pattern
        if case.guard is None and type(pattern) is cst.MatchAs and pattern.pattern is None:
            return self._suite(case.body)
        number = number_of(pattern.value) if type(pattern) is cst.MatchValue else None
        answer = self.side.equals(subject, number) if number is not None and case.guard is None else None
        if answer is None:
            text = partial(self.tree.text, case.pattern)
            return self._choice(text, tuple(self._suite(case.body)), tuple(self._match(subject, rest)))
        self._split += 1
        found = self._suite(case.body) if answer else self._match(subject, rest)
        self._split -= 1
        return [Decided(subject, case), *found]

    @staticmethod
    def _repeat(loop: cst.CSTNode, named: Callable[[], str], body: Trace) -> list[Element]:
        return [Repeat(named(), body, loop)] if speaks(body) else []

    # -- expressions --------------------------------------------------------------------------------------------

    def _expression(self, node: cst.CSTNode) -> list[Element]:
        found: list[Element] = []
        for call in self._news.calls_in(node):
            elements: list[Element] = self._calls.of(call) if type(call) is cst.Call else [Hole()]
            if elements:
                found += self._inside_expression(elements, call, node)
        return found

    def _inside_expression(self, found: list[Element], call: cst.CSTNode, root: cst.CSTNode) -> list[Element]:
        """``rank == 0 and barrier()``, ``barrier() if main else None``, ``[reduce(x) for x in xs]``."""
        inner = call
        for outer in self.tree.parents(call):
            if inner is root:
                break
            if type(outer) is cst.BooleanOperation and inner is outer.right:
                kept, dropped = (lambda e=found: e), list
                both = (kept, dropped) if type(outer.operator) is cst.And else (dropped, kept)
                found = self._branch(outer.left, outer, *both)
            elif type(outer) is cst.IfExp and inner is not outer.test:
                kept, dropped = (lambda e=found: e), list
                both = (kept, dropped) if inner is outer.body else (dropped, kept)
                found = self._branch(outer.test, outer, *both)
            elif isinstance(outer, _COMPREHENSIONS) and inner is not outer.for_in:
                found = [Repeat(f"for {self.tree.text(outer.for_in.iter)}", tuple(found), outer)]
            inner = outer
        return found
