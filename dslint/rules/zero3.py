"""Which models of a run ZeRO stage 3 spreads over the ranks, from which moment on, and who gathers them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dslint.python.events import Alt, Call, Context, Event
from dslint.python.values import Instance, Value
from dslint.rules.plateaus import instances
from dslint.rules.runs import Happening, RunQuery, happenings_of

# A test of the stage, or of whether a parameter is spread, keeps stage 3 away.
_ASKS = re.compile(r"zero_?3|stage|ds_id|ds_status|is_deepspeed|gather", re.I)


@dataclass(slots=True)
class Spread:
    """What happens to models that stage 3 spreads, read in the order of a run.

    `since` is the event by which a module was spread; `trained` are those of which an engine takes care.
    """

    run: RunQuery
    happenings: list[Happening]
    live: Event | None = None
    since: dict[Instance, Event] = field(default_factory=dict)
    trained: set[Instance] = field(default_factory=set)
    owners: dict[int, set[Instance]] = field(default_factory=dict)

    def read(self) -> Iterator[Happening]:
        """Yield every happening when all before it is known."""
        for found in self.happenings:
            if "makes-engine" in found.event.tags or "wraps-model" in found.event.tags:
                self.trained |= found.event.modules
        for found in self.happenings:
            event = found.event
            if event.tags & {"parameters", "visits-modules"}:
                self.owners.setdefault(id(event.node), set()).update(instances(event.receiver))
            yield found
            self._note(event)

    def _note(self, event: Event) -> None:
        if event.tags & {"training-arguments", "live-config"} and event.stage == 3:
            self.live = event
        elif "loads" in event.tags and self.live is not None and not _is_quantized(event):
            for module in event.modules:
                self.since.setdefault(module, self.live)
        elif "zero-init" in event.tags and not _is_disabled(event):
            for module in _made_inside(event, self.happenings):
                self.since.setdefault(module, event)
        elif "makes-engine" in event.tags and event.stage == 3:
            for module in event.modules:
                self.since.setdefault(module, event)

    def of(self, value: Value | None) -> Event | None:
        """Return by what a module, or the module of a parameter, was spread."""
        nodes = {id(module.node): event for module, event in self.since.items()}
        for atom in instances(value):
            owners = self.owners.get(id(atom.node), set())
            found = next((self.since[owner] for owner in owners if owner in self.since), None)
            found = found or self.since.get(atom) or nodes.get(id(atom.node))
            if found is not None:
                return found
        return None


def spread_of(run: RunQuery) -> Iterator[Spread]:
    """Yield a reader for each entry of a script."""
    for entry, tree in run.trees():
        found = list(happenings_of(tree, entry))
        if any(h.event.stage == 3 or "zero-init" in h.event.tags for h in found):
            yield Spread(run, found)


def is_whole(found: Happening) -> bool:
    """Return whether parameters are gathered where something happens, or stage 3 may not come there."""
    for node in found.around:
        if isinstance(node, Context) and "gathers-parameters" in node.tags:
            return True
        if isinstance(node, Alt) and _ASKS.search(node.module.text(getattr(node.node, "test", node.node))):
            return True
    return False


def is_inside_init(found: Happening) -> bool:
    """Return whether something happens while `zero.Init` spreads what is built."""
    return any(isinstance(node, Context) and "zero-init" in node.tags for node in found.around)


def is_applied(found: Happening) -> bool:
    """Return whether `module.apply` has called it, which gathers inside of `zero.Init`."""
    calls = [node.node for node in found.around if isinstance(node, Call)]
    return any(isinstance(c, ast.Call) and isinstance(c.func, ast.Attribute) and c.func.attr == "apply" for c in calls)


def _is_quantized(event: Event) -> bool:
    names = ("quantization_config", "load_in_4bit", "load_in_8bit")
    return event.open or any(name in event.arguments for name in names)


def _is_disabled(event: Event) -> bool:
    enabled = event.arguments.get("enabled")
    return enabled is not None and enabled.constants != (True,)


def _made_inside(event: Event, happenings: list[Happening]) -> Iterator[Instance]:
    """Yield the modules that are built in the block of a `zero.Init`, of those that come to an engine."""
    block = next(
        (node for node in ast.walk(event.module.tree) if isinstance(node, ast.With) and _opens(node, event.node)), None
    )
    inside = {id(node) for statement in block.body for node in ast.walk(statement)} if block is not None else set()
    for found in happenings:
        modules = found.event.modules
        if "makes-engine" in found.event.tags and any(id(module.node) in inside for module in modules):
            yield from modules


def _opens(block: ast.With, node: ast.AST) -> bool:
    return any(inner is node for item in block.items for inner in ast.walk(item.context_expr))
