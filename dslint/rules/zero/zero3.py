"""Which models of a run ZeRO stage 3 spreads over the ranks, from which moment on, and who gathers them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dslint.python.events import Alt, Call, Context, Event
from dslint.python.values import Instance, Value
from dslint.rules.runs import Happening, RunQuery, happenings_of
from dslint.rules.training.plateaus import instances, outcomes
from dslint.rules.training.training import first_of

# A test of the stage, or of whether a parameter is spread, keeps stage 3 away.
_ASKS = re.compile(r"zero_?3|stage|ds_id|ds_status|is_deepspeed|gather", re.I)

# What hands out layers and parameters of a model.
_GIVES = frozenset({"parameters", "visits-modules", "gives-parameter"})
# A context with such a name gathers what is spread.
_GATHERS = re.compile(r"gather|zero3|unwrap|summon|full_param", re.I)


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
    engines: dict[Instance, Event] = field(default_factory=dict)  # by what each engine and its model was made
    trainers: dict[Instance, list[Instance]] = field(default_factory=dict)  # the models that Trainers will train
    strategies: dict[Instance, Event] = field(default_factory=dict)  # trainers of Lightning at stage 3
    owners: dict[int, set[Instance]] = field(default_factory=dict)

    def read(self) -> Iterator[Happening]:
        """Yield every happening when all before it is known."""
        for found in self.happenings:
            if "makes-engine" in found.event.tags or "wraps-model" in found.event.tags:
                self.trained |= found.event.modules
        for found in self.happenings:
            event = found.event
            if event.tags & _GIVES:
                self.owners.setdefault(id(event.node), set()).update(instances(event.receiver))
            yield found
            self._note(event)

    def _note(self, event: Event) -> None:
        if event.tags & {"training-arguments", "live-config"} and self.run.stages.of(event) == 3:
            self.live = event
        elif "loads" in event.tags and self.live is not None and not is_quantized(event):
            for module in event.modules:
                self.since.setdefault(module, self.live)
        elif "zero-init" in event.tags and not _is_disabled(event):
            for module in _made_inside(event, self.happenings):
                self.since.setdefault(module, event)
        elif "makes-engine" in event.tags and self.run.stages.of(event) == 3:
            for module in event.modules:
                self.since.setdefault(module, event)
        self._note_engine(event)

    def _note_engine(self, event: Event) -> None:
        """Note the models that an engine has taken: of a Trainer when it trains."""
        if self._note_lightning(event):
            return
        if event.tags & {"makes-engine", "prepares"} and self.run.stages.of(event) == 3:
            models = [*event.modules, *instances(event.arguments.get("model"))]
            if "makes-engine" in event.tags:
                models += first_of(event.result)
            else:
                models += [atom for value in outcomes(event) for atom in instances(value)]
            for model in models:
                self.engines.setdefault(model, event)
        elif "trainer" in event.tags and self.live is not None:
            for trainer in instances(event.result):
                self.trainers[trainer] = instances(event.arguments.get("model"))
        elif "trainer-train" in event.tags and self.live is not None:
            for model in (m for trainer in instances(event.receiver) for m in self.trainers.get(trainer, ())):
                self.engines.setdefault(model, self.live)

    def _note_lightning(self, event: Event) -> bool:
        """Note a trainer of Lightning at stage 3, or the models that it takes; return whether it is one."""
        if "trainer" in event.tags and event.stage == 3:
            self.strategies.update(dict.fromkeys(instances(event.result), event))
            return True
        found = [self.strategies[atom] for atom in instances(event.receiver) if atom in self.strategies]
        for model in event.modules if found else ():
            self.engines.setdefault(model, found[0])
        return bool(found)

    def engine_of(self, value: Value | None) -> Event | None:
        """Return by what the engine was made that a value certainly is, or has taken for its model."""
        found = instances(value)
        makers = [self.engines.get(atom) for atom in found]
        is_sure = value is not None and len(found) == len(value.atoms)
        return makers[0] if makers and is_sure and None not in makers else None

    def of(self, value: Value | None) -> Event | None:
        """Return by what a module, or the module of a parameter, was spread."""
        nodes = {id(module.node): event for module, event in self.since.items()}
        for atom in instances(value):
            owners = self.owners.get(id(atom.node), set())
            owners = owners.union(*(self.owners.get(id(owner.node), set()) for owner in owners))
            found = next((event for module, event in self.since.items() if module in owners), None)
            found = found or self.since.get(atom) or nodes.get(id(atom.node))
            if found is not None:
                return found
        return None


def spread_of(run: RunQuery) -> Iterator[Spread]:
    """Yield a reader for each entry of a script."""
    is_at_3 = run.stages.stated[0] == 3
    for entry, tree in run.trees():
        found = list(happenings_of(tree, entry))
        if is_at_3 or any(h.event.stage == 3 or "zero-init" in h.event.tags for h in found):
            yield Spread(run, found)


def tells(event: Event) -> bool:
    """Return whether transformers knows of the configuration after a call."""
    return bool(event.tags & {"training-arguments", "live-config"}) or event.api == "accelerate.Accelerator"


def is_gathered(found: Happening) -> bool:
    """Return whether a context around something gathers parameters, or may do so by its name."""
    for node in (node for node in found.around if isinstance(node, Context)):
        if "gathers-parameters" in node.tags:
            return True
        items = node.node.items if isinstance(node.node, ast.With) else []
        if any(_GATHERS.search(node.module.text(item.context_expr)) for item in items):
            return True
    return False


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


def is_quantized(event: Event) -> bool:
    """Return whether a load quantizes the weights, or may: DeepSpeed then leaves them whole."""
    given = [event.arguments.get(name) for name in ("quantization_config", "load_in_4bit", "load_in_8bit")]
    return event.open or any(value is not None and value.constants not in ((None,), (False,)) for value in given)


def _is_disabled(event: Event) -> bool:
    enabled = event.arguments.get("enabled")
    return enabled is not None and enabled.constants != (True,)


def _made_inside(event: Event, happenings: list[Happening]) -> Iterator[Instance]:
    """Yield the modules that are built in the block of a `zero.Init`, of those that come to an engine."""
    block = next((node for node in event.module.nodes_of(ast.With) if _opens(node, event.node)), None)
    inside = {id(node) for statement in block.body for node in ast.walk(statement)} if block is not None else set()
    for found in happenings:
        modules = found.event.modules
        if "makes-engine" in found.event.tags and any(id(module.node) in inside for module in modules):
            yield from modules


def _opens(block: ast.With, node: ast.AST) -> bool:
    return any(inner is node for item in block.items for inner in ast.walk(item.context_expr))
