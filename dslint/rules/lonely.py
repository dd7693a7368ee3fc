"""What the rules about lonely collectives say in the same words: who calls, which test decides, the fix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dslint.core.fix import Fix, Safety
from dslint.core.source import Location
from dslint.model.script.edits import only_statement_dedented
from dslint.model.script.ranks.guards import Guard
from dslint.model.script.ranks.rankset import Ranks

if TYPE_CHECKING:
    from dslint.model.script.traces.divergence import Divergence
    from dslint.rules.scriptcontext import ScriptContext

# A name of the rank in the whole job; `local_rank` and `get_local_rank` are none.
_WHOLE_JOB = re.compile(r"\b(?:get_|global_|world_)?rank\b")
_PASSES = {
    Ranks.MAIN: "only {main} gets past this test",
    Ranks.OTHERS: "rank 0 does not get past this test",
    Ranks.SOME: "only some ranks get past this test",
}


def lonely_sides(ctx: ScriptContext, found: Divergence) -> tuple[str, str]:
    """Who calls the operation, and what the others do."""
    guard = found.guard
    main_calls, others_call = found.times
    if guard.ranks is Ranks.SOME:
        return "only some ranks call it", "the others go on without it"
    if min(main_calls, others_call):
        times = f"rank 0 calls it {_often(main_calls)} and the other ranks {_often(others_call)}"
        if main_calls == others_call:
            times = "rank 0 and the other ranks call it in places of their own, and on some way not equally often"
        return times, "the last calls find no partner"
    if found.may_leave and not ctx.tree.contains(guard.owner, found.op.call):
        who = "the other ranks" if guard.ranks is Ranks.MAIN else "rank 0"
        return f"{who} may leave before it", "those that come to it wait"
    if guard.ranks is Ranks.MAIN:
        return f"only {_main(ctx, guard)} calls it", "the other ranks go on without it"
    return "rank 0 never calls it", "the others wait for rank 0"


def _main(ctx: ScriptContext, guard: Guard) -> str:
    """The rank that a test lets pass, in words: ``local_rank == -1 or rank == 0`` asks for one of the whole job."""
    test = ctx.text(guard.test).lower()
    is_local = "local" in test and _WHOLE_JOB.search(test) is None
    return "rank 0 of each node" if is_local else "rank 0"


def _often(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def guard_place(ctx: ScriptContext, guard: Guard) -> Location:
    """The test that decides, with what it lets through."""
    passes = _PASSES[guard.ranks].format(main=_main(ctx, guard))
    if guard.kind == "decorator":
        who = f"{_main(ctx, guard)} runs" if guard.ranks is Ranks.MAIN else "some ranks run"
        passes = f"only {who} the function"
    return ctx.location(guard.test, passes)


def dedented(ctx: ScriptContext, found: Divergence) -> Fix | None:
    """Dedent the call when nothing else stands behind a test that asks for the rank alone."""
    guard, op = found.guard, found.op
    if found.behind or guard.kind != "test" or not guard.is_plain:
        return None
    edit = only_statement_dedented(ctx.doc, ctx.tree, guard.owner, op.call)
    if edit is None:
        return None
    safe = op.through is None and (op.collective.family in ("engine", "trainer") or op.key == "barrier")
    return Fix("Call it on every rank", (edit,), Safety.SAFE if safe else Safety.UNSAFE)
