"""The divergences of one module: calls that some ranks make and others do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dslint.core.fact import Fact
from dslint.model.script.across.imported import Imported
from dslint.model.script.across.project import Foreign
from dslint.model.script.collective.collectives import Collective
from dslint.model.script.collective.summaries import Summaries
from dslint.model.script.names import Names
from dslint.model.script.objects.objects import Objects
from dslint.model.script.ranks.guards import Guard, Guards
from dslint.model.script.ranks.rankset import Ranks
from dslint.model.script.traces.compare import Mismatch, compare
from dslint.model.script.traces.elements import Decided, Op, Repeat, Scope, Trace, operations, parts
from dslint.model.script.traces.ground import Ground
from dslint.model.script.traces.path import may_leave
from dslint.model.script.traces.ranks import LAST, RankTruth, ranks_of_interest
from dslint.model.script.traces.record import Recorder
from dslint.model.script.traces.symbols import Symbols
from dslint.model.script.traces.variance import Variances
from dslint.model.script.tree import Tree

# The nodes whose test may tell ranks apart.
_SPLITTING = (cst.If, cst.While, cst.IfExp, cst.BooleanOperation, cst.Match)

# A function that hands on what it is given is one of these.
_MAX_CALLERS = 3


@dataclass(frozen=True, slots=True)
class Divergence:
    """A collective that some ranks run and others do not, in one function.

    ``guard``: the test that separates them. ``times``: in how many places only rank 0, and only the others, run it.
    ``order``: both run the same operations, in another order; ``against`` is what the others run at that moment.
    ``behind``: the other lonely operations behind the same guard. ``may_leave``: another test decides, too, whether the
    ranks without it leave before.
    """

    op: Op
    scope: cst.CSTNode
    guard: Guard
    times: tuple[int, int]
    order: bool = False
    against: Op | None = None
    behind: tuple[Op, ...] = ()
    may_leave: bool = False


class RankSide:
    """What one rank knows about tests."""

    def __init__(self, truth: RankTruth, guards: Guards, ranks: list[int], rank: int) -> None:
        self._truth = truth
        self._guards = guards
        self._ranks = ranks
        self.rank = rank
        self.told = 0

    def decide(self, test: cst.BaseExpression) -> bool | None:
        """Whether the test is true on this rank."""
        self.told += self.is_split(test)
        return self._truth(test, self.rank)

    def is_split(self, test: cst.BaseExpression) -> bool:
        """It comes out differently on another rank."""
        mine = self._truth(test, self.rank)
        return any(self._truth(test, other) is not mine for other in self._ranks)

    def equals(self, subject: cst.BaseExpression, number: int) -> bool | None:
        """``match rank: case 0:``."""
        if not self._guards.rank_values.is_rank(subject):
            return None
        self.told += 1
        return number == self.rank

    def is_rank(self, node: cst.BaseExpression) -> bool:
        """The expression is the rank of the process."""
        return self._guards.rank_values.is_rank(node)

    def runs(self, function: cst.FunctionDef) -> bool | None:
        """``@rank_zero_only`` and the like."""
        let_in = self._guards.let_in(function)
        if let_in is None:
            return None
        self.told += 1
        return {Ranks.MAIN: self.rank == 0, Ranks.SOME: self.rank == LAST}.get(let_in, self.rank != 0)

    def handler(self, _: cst.Try | cst.TryStar) -> None:
        """Exceptions are not what tells ranks apart."""


class Divergences:
    """Compares rank 0 with the other ranks of interest in every function of a module.

    ``collectives``, ``ground``, ``symbols``, ``truths`` (by whether parameters are partitioned) and ``variances`` keep
    their answers: other comparisons of the module use them, too.
    """

    def __init__(
        self,
        tree: Tree,
        names: Names,
        guards: Guards,
        objects: Objects,
        summaries: Summaries,
        sharded: Fact[bool],
        project: Imported | None = None,
    ) -> None:
        self._project = project
        self._recorders: dict[tuple[int, tuple[int, ...], bool, bool], Recorder] = {}
        self._tree = tree
        self._names = names
        self._guards = guards
        self.symbols = Symbols(tree, names, objects.reaching, guards)
        self.collectives = summaries.collectives
        self.ground = Ground(tree, names)
        self.variances = Variances(self.ground, guards, objects)
        self.truths = {stage3: RankTruth(guards, names, 3 if stage3 else None) for stage3 in (False, True)}
        self._split: set[int] | None = None
        self._splitting: list[cst.CSTNode] | None = None
        self._calling: dict[int, list[cst.CSTNode]] | None = None
        self._sharded = sharded.is_known and bool(sharded.value)
        self._known: dict[bool, list[Divergence]] = {}
        self._alike: dict[tuple[tuple[int, ...], bool, bool], dict[int, Trace]] = {}
        self._others: dict[int, Divergences] = {}
        self._meets_conditional = False
        self._calls: dict[int, Collective | None] = {}

    def certain(self) -> list[Divergence]:
        """Those of calls that wait for all ranks as the run is known to be, in source order."""
        return self._all(sharded=self._sharded)

    def if_sharded(self) -> list[Divergence]:
        """Those of calls that wait for all ranks only when parameters are partitioned."""
        if not self._sharded and False in self._known and not self._may_need_stage3(set()):
            return []
        return [d for d in self._all(sharded=True) if d.op.collective.needs_stage3]

    def _may_need_stage3(self, seen: set[int]) -> bool:
        """The traces of what is certain came by a call that waits under stage 3 only, or may have ended before one.

        With the stage they decide more tests and come to fewer calls.
        """
        if id(self) in seen:
            return False
        seen.add(id(self))
        lost = (one for r in self._recorders.values() for one in r.lost)
        if self._meets_conditional or any(not leaves or self._asks_for_stage(owner) for owner, leaves in lost):
            return True
        return any(other._may_need_stage3(seen) for other in self._others.values())

    def _asks_for_stage(self, owner: cst.CSTNode) -> bool:
        """Some test in a statement comes out differently where the stage is known."""
        tests = [n.test for n in self._tree.descendants(owner) if isinstance(n, cst.If | cst.While | cst.IfExp)]
        tests += [n.left for n in self._tree.descendants(owner) if type(n) is cst.BooleanOperation]
        plain, staged = self.truths[False], self.truths[True]
        return any(plain(test, rank) is not staged(test, rank) for test in tests for rank in (0, 1, LAST))

    def _all(self, *, sharded: bool) -> list[Divergence]:
        found = self._known.get(sharded)
        if found is None:
            found = self._known[sharded] = sorted(self._find(sharded), key=lambda d: self._tree.position(d.op.call))
        return found

    def _collective(self, call: cst.Call) -> Collective | None:
        if id(call) not in self._calls:
            self._calls[id(call)] = self.collectives.of(call)
        return self._calls[id(call)]

    def _find(self, sharded: bool) -> Iterator[Divergence]:
        ranks = ranks_of_interest(self._tree, self._guards)
        sides = [self.recorder(rank, tuple(ranks), sharded=sharded, is_first=True) for rank in ranks]
        found: list[_Found] = []
        # Where no test of this function tells ranks apart, what it calls has the mistake, and is looked at itself.
        for scope in self._split_scopes(tuple(ranks)):
            base = sides[0].scope(scope)
            for rank, side in zip(ranks[1:], sides[1:], strict=True):
                other = side.scope(scope)
                if not (operations(base) or operations(other)):
                    continue
                found += [_Found(scope, rank, m, _places(m.op.key, base, other)) for m in compare(base, other)]
        yield from self._judged(found, dict(zip(ranks, sides, strict=True)))

    def recorder(self, rank: int, ranks: tuple[int, ...], *, sharded: bool, is_first: bool = False) -> Recorder:
        """What records the traces of a rank through this module, when it is told from the others of ``ranks``.

        ``is_first``: the search begins in this module, so that only functions count in which ranks go separate ways.
        """

        def collective(call: cst.Call) -> Collective | None:
            found = self._collective(call)
            if found is None or sharded or not found.needs_stage3:
                return found
            self._meets_conditional = True
            return None

        def elsewhere(call: cst.Call) -> tuple[Foreign, Recorder] | None:
            if self._project is None or (is_first and not self._is_told_apart(call, ranks)):
                return None
            found = self._project.function(call, waiting=True)
            if found is None:
                return None
            other = found.context.divergences
            self._others[id(other)] = other
            return found, other.recorder(rank, ranks, sharded=sharded)

        key = (rank, ranks, sharded, is_first)
        if key not in self._recorders:
            side = RankSide(self.truths[sharded], self._guards, list(ranks), rank)
            alike = self._alike.setdefault(key[1:], {})
            self._recorders[key] = Recorder(self.ground, collective, side, self.symbols, elsewhere, alike)
        return self._recorders[key]

    def _is_told_apart(self, call: cst.Call, ranks: tuple[int, ...]) -> bool:
        """Ranks go separate ways in the function around a call, or in one that runs it: the others need no look."""
        if self._split is None:
            self._split = self._reached_scopes(ranks)
        return id(self._tree.function(call) or self._tree.module) in self._split

    def _split_scopes(self, ranks: tuple[int, ...]) -> list[cst.CSTNode]:
        """The functions (and the module) in which some test tells the ranks apart, in source order."""
        if self._splitting is None:
            found: dict[int, cst.CSTNode] = {}
            for node in self._tree.some(*_SPLITTING, cst.FunctionDef):
                if self._splits(node, ranks):
                    scope = self._tree.function(node) or self._tree.module
                    found.setdefault(id(scope), scope)
                elif type(node) is cst.FunctionDef and node.decorators and self._guards.let_in(node) is not None:
                    found.setdefault(id(node), node)
            self._splitting = list(found.values())
        return self._splitting

    def _reached_scopes(self, ranks: tuple[int, ...]) -> set[int]:
        """Those functions, and what they call in this file."""
        calls: dict[int, list[cst.FunctionDef]] = {}
        pending = list(self._split_scopes(ranks))
        for node in self._tree.every(cst.Call):
            helper = self._names.local_function(node)
            if helper is not None:
                calls.setdefault(id(self._tree.function(node) or self._tree.module), []).append(helper)
        found: set[int] = set()
        while pending:
            scope = pending.pop()
            if id(scope) not in found:
                found.add(id(scope))
                pending += calls.get(id(scope), [])
        return found

    def _splits(self, node: cst.CSTNode, ranks: tuple[int, ...]) -> bool:
        if type(node) is cst.Match:
            return self._guards.rank_values.is_rank(node.subject)
        if type(node) is cst.BooleanOperation:
            test: cst.BaseExpression = node.left
        elif isinstance(node, cst.If | cst.While | cst.IfExp):
            test = node.test
        else:
            return False
        return len({self.truths[False](test, rank) for rank in ranks}) > 1

    def _judged(self, found: list[_Found], sides: dict[int, Recorder]) -> Iterator[Divergence]:
        seen: set[int] = set()
        grouped: dict[int, list[Op]] = {}
        kept: list[tuple[_Found, Guard]] = []
        told = {(id(one.scope), one.mismatch.op.key) for one in found}
        for one in found:
            op = one.mismatch.op
            guard = self._guard(one.mismatch, one.rank)
            if guard is None or id(op.call) in seen or self._is_evened(one, sides):
                continue
            if guard.kind == "exit" and self._is_settled_beside(guard.owner, op.call):
                continue
            if op.through is not None and (id(op.through), op.key) in told:
                continue  # said where it stands
            seen.add(id(op.call))
            grouped.setdefault(id(guard.owner), []).append(op)
            kept.append((one, guard))
        for one, guard in kept:
            mismatch = one.mismatch
            behind = tuple(o for o in grouped[id(guard.owner)] if o.call is not mismatch.op.call)
            yield Divergence(
                mismatch.op,
                one.scope,
                guard,
                one.times,
                mismatch.order,
                mismatch.against,
                behind,
                mismatch.is_conditional and guard.kind == "exit",
            )

    def _is_evened(self, one: _Found, sides: dict[int, Recorder]) -> bool:
        """Each caller makes up for it, or another function runs the other half: a begin/end pair, a context manager."""
        key, others = one.mismatch.op.key, sides[one.rank]
        if self._may_meet(key, one.scope, sides):
            return True

        def excess(scope: cst.CSTNode) -> int:
            mine, theirs = (sum(o.key == key for o in operations(s.scope(scope))) for s in (sides[0], others))
            return mine - theirs

        here = 0 if one.mismatch.order else excess(one.scope)
        if not here:
            return False  # the same calls in another order, or left out by those that leave

        def differs(caller: cst.CSTNode, steps: int = 0) -> bool:
            if not excess(caller) or self._may_meet(key, caller, sides):
                return False
            base, other = sides[0].scope(caller), others.scope(caller)
            # Counts say nothing where one of the two leaves a loop before its end.
            leaves = _leaves_in_loop(base) or _leaves_in_loop(other)
            if leaves and not any(m.op.key == key for m in compare(base, other)):
                return False
            above = self._callers(caller) if steps < _MAX_CALLERS else []
            return not above or any(differs(c, steps + 1) for c in above)

        callers = self._callers(one.scope)
        if callers:
            return not any(map(differs, callers))
        return any(excess(scope) == -here for scope in self._splitting or ())

    def _is_settled_beside(self, leaving: cst.CSTNode, call: cst.Call) -> bool:
        """The arm in which some ranks leave also sets what is asked before the call, for those that stay."""
        asked = {
            n.value
            for outer in self._tree.parents(call)
            if type(outer) is cst.If and not self._tree.contains(outer, leaving)
            for n in self._tree.descendants(outer.test)
            if type(n) is cst.Name
        }
        if not asked:
            return False
        return any(
            type(n) is cst.AssignTarget and type(n.target) is cst.Name and n.target.value in asked
            for arm in self._tree.parents(leaving)
            if type(arm) is cst.If and not self._tree.contains(arm, call)
            for n in self._tree.own_nodes(arm.body)
        )

    def _may_meet(self, key: str, caller: cst.CSTNode, sides: dict[int, Recorder]) -> bool:
        """Behind a value that only some ranks set, the caller runs the operation: it may be the other half."""
        calls = (o.call for s in sides.values() for o in operations(s.scope(caller)) if o.key == key)
        owners = (n for call in calls for n in self._tree.parents(call) if type(n) is cst.If)
        return any((found := self.variances.test(owner.test)) is not None and found.is_lone for owner in owners)

    def _callers(self, scope: cst.CSTNode) -> list[cst.CSTNode]:
        """The functions of this file (or the module) that call a function."""
        if self._calling is None:
            self._calling = {}
            for node in self._tree.every(cst.Call):
                helper = self._names.local_function(node)
                if helper is not None:
                    caller = self._tree.function(node) or self._tree.module
                    self._calling.setdefault(id(helper), []).append(caller)
        return self._calling.get(id(scope), [])

    def _guard(self, mismatch: Mismatch, rank: int) -> Guard | None:
        """The test behind which the lonely call stands, or the one that sent the other ranks away."""
        plain = self._guards.guard(mismatch.op.call)
        if plain is not None:
            return plain
        decided = [d for d in reversed(mismatch.after[1 - mismatch.side]) if self._is_new(d, mismatch)]
        decided += list(reversed(mismatch.after[mismatch.side]))
        if not decided:
            return None
        ranks = Ranks.MAIN if mismatch.side == 0 else Ranks.OTHERS if rank != LAST else Ranks.SOME
        return Guard(ranks, "exit", decided[0].test, decided[0].owner)

    def _is_new(self, decided: Decided, mismatch: Mismatch) -> bool:
        return self._tree.position(decided.owner) < self._tree.position(mismatch.op.call)


@dataclass(frozen=True, slots=True)
class _Found:
    scope: cst.CSTNode
    rank: int
    mismatch: Mismatch
    times: tuple[int, int]


def _places(key: str, one: Trace, other: Trace) -> tuple[int, int]:
    """In how many places each side runs an operation that the other does not run there."""
    sides = [{id(o.call) for o in operations(t) if o.key == key} for t in (one, other)]
    return len(sides[0] - sides[1]), len(sides[1] - sides[0])


def _leaves_in_loop(trace: Trace) -> bool:
    """The function of the trace, not only those that it calls, may leave in the middle of a loop."""
    return any(
        (isinstance(e, Repeat) and may_leave(e)) or (type(e) is not Scope and any(map(_leaves_in_loop, parts(e))))
        for e in trace
    )
