"""The one walk over a script that serves all rules: rules look like visitors and cost nothing when not interested.

A rule module defines ``Check``, a subclass of :class:`ScriptCheck`, whose methods are named after LibCST node types::

    class Check(ScriptCheck):
        def visit_Call(self, node: cst.Call) -> None:
            if self.ctx.qualified_name(node.func) == "torch.distributed.barrier":
                self.report(node, "...", hint="...")

The tree is recorded before the first handler runs, so every question to ``self.ctx`` sees the whole file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix
from dslint.core.profile import Profile
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.parse import cst
from dslint.parse.python import ScriptDoc
from dslint.rules.base import RuleMeta

if TYPE_CHECKING:
    from dslint.parse.tree import Tree
    from dslint.python.project import Project
    from dslint.rules.scriptcontext import ScriptContext

Handler = Callable[[Any], None]


class ScriptCheck:
    """Base of script rules: one instance per file.

    Methods ``visit_<Node>`` run in source order before the children of a node, ``leave_<Node>`` after them;
    ``finish`` runs at the end of the file.
    """

    def __init__(self, ctx: ScriptContext, meta: RuleMeta) -> None:
        self.ctx = ctx
        self.meta = meta
        self.findings: list[Finding] = []
        self.start()

    def start(self) -> None:
        """Runs once before the first handler: set up the state of the rule here."""

    def finish(self) -> None:
        """Runs once after the last handler."""

    def report(
        self,
        node: cst.CSTNode | Location,
        message: str,
        *,
        hint: str = "",
        related: tuple[Location, ...] = (),
        fix: Fix | None = None,
        severity: Severity | None = None,
        facts: Mapping[str, str | int | float | bool | None] | None = None,
    ) -> None:
        """Collect a finding at a node (or at a place made by ``self.ctx.location``).

        In a test the mistake of a training script is an information: a test may expect the failure, compute by hand
        what a library computes, or start its few processes on one machine.
        """
        if self.meta.kind == "script" and self.ctx.is_test:
            severity = Severity.INFO
        place = node if isinstance(node, Location) else self.ctx.location(node)
        self.findings.append(
            self.meta.finding(place, message, hint=hint, related=related, fix=fix, severity=severity, facts=facts)
        )


def run_script_rules(
    doc: ScriptDoc,
    rules: Sequence[tuple[RuleMeta, type[ScriptCheck]]],
    context: Context,
    profile: Profile | None = None,
    modules: Project | None = None,
) -> list[Finding]:
    """The findings of all rules in one script, in the order of the rules.

    ``profile`` takes the time of each; ``modules`` are the other files of the project.
    """
    from dslint.rules.scriptcontext import ScriptContext  # loads LibCST, which a rule that is not asked does not need

    ctx = ScriptContext(doc, context, modules)
    timed = _untimed if profile is None else partial(_timed, profile)
    checks: list[ScriptCheck] = [timed(meta.code, check)(ctx, meta) for meta, check in rules]
    visitors = _handlers(checks, "visit_", timed)
    leavers = _handlers(checks, "leave_", timed)
    if leavers:
        _walk_both(ctx.tree, visitors, leavers)
    else:
        _walk(ctx.tree, visitors)
    for check in checks:
        timed(check.meta.code, check.finish)()
    return [finding for check in checks for finding in check.findings]


def _untimed(_: str, call: Callable[..., Any]) -> Callable[..., Any]:
    return call


def _timed(profile: Profile, code: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler whose time its rule pays, with that of the answers to its questions."""

    def run(*arguments: Any) -> Any:
        return profile.charged(code, "handlers", partial(call, *arguments))

    return run


def _handlers(
    checks: Sequence[ScriptCheck], prefix: str, timed: Callable[[str, Callable[..., Any]], Callable[..., Any]]
) -> Mapping[type[cst.CSTNode], list[Handler]]:
    """The methods of all rules by the node type that they are named after."""
    table: dict[type[cst.CSTNode], list[Handler]] = {}
    for check in checks:
        for name in dir(type(check)):
            if name.startswith(prefix):
                kind: type[cst.CSTNode] = getattr(cst, name[len(prefix) :])
                table.setdefault(kind, []).append(timed(check.meta.code, getattr(check, name)))
    return table


def _walk(tree: Tree, visitors: Mapping[type[cst.CSTNode], list[Handler]]) -> None:
    for node in tree.some(*visitors):
        for handler in visitors[type(node)]:
            handler(node)


def _walk_both(
    tree: Tree, visitors: Mapping[type[cst.CSTNode], list[Handler]], leavers: Mapping[type[cst.CSTNode], list[Handler]]
) -> None:
    pending: list[tuple[int, cst.CSTNode]] = []
    for at, node in enumerate(tree.order):
        while pending and pending[-1][0] <= at:
            _call(leavers, pending.pop()[1])
        _call(visitors, node)
        if type(node) in leavers:
            pending.append((tree.ends[at], node))
    while pending:
        _call(leavers, pending.pop()[1])


def _call(table: Mapping[type[cst.CSTNode], list[Handler]], node: cst.CSTNode) -> None:
    for handler in table.get(type(node), ()):
        handler(node)
