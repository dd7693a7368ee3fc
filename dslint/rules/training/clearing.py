"""Gradients that are cleared before the backward in a block of `accelerator.accumulate`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Edit, Fix
from dslint.core.source import Span
from dslint.python.events import Call, Context, Event, Node, Seq, children
from dslint.python.values import Instance
from dslint.rules.base import RuleMeta
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances, outcomes
from dslint.rules.training.training import ACCELERATOR, MicroBatches, maker_of, micro_batches, owners_of

# With one of these something else steps.
_OTHERS = ("deepspeed_plugin", "deepspeed_plugins", "megatron_lm_plugin")


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of `accelerator.accumulate`: what is cleared first, then the backward, then the step."""

    cleared: Event
    backward: Event
    step: Event


def cleared_in_blocks(run: RunQuery, meta: RuleMeta) -> Iterator[Finding]:
    """Yield a finding for a `zero_grad` of the optimizer that steps in the block, before the first backward."""
    context = run.context
    is_deepspeed = not context.zero_stage.is_absent or not context.accumulation.is_absent
    if is_deepspeed or context.launcher.get_or("") == "deepspeed":
        return  # DeepSpeed steps and clears inside of its own backward
    accelerators = {
        atom: owner
        for made in run.occurrences("accumulate")
        for atom in instances(made.event.result)
        for owner in owners_of(run, made.event.receiver, ACCELERATOR)
    }
    prepared = {
        atom for made in run.occurrences("prepares") for value in outcomes(made.event) for atom in instances(value)
    }
    seen: set[int] = set()
    for found in run.occurrences("zero-grad") if accelerators else ():
        block = next(
            (n for n in found.around if isinstance(n, Context) and n.manager.atoms & accelerators.keys()), None
        )
        if block is None or id(found.event.node) in seen or not set(instances(found.event.receiver)) & prepared:
            continue
        parts = _parts(block, found.event)
        owner = next(accelerators[atom] for atom in instances(block.manager) if atom in accelerators)
        told = _finding(run, meta, parts, owner) if parts is not None else None
        if told is not None:
            seen.add(id(found.event.node))
            yield told


def _parts(block: Context, cleared: Event) -> _Block | None:
    """Return the parts of a block where all of it runs once whenever the block does."""
    plain = list(_plain(block.body))
    at = next((n for n, event in enumerate(plain) if event is cleared), None)
    backwards = [n for n, event in enumerate(plain) if event.tags & {"backward", "engine-backward"}]
    if at is None or not backwards or at > backwards[0]:
        return None
    mine = set(instances(cleared.receiver))
    for event in plain[backwards[0] :]:
        if event.tags & {"optimizer-step", "steps"} and set(instances(event.receiver)) == mine:
            return _Block(cleared, plain[backwards[0]], event)
    return None


def _plain(node: Node) -> Iterator[Event]:
    """Yield the events that certainly happen, in order."""
    if isinstance(node, Event):
        yield node
    elif isinstance(node, Seq | Call | Context):
        for child in children(node):
            yield from _plain(child)


def _finding(run: RunQuery, meta: RuleMeta, block: _Block, owner: Instance) -> Finding | None:
    maker, steps = maker_of(run, [owner]), micro_batches(run, [owner], ACCELERATOR)
    if maker is None or steps is None or maker.open or any(name in maker.arguments for name in _OTHERS):
        return None
    severity, count = _judged(steps)
    if severity is None:
        return None
    cleared, step = block.cleared, block.step
    what = f"the {count} micro batches" if count else "the micro batches"
    when = "" if count else " of several"
    return run.finding(
        meta,
        cleared.module,
        cleared.node,
        f"`{run.text(cleared.module, cleared.node)}` discards what {what} accumulated: the step uses one micro"
        f" batch{when}",
        hint=f"Clear the gradients after `{run.text(step.module, step.node)}`",
        related=(
            run.location(block.backward.module, block.backward.node, "the backward that comes after it"),
            *steps.places,
        ),
        fix=_fix(run, block),
        severity=severity,
        facts={"gas": count},
    )


def _judged(steps: MicroBatches) -> tuple[Severity | None, int | None]:
    """How sure it is that a step has several micro batches, and their number."""
    if steps.count is not None:
        return (Severity.ERROR, steps.count) if steps.count > 1 else (None, None)
    default = steps.default
    if default is not None and default > 1:
        return Severity.ERROR, default
    if default == 1:
        return (None if steps.is_parameter else Severity.INFO), None
    return Severity.WARNING, None


def _fix(run: RunQuery, block: _Block) -> Fix | None:
    """The line goes, and comes back after the step unless the gradients are cleared there anyway."""
    module, first, last = block.cleared.module, block.cleared.node, block.step.node
    lists = (getattr(node, "body", None) for node in module.nodes)
    lines = next((b for b in lists if isinstance(b, list) and _line(b, first) and _line(b, last)), None)
    if lines is None or module.path != run.path:
        return None
    source, start, end = module.source.text, module.span(first), module.span(last)
    before, after = source.rfind("\n", 0, start.start) + 1, source.find("\n", start.end) + 1
    if not after or source[before : start.start].strip() or source[start.end : after].strip():
        return None
    edits = [Edit(run.path, Span(before, after), "")]
    text = module.text(first)
    later = lines[lines.index(_line(lines, last)) + 1 :]
    if not any(isinstance(n, ast.Call) and module.text(n) == text for line in later for n in ast.walk(line)):
        edits.append(Edit(run.path, Span(end.end, end.end), f"\n{source[before : start.start]}{text}"))
    return Fix("Clear the gradients after the step", tuple(edits))


def _line(block: list[ast.stmt], call: ast.AST) -> ast.stmt | None:
    """The call is a statement of the block by itself."""
    return next((line for line in block if isinstance(line, ast.Expr) and line.value is call), None)
