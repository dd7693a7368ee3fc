"""An argument of a Trainer or its relatives that a release in use refuses: the sentence, and the new name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslint.core.finding import Severity
from dslint.core.fix import Edit, Fix, Safety
from dslint.model.context import VersionFact
from dslint.model.deepspeed.config import version_named
from dslint.model.trainerargs import Releases, Standing, predecessor, standing, successor, taken
from dslint.parse import cst

if TYPE_CHECKING:
    from dslint.rules.scriptcontext import ScriptContext


@dataclass(frozen=True, slots=True)
class Refused:
    """An argument that some release in use refuses, with what a finding says of it."""

    node: cst.CSTNode
    name: str
    message: str
    severity: Severity
    version: VersionFact
    standing: Standing
    fix: Fix | None


def refused(
    node: cst.CSTNode,
    name: str,
    owner: tuple[str, str],
    releases: Releases,
    fix: Fix | None,
    error: str = "TypeError: unexpected keyword argument",
) -> Refused | None:
    """What the releases in use make of the name of an argument; ``owner``: the library and the class that takes it."""
    found = standing(owner, name, releases)
    if found is None:
        return None
    version = releases.of(found.library)
    who = version_named(version, found.library)
    if found.reach == "deprecated":
        message = f"{who} deprecates `{name}` of `{owner[1]}`, and {found.release} removes it: an upgrade breaks"
    else:
        verb = "take" if error.startswith("TypeError") else "have"
        does = f"{'removed in' if found.is_removed else 'new in'} {found.release}"
        who = f"{who} does not {verb} `{name}` ({does})"
        if found.reach == "later":
            who = f"{found.library} {found.release} and later do not {verb} `{name}`"
        message = f"{who}: `{owner[1]}` raises `{error.partition(':')[0]}` on every rank"
    return Refused(node, name, message, found.severity, version, found, fix)


def renamed(ctx: ScriptContext, arg: cst.Arg, owner: tuple[str, str], releases: Releases) -> Fix | None:
    """Rename where the values are the same; what nobody pins may be older than the new name."""
    if arg.keyword is None:
        return None
    name = arg.keyword.value
    new = successor(owner, name) or predecessor(owner, name)
    call = ctx.parent(arg)
    given = {a.keyword.value for a in call.args if a.keyword is not None} if isinstance(call, cst.Call) else set()
    if not new or new in given or (name == "warmup_ratio" and not _is_part(ctx, arg.value)):
        return None
    status = taken(owner, new, releases)
    if status == "no":
        return None
    safety = Safety.SAFE if status in ("yes", "") else Safety.UNSAFE
    return Fix(f"Rename to `{new}`", (Edit(ctx.doc.path, ctx.span(arg.keyword), new),), safety)


def _is_part(ctx: ScriptContext, value: cst.BaseExpression) -> bool:
    """`warmup_steps` takes a number below 1 as a part of all steps, and any other as a count."""
    part = ctx.constant(value).get_or(None)
    return isinstance(part, float) and 0 < part < 1
