"""Which assignments of a variable can be the last one before a node: reaching definitions over the statements.

Structured, without a graph: from a node backwards through its block, then through the blocks around it. An arm that
the tests around the node rule out does not count (``if ds: a = X`` ... ``if not ds: use(a)``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import libcst as cst

from dslint.model.script.bindings import Binding
from dslint.model.script.names import Names
from dslint.model.script.objects.conditions import Conditions, ends_elsewhere
from dslint.model.script.tree import Tree

_MAX_CALLS = 3
# What binds something before one of its parts runs. LibCST's classes are abstract: ``isinstance`` runs Python code.
_BINDING = frozenset(
    {
        *(
            cst.IndentedBlock,
            cst.SimpleStatementSuite,
            cst.SimpleStatementLine,
            cst.Module,
            cst.For,
            cst.While,
            cst.With,
            cst.If,
        ),
        *(cst.Try, cst.TryStar, cst.FunctionDef, cst.CompFor),
    }
)


class Reaching:
    """Answers for one module."""

    def __init__(self, tree: Tree, names: Names, conditions: Conditions) -> None:
        self._tree = tree
        self._names = names
        self._conditions = conditions

    def of_bindings(self, found: list[Binding], node: cst.CSTNode, depth: int = 0) -> list[Binding]:
        """Those of a variable's bindings that may be the last before ``node``; none when all come later."""
        if not found:
            return []
        scope = self._owner(found[0])
        here = [b for b in found if self._owner(b) is scope]
        away = [b for b in found if self._owner(b) is not scope]  # ``global x`` in a function
        user = self._tree.function(node)
        if scope is user or scope is self._inlined(node):
            return [*self._before(here, node), *away]
        if isinstance(scope, cst.ClassDef) or len(found) == 1:
            return found
        calls = self._names.callers.of(user) if user is not None and depth < _MAX_CALLS else []
        if calls and all(self._is_in(call, scope) for call in calls):
            reached = [b for call in calls for b in self.of_bindings(here, call, depth + 1)]
        else:  # the function runs at some time: what the scope ends with
            body = scope.body if isinstance(scope, cst.FunctionDef) else scope
            reached = _Walk(self._tree, self._conditions, here, node).block(body)[0]
        return list(dict.fromkeys([*reached, *away])) or found

    def at_end(self, function: cst.FunctionDef, found: list[Binding], node: cst.CSTNode) -> list[Binding]:
        """The bindings that a function leaves behind, for a reader elsewhere (``self.x`` of ``__init__``)."""
        return _Walk(self._tree, self._conditions, found, node).function(function)

    def before(self, found: list[Binding], node: cst.CSTNode) -> tuple[list[Binding], bool]:
        """The bindings that reach a node within its function, and whether one of them certainly does."""
        walk = _Walk(self._tree, self._conditions, found, node)
        reached = walk.before(node)
        return reached, walk.is_certain

    def _before(self, found: list[Binding], node: cst.CSTNode) -> list[Binding]:
        return _Walk(self._tree, self._conditions, found, node).before(node)

    def _owner(self, binding: Binding) -> cst.CSTNode:
        """The function, class or module in whose statements a binding stands."""
        node = binding.node
        if isinstance(node, cst.Param):
            return self._names.scope(node.name)
        found = self._tree.enclosing(node, cst.FunctionDef, cst.ClassDef)
        return found if found is not None else self._tree.module

    def _inlined(self, node: cst.CSTNode) -> cst.CSTNode:
        return self._tree.enclosing(node, cst.FunctionDef, cst.ClassDef) or self._tree.module

    def _is_in(self, call: cst.Call, scope: cst.CSTNode) -> bool:
        return scope is self._tree.module or self._tree.contains(scope, call)


class _Walk:
    """One question: the bindings of one variable before one node."""

    def __init__(self, tree: Tree, conditions: Conditions, found: Sequence[Binding], node: cst.CSTNode) -> None:
        self._tree = tree
        self._conditions = conditions
        self._node = node
        self._found = sorted(found, key=lambda b: tree.position(b.node))
        self._places = [tree.position(b.node) for b in self._found]
        self.is_certain = False

    def before(self, node: cst.CSTNode) -> list[Binding]:
        """From the node outwards to its function."""
        reached: list[Binding] = []
        inner = node
        at = self._tree.position(node)
        # ``(e := make()) and e.step()``
        statement = self._statement(node)
        walruses = [
            b for b in self._within(statement) if self._is_walrus(b) and self._tree.position(b.node) < at
        ] if statement is not None else []  # fmt: skip
        if walruses:
            self.is_certain = True
            return walruses[-1:]
        for outer in self._tree.parents(node):
            found, certain = self._around(outer, inner, at)
            reached += found
            if certain:
                self.is_certain = True
                break
            if type(outer) is cst.FunctionDef or type(outer) is cst.ClassDef:
                break
            inner = outer
        return list(dict.fromkeys(reached))

    def _around(self, outer: cst.CSTNode, inner: cst.CSTNode, at: int) -> tuple[list[Binding], bool]:
        """What an outer node has bound before its part ``inner`` runs."""
        if type(outer) not in _BINDING:
            return [], False
        if isinstance(outer, cst.IndentedBlock | cst.SimpleStatementSuite | cst.SimpleStatementLine | cst.Module):
            return self._statements(outer.body, inner)
        if isinstance(outer, cst.For | cst.While):
            return self._loop_around(outer, inner, at)
        if isinstance(outer, cst.With) and inner is outer.body:
            found = [b for item in outer.items for b in self._within(item)]
            return found[-1:], bool(found)
        if isinstance(outer, cst.If) and inner is not outer.test:
            found = self._within(outer.test)
            return found[-1:], bool(found)
        if isinstance(outer, cst.Try | cst.TryStar):
            return self._try_around(outer, inner)
        if isinstance(outer, cst.FunctionDef) and inner is outer.body:
            found = self._within(outer.params)
            return found, bool(found)
        if isinstance(outer, cst.CompFor):
            return self._within(outer.target), False
        return [], False

    def _loop_around(self, loop: cst.For | cst.While, inner: cst.CSTNode, at: int) -> tuple[list[Binding], bool]:
        if inner is not loop.body:
            return [], False
        # The end of the turn before comes around again.
        inside = self._within(loop.body)
        later = [b for b in inside if self._tree.position(b.node) > at or not self._is_barred(b, loop)]
        own = self._within(loop.target) if isinstance(loop, cst.For) else self._within(loop.test)
        return (own, True) if own else (later, False)

    def _is_barred(self, binding: Binding, loop: cst.For | cst.While) -> bool:
        """No turn of a loop that binds there is followed by one that comes to the node."""
        return self._conditions.excludes(self._node, binding.node, loop)

    def _try_around(self, node: cst.Try | cst.TryStar, inner: cst.CSTNode) -> tuple[list[Binding], bool]:
        if inner is node.body:
            return [], False
        if inner is node.orelse:
            return self.block(node.body)
        return self._within(node.body), False

    def _statements(self, body: Sequence[cst.CSTNode], stop: cst.CSTNode) -> tuple[list[Binding], bool]:
        index = next((i for i, s in enumerate(body) if s is stop), len(body))
        reached: list[Binding] = []
        for statement in reversed(body[:index]):
            found, certain = self._through(statement)
            reached += found
            if certain:
                return reached, True
        return reached, False

    def function(self, function: cst.FunctionDef) -> list[Binding]:
        """The bindings with which a function ends; a ``return`` as its last statement is such an end."""
        last = function.body.body[-1] if function.body.body else None
        line = last.body[-1] if isinstance(last, cst.SimpleStatementLine) and last.body else None
        if last is not None and isinstance(line, cst.Return):
            return self._statements(function.body.body, last)[0]
        return self.block(function.body)[0]

    def block(self, block: cst.CSTNode) -> tuple[list[Binding], bool]:
        """The bindings with which a block ends, and whether it always binds (or never ends)."""
        if not self._within(block):
            return [], ends_elsewhere(block)
        if ends_elsewhere(block):
            return [], True
        return self._statements(getattr(block, "body", ()), self._tree.module)

    def _through(self, statement: cst.CSTNode) -> tuple[list[Binding], bool]:
        inside = self._within(statement)
        if not inside:
            return [], False
        if isinstance(statement, cst.If):
            return self._through_if(statement)
        if isinstance(statement, cst.With):
            found, certain = self.block(statement.body)
            items = [b for item in statement.items for b in self._within(item)]
            return (found, True) if certain else ([*found, *items], bool(items))
        if isinstance(statement, cst.For | cst.While):
            return inside, False
        if isinstance(statement, cst.Try | cst.TryStar):
            return self._through_try(statement)
        if isinstance(statement, cst.Match):
            return inside, False
        return inside[-1:], True

    def _through_if(self, node: cst.If) -> tuple[list[Binding], bool]:
        answer = self._conditions.decides(self._node, node.test)
        reached: list[Binding] = []
        certain = True
        if answer is not False:
            found, certain = self.block(node.body)
            reached += found
        if answer is not True:
            found, other = self._else(node.orelse)
            reached += found
            certain = certain and other
        walrus = self._within(node.test)
        return (reached, True) if certain else ([*reached, *walrus[-1:]], bool(walrus))

    def _else(self, orelse: cst.If | cst.Else | None) -> tuple[list[Binding], bool]:
        if isinstance(orelse, cst.If):
            return self._through_if(orelse)
        return self.block(orelse.body) if orelse is not None else ([], False)

    def _through_try(self, node: cst.Try | cst.TryStar) -> tuple[list[Binding], bool]:
        last: list[Binding] = []
        if node.finalbody is not None:
            last, certain = self.block(node.finalbody.body)
            if certain:
                return last, True
        reached, certain = self.block(node.body)
        if node.orelse is not None:
            found, other = self.block(node.orelse.body)
            reached, certain = (found, True) if other else ([*found, *reached], certain)
        for handler in node.handlers:
            found, other = self.block(handler.body)
            reached = [*reached, *found]
            certain = certain and other
        return [*last, *reached], certain

    def _within(self, node: cst.CSTNode) -> list[Binding]:
        """The bindings of the variable that stand in a node, in order."""
        start = self._tree.position(node)
        first = bisect_left(self._places, start)
        return self._found[first : bisect_left(self._places, self._tree.ends[start])]

    def _statement(self, node: cst.CSTNode) -> cst.CSTNode | None:
        kinds = (cst.SimpleStatementLine, cst.If, cst.While, cst.FunctionDef, cst.ClassDef, cst.For, cst.With)
        found = self._tree.enclosing(node, *kinds)
        if isinstance(found, cst.If | cst.While):
            return found.test if self._tree.contains(found.test, node) else None
        return found if isinstance(found, cst.SimpleStatementLine) else None

    def _is_walrus(self, binding: Binding) -> bool:
        return isinstance(self._tree.parent(binding.node), cst.NamedExpr)
