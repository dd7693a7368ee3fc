"""Blocks in loops that keep gradients on their rank: `no_sync`, and what decides in a turn that it is entered."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from dslint.python.events import Call, Context, Event, Loop, Node, events
from dslint.python.places import ordered
from dslint.python.queries.turns import Test, Turns
from dslint.python.values import Atom, Bound, Instance, Value
from dslint.rules.ranks.parted import function_around
from dslint.rules.runs import RunQuery


class Block(NamedTuple):
    """A `with` block in a loop, and what decides in a turn that it keeps gradients on their rank."""

    context: Context
    around: tuple[Node, ...]
    loop: Loop
    turns: Turns
    waits: list[Test]


def blocks(run: RunQuery) -> Iterator[Block]:
    """Yield the blocks in loops that may be entered with `no_sync` and that hold a forward."""
    makers = {found.event.node: found.event for found in run.occurrences("no-sync")}
    for context, around in run.blocks():
        loops = [node for node in reversed(around) if isinstance(node, Loop) and node.number]
        chosen = _chosen(run, context.manager, makers) if loops else None
        if chosen is None or not _holds_forward(context):
            continue
        for loop in loops:
            turns = Turns(run.machine, loop)
            yield Block(context, around, loop, turns, [*turns.tests(around, context), *chosen])


def exchanges(run: RunQuery, loop: Loop) -> bool:
    """Return whether the script itself reduces gradients in the loop."""
    for found in run.occurrences("collective"):
        if "reduce" not in found.event.api.rpartition(".")[2] or not any(node is loop for node in found.around):
            continue
        nodes: list[Call | Event] = [*found.calls, found.event]
        if any(".grad" in n.module.text(function_around(n.module, n.node) or n.node) for n in nodes):
            return True
    return False


def _chosen(run: RunQuery, value: Value, makers: dict[ast.AST, Event]) -> list[Test] | None:
    """Return the tests that choose `no_sync` as what is entered, or called and entered; `None` where it is none."""
    number = value.number
    if isinstance(number, tuple) and number[:1] == ("field",) and number[-1] == "no_sync":
        return []
    if isinstance(number, tuple) and number[:1] == ("called",):
        number = number[1]
    choice = run.machine.chosen.get(number)
    if choice is None:
        found = [_asked_by(run, atom, makers) for atom in ordered(value.atoms)]
        return found[0] if found and None not in found else None
    sides = [_chosen(run, side, makers) for side in (choice.first, choice.second)]
    if sides[0] is None or sides[1] is None:
        if sides == [None, None]:
            return None
        node = getattr(choice.node, "test", choice.node)
        return [Test(choice.test, sides[0] is not None, choice.module, node), *(sides[0] or sides[1] or [])]
    return [] if sides == [[], []] else None


def _asked_by(run: RunQuery, atom: Atom, makers: dict[ast.AST, Event]) -> list[Test] | None:
    """Return the tests of an object or a method that keeps gradients: `enabled=...`; `None` for any other one."""
    if isinstance(atom, Bound) and isinstance(atom.function, str):
        path, _, name = atom.function.rpartition(".")
        row = run.machine.libraries.method(path, name)
        return [] if row is not None and _keeps(row.path, row.tags) else None
    if not isinstance(atom, Instance):
        return None
    event = makers.get(atom.node)
    if event is None:
        function = atom.node.func if isinstance(atom.node, ast.Call) and not atom.cls else None
        return [] if isinstance(function, ast.Attribute) and function.attr == "no_sync" else None
    if not _keeps(event.api, event.tags):
        return None
    enabled = event.arguments.get("enabled")
    return [Test(enabled, True, event.module, event.nodes.get("enabled", event.node))] if enabled is not None else []


def _keeps(path: str, tags: frozenset[str]) -> bool:
    """Return whether a row keeps gradients on their rank when the script says so; engines count themselves."""
    return "no-sync" in tags and "accumulate" not in tags and not path.startswith("deepspeed.")


def _holds_forward(context: Context) -> bool:
    """Return whether the block runs a forward: there DDP decides whether the backward will exchange."""
    if any(event.tags & {"forward", "ddp-forward"} for event in events(context)):
        return True
    made = (atom.node for atom in context.manager.atoms if isinstance(atom, Instance))
    asked = [node for node in made if isinstance(node, ast.Call)]
    named = [part for node in asked for part in node.args]
    named += [node.func.value for node in asked if isinstance(node.func, ast.Attribute)]
    owners = {context.module.text(node) for node in named}
    around = function_around(context.module, context.node) or context.module.tree
    bodies = (n.body for n in ast.walk(around) if isinstance(n, ast.With) and _enters(n, context.node))
    calls = (n for body in bodies for part in body for n in ast.walk(part) if isinstance(n, ast.Call))
    return any(context.module.text(call.func) in owners for call in calls)


def _enters(block: ast.With, node: ast.AST) -> bool:
    return any(item.context_expr is node for item in block.items)
