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
from dslint.model.script.traces.elements import Decided, Op, Trace, operations
from dslint.model.script.traces.evened import Evened, Found
from dslint.model.script.traces.ground import Ground
from dslint.model.script.traces.parting import Parting
from dslint.model.script.traces.ranks import LAST, RankSide, RankTruth, ranks_of_interest
from dslint.model.script.traces.record import Recorder
from dslint.model.script.traces.symbols import Symbols
from dslint.model.script.traces.variance import Variances
from dslint.model.script.tree import Tree


@dataclass(frozen=True, slots=True)
class Divergence:
    """A collective that some ranks run and others do not, in one function.

    ``guard``: the test that separates them. ``times``: in how many places only rank 0, and only the others, run it.
    ``behind``: the other lonely operations behind the same guard. ``may_leave``: another test decides, too, whether the
    ranks without it leave before.
    """

    op: Op
    scope: cst.CSTNode
    guard: Guard
    times: tuple[int, int]
    behind: tuple[Op, ...] = ()
    may_leave: bool = False


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
        self._parting = Parting(self.ground, guards, self.truths[False])
        self._evened = Evened(tree, self._parting, self.variances)
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
        found: list[Found] = []
        # Where no test of this function tells ranks apart, what it calls has the mistake, and is looked at itself.
        for scope in self._parting.scopes(tuple(ranks)):
            base = sides[0].scope(scope)
            for rank, side in zip(ranks[1:], sides[1:], strict=True):
                other = side.scope(scope)
                if not (operations(base) or operations(other)):
                    continue
                found += [Found(scope, rank, m, _places(m.op.key, base, other)) for m in compare(base, other)]
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
            if self._project is None or (is_first and not self._parting.reaches(call, ranks)):
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

    def _judged(self, found: list[Found], sides: dict[int, Recorder]) -> Iterator[Divergence]:
        seen: set[int] = set()
        grouped: dict[int, list[Op]] = {}
        kept: list[tuple[Found, Guard]] = []
        told = {(id(one.scope), one.mismatch.op.key) for one in found}
        for one in found:
            op = one.mismatch.op
            guard = self._guard(one.mismatch, one.rank)
            if guard is None or id(op.call) in seen or self._evened.by_others(one, sides):
                continue
            if guard.kind == "exit" and self._evened.is_settled_beside(guard.owner, op.call):
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
                behind,
                mismatch.is_conditional and guard.kind == "exit",
            )

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


def _places(key: str, one: Trace, other: Trace) -> tuple[int, int]:
    """In how many places each side runs an operation that the other does not run there."""
    sides = [{id(o.call) for o in operations(t) if o.key == key} for t in (one, other)]
    return len(sides[0] - sides[1]), len(sides[1] - sides[0])
