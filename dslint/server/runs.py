"""The runs that launch commands start, beside their lines: a lens, the whole plan, and what `"auto"` becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from lsprotocol import types

from dslint.core.words import counted
from dslint.model.plan.effective import triangle_of
from dslint.planview.describe import views_of
from dslint.planview.text import render
from dslint.report.options import ReportOptions
from dslint.server.configkeys import fillings, plans_using

if TYPE_CHECKING:
    from dslint.engine.session import Look
    from dslint.model.plan.runplan import RunPlan
    from dslint.server.diagnostics import Places

PLAN = "dslint.plan"
_WIDTH = 100
# Values of one key that are shown beside each other.
_MOST = 3


def plans_of_file(path: str, look: Look) -> list[RunPlan]:
    """The plans of the commands in a file, in the order of the lines; none of a notebook, which has cells."""
    plans = look.planned.plans if look.planned is not None else ()
    found = [p for p in plans if p.command.location.path == path and p.command.location.region.cell is None]
    return sorted(found, key=lambda plan: plan.command.location.span)


def plans_at(path: str, offset: int, look: Look) -> list[RunPlan]:
    """The plans of the command around an offset: several where tests before it decide."""
    return [p for p in plans_of_file(path, look) if reach(p)[0] <= offset <= reach(p)[1]]


def reach(plan: RunPlan) -> tuple[int, int]:
    """From the first to the last word of a command in its own file."""
    command = plan.command
    own = [word.location.span for word in command.words if word.location.path == command.location.path]
    spans = [command.location.span, *own]
    return min(span.start for span in spans), max(span.end for span in spans)


def plan_text(plans: list[RunPlan], look: Look) -> str:
    """What `dslint plan` says of these plans."""
    if look.planned is None:
        return ""
    views = views_of(replace(look.planned, plans=plans))
    return render(views, ReportOptions(color=False, width=_WIDTH), is_all=False).strip("\n")


def summary(plan: RunPlan) -> str:
    """``8 ranks, batch 128, ZeRO 3``: what is known of it, empty where that is nothing."""
    train = triangle_of(plan).train
    parts = []
    if plan.world_size.is_known:
        parts.append(counted(plan.world_size.get(), "rank"))
    if train.is_known:
        parts.append(f"batch {train.get()}")
    if plan.zero_stage.is_known:
        parts.append(f"ZeRO {plan.zero_stage.get()}")
    return ", ".join(parts)


def lenses(path: str, look: Look, places: Places) -> Iterator[types.CodeLens]:
    """A lens above each launch command of which something is known; ways that differ are shown beside each other."""
    by_line: dict[int, list[RunPlan]] = {}
    for plan in plans_of_file(path, look):
        by_line.setdefault(plan.command.location.region.line, []).append(plan)
    for plans in by_line.values():
        texts = list(dict.fromkeys(filter(None, map(summary, plans))))
        if texts:
            found = places.text(path).region(plans[0].command.location.region)
            title = " or ".join(texts[:_MOST]) + (" or …" if len(texts) > _MOST else "")
            command = types.Command(title, PLAN, arguments=[places.uri(path), found.start.line, found.start.character])
            yield types.CodeLens(found, command)


def hints(path: str, look: Look, places: Places, within: types.Range) -> Iterator[types.InlayHint]:
    """What each `"auto"` of a config becomes, behind it."""
    plans = plans_using(path, look)
    docs = {plan.config.name: plan.config for plan in plans if plan.config is not None}
    for name, doc in docs.items():
        using = [plan for plan in plans if plan.config is not None and plan.config.name == name]
        where = ", ".join(str(plan.command.location) for plan in using[:_MOST])
        for pointer, values in fillings(using).items():
            span = doc.values.get(pointer)
            if span is None:
                continue
            position = places.text(path).position(span.end)
            if within.start.line <= position.line <= within.end.line:
                shown = " or ".join(values[:_MOST]) + (" or …" if len(values) > _MOST else "")
                told = f"filled by the reader of the config: {where}"
                yield types.InlayHint(position, f" = {shown}", tooltip=told, padding_left=True)


def argument_of(uri: object, line: object, character: object) -> tuple[str, types.Position] | None:
    """The place that the command of a lens names; ``None`` for what no lens has sent."""
    if isinstance(uri, str) and isinstance(line, int) and isinstance(character, int) and line >= 0 <= character:
        return uri, types.Position(line, character)
    return None
