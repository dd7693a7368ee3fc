"""What rules about a run may ask: the trees of events of a script and of all that it imports.

A rule module with a function ``query(run)`` is asked once for each script. It finds places by what happens, whatever
the code looks like: through helpers, fields, factories and other files of the project.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.core.testfiles import is_test
from dslint.model.context import Context
from dslint.python.events import Call, Event, Loop, Node, Seq, children, completed, events, walk
from dslint.python.events import Context as Block
from dslint.python.queries.parting import Parting
from dslint.python.queries.traces import Partings
from dslint.python.queries.waits import Waits
from dslint.python.values import Function, Instance, Tuple
from dslint.rules.assumed import from_bits, with_origins

if TYPE_CHECKING:
    from dslint.core.fix import Fix
    from dslint.python.entries import Analysis, Entry
    from dslint.python.machine import Machine
    from dslint.python.queries.derived import Derived
    from dslint.python.queries.modulenames import ModuleNames
    from dslint.python.source import Module
    from dslint.python.values import Value
    from dslint.rules.base import RuleMeta
    from dslint.rules.names.sureways import SureWays
    from dslint.rules.zero.stages import Stages


@dataclass(slots=True)
class Happening:
    """An event with the calls that lead to it, outermost first."""

    event: Event
    entry: Entry
    around: tuple[Node, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """Return the calls of project functions around the event."""
        return tuple(node for node in self.around if isinstance(node, Call))


@dataclass
class RunQuery:
    """The runs of one script: what its entries do, and what is known around it."""

    analysis: Analysis
    path: str
    context: Context
    findings: list[Finding] = field(default_factory=list)

    @property
    def machine(self) -> Machine:
        """Return the machine that has interpreted the script."""
        return self.analysis.machine

    @cached_property
    def entries(self) -> list[Entry]:
        """Return all entries: the script itself, and what it defines and does not reach."""
        for entry in self.analysis.entries:
            completed(entry.tree)
        return self.analysis.entries

    def release(self) -> None:
        """Drop all that was found out: nobody asks again, and what refers to itself would wait for the collector."""
        for name in [name for name in self.__dict__ if name not in ("path", "context")]:
            del self.__dict__[name]

    def given_at(self, *names: str) -> tuple[Location, ...]:
        """Return where the command that starts this run, or its file of arguments, gives these options."""
        places = self.machine.launch.places if self.machine.launch is not None else {}
        return tuple(places[name].labelled(f"`{name}`") for name in names if name in places)

    def leaves_out(self, name: str) -> bool:
        """Return whether the command that starts this run certainly does not give an option."""
        launch = self.machine.launch
        return launch is not None and launch.is_whole and name not in launch.given

    def trees(self) -> Iterator[tuple[Entry, Seq]]:
        """Yield the tree of each entry."""
        for entry in self.entries:
            yield entry, entry.tree

    @cached_property
    def stage(self) -> int | None:
        """Return the ZeRO stage of the runs of this script, when all agree."""
        stage: int | None = self.context.zero_stage.get_or(None)
        return stage

    @cached_property
    def stages(self) -> Stages:
        """Return what is known of the ZeRO stage at a place of this run."""
        from dslint.rules.zero.stages import Stages

        return Stages(self)

    @cached_property
    def derived(self) -> Derived:
        """Return what code the values of this run are computed from, whoever asks."""
        from dslint.python.queries.derived import Derived

        return Derived(self.machine.program.modules(), (tree for _, tree in self.trees()))

    @cached_property
    def module_names(self) -> ModuleNames:
        """Return what names the modules of this run have."""
        from dslint.python.queries.modulenames import ModuleNames

        return ModuleNames(self.machine.program)

    @cached_property
    def waits(self) -> Waits:
        """Return which events wait for other ranks."""
        stage, _ = self.stages.stated
        return Waits(self.machine, None if stage is None else stage == 3, is_fsdp=self.is_fsdp)

    @cached_property
    def supposed(self) -> Waits:
        """Return which events wait where ZeRO stage 3 is supposed, as far as nothing rules it out."""
        taken: set[Instance] = set()
        for found in self.occurrences("makes-engine", "prepares"):
            taken |= found.event.modules
            for value in found.event.arguments.values():
                taken |= {atom for atom in value.atoms if isinstance(atom, Instance) and not atom.cls}
        stage, _ = self.stages.stated
        return Waits(self.machine, None if stage is None else stage == 3, is_fsdp=self.is_fsdp, taken=frozenset(taken))

    @cached_property
    def is_fsdp(self) -> bool:
        """Return whether every Accelerator of this run certainly shards with FSDP."""
        made = [found.event for found in self.happenings("starts-group") if found.event.api == "accelerate.Accelerator"]
        plugins = [event.arguments.get("fsdp_plugin") for event in made if not event.open]
        return bool(made) and all(
            plugin is not None and plugin.atoms and all(isinstance(atom, Instance) for atom in plugin.atoms)
            for plugin in plugins
        )

    @cached_property
    def partings(self) -> list[tuple[Entry, Parting]]:
        """Return every place where two ranks part, each once."""
        return self._partings(self.waits)

    @cached_property
    def supposed_partings(self) -> list[tuple[Entry, Parting]]:
        """Return the same where ZeRO stage 3 is supposed."""
        waits = [self.supposed.of(event) for entry in self._outermost() for event in events(entry.tree)]
        return self._partings(self.supposed) if any(wait is not None and wait.needs for wait in waits) else []

    def _partings(self, waits: Waits) -> list[tuple[Entry, Parting]]:
        found: dict[tuple[int, int], tuple[Entry, Parting]] = {}
        for entry in self._outermost():
            for parting in Partings(self.machine, waits).of(entry.tree):
                found.setdefault((id(parting.test.node), id(parting.event.node)), (entry, parting))
        return list(found.values())

    def _outermost(self) -> list[Entry]:
        """Return the entries that no entry after them has called: what they do alone says nothing."""
        called: set[int] = set()
        kept: list[Entry] = []
        for entry in reversed(self.entries):
            if id(entry.node) not in called:
                kept.append(entry)
            calls = (node.function for node in walk(entry.tree) if isinstance(node, Call))
            called |= {id(function.node) for function in calls if isinstance(function, Function)}
        return kept[::-1]

    def happenings(self, *tags: str) -> Iterator[Happening]:
        """Yield the events that have one of the tags, each node once, with what is around them."""
        seen: set[int] = set()
        for happening in self.occurrences(*tags):
            node = id(happening.event.node)
            if node not in seen:
                seen.add(node)
                yield happening

    def occurrences(self, *tags: str) -> Iterator[Happening]:
        """Yield the events that have one of the tags, as often as something leads to their node."""
        tagged = self._tagged
        if len(tags) == 1:
            yield from (happening for _, happening in tagged.get(tags[0], ()))
            return
        found = {at: happening for tag in tags for at, happening in tagged.get(tag, ())}
        yield from (found[at] for at in sorted(found))

    def blocks(self) -> Iterator[tuple[Block, tuple[Node, ...]]]:
        """Yield the `with` blocks of all entries, each with what is around it, outermost first."""
        for _, tree in self.trees():
            for node, around in _with_surroundings(tree):
                if isinstance(node, Block):
                    yield node, around

    def loops(self) -> Iterator[tuple[Loop, Entry, tuple[Node, ...]]]:
        """Yield the loops of all entries, each with its entry and what is around it, outermost first."""
        for entry, tree in self.trees():
            for node, around in _with_surroundings(tree):
                if isinstance(node, Loop):
                    yield node, entry, around

    @cached_property
    def _tagged(self) -> dict[str, list[tuple[int, Happening]]]:
        """Return the events of all entries by their tags, numbered in the order of the source."""
        found: dict[str, list[tuple[int, Happening]]] = {}
        numbers = count()
        for entry, tree in self.trees():
            for happening in happenings_of(tree, entry):
                at = next(numbers)
                for tag in happening.event.tags:
                    found.setdefault(tag, []).append((at, happening))
        return found

    @cached_property
    def ordered(self) -> list[list[tuple[Event, tuple[Node, ...]]]]:
        """Return the events of each entry with what is around them, in the order of `in_order`."""
        from dslint.rules.ranks.everyrank import in_order

        return [list(in_order(tree)) for _, tree in self.trees()]

    @cached_property
    def sure_ways(self) -> SureWays:
        """Return the code that every run of the script comes to."""
        from dslint.rules.names.sureways import SureWays

        return SureWays(self)

    @cached_property
    def makers(self) -> dict[Instance, Event]:
        """Return the event that made each object: its constructor, or the function that returned it."""
        found: dict[Instance, Event] = {}
        for _, tree in self.trees():
            for event in events(tree):
                for atom in event.result.atoms if event.result is not None else ():
                    parts = atom.items if isinstance(atom, Tuple) else ()
                    for inner in (atom, *(a for part in parts for a in part.atoms)):
                        if isinstance(inner, Instance):
                            found.setdefault(inner, event)
        return found

    def likely(self, value: Value | None) -> tuple[object, ...] | None:
        """Return the constants that a value may be; of an open parameter or an option its default."""
        if value is None or value.constants is not None:
            return value.constants if value is not None else None
        default = self.machine.defaults.get(value.number)
        return default.constants if default is not None else None

    @cached_property
    def is_test(self) -> bool:
        """The script is run by a test runner."""
        modules = self.machine.program.modules()
        return any(is_test(m.path, m.source.text) for m in modules if m.path == self.path)

    def has(self, *tags: str) -> bool:
        """Return whether any event has one of the tags."""
        return any(tag in self._tagged for tag in tags)

    # -- places and words ---------------------------------------------------------------------------------------

    def location(self, module: Module, node: ast.AST, label: str = "") -> Location:
        """Return the place of a node."""
        return module.location(node, label)

    def text(self, module: Module, node: ast.AST, limit: int = 60) -> str:
        """Return the code of a node on one line, cut where it is long."""
        text = " ".join(module.text(node).split())
        return text if len(text) <= limit else f"{text[: limit - 3]}..."

    def origin(self, value: Value | None, label: str) -> tuple[Location, ...]:
        """Return where a value becomes each rank's own, as a related place."""
        place = self.machine.origin(value) if value is not None else None
        return (place[0].location(place[1], label),) if place is not None else ()

    def finding(
        self,
        meta: RuleMeta,
        module: Module,
        node: ast.AST,
        message: str,
        *,
        hint: str = "",
        related: tuple[Location, ...] = (),
        fix: Fix | None = None,
        severity: Severity | None = None,
        varies: int = 0,
        origin: tuple[Module, ast.AST] | None = None,
        same: tuple[Value | None, ...] = (),
        facts: Mapping[str, str | int | float | bool | None] | None = None,
        assumptions: tuple[str, ...] = (),
    ) -> Finding:
        """Return a finding at a node; `varies` are the causes it rests on, which say what is assumed for it.

        `origin` is where the difference comes from; `same` are values that it takes for the same on all ranks;
        `assumptions` what the rule assumes besides.
        In a test the mistake of a training script is an information: a test may expect the failure.
        """
        if is_test(module.path, module.source.text):
            severity = Severity.INFO
        assumptions = (*assumptions, *from_bits(varies, origin), *with_origins(self.entries, same))
        place = module.location(node)
        return meta.finding(
            place, message, hint=hint, related=related, fix=fix, severity=severity, facts=facts, assumptions=assumptions
        )


def happenings_of(tree: Seq, entry: Entry) -> Iterator[Happening]:
    """Yield the events of a tree with the nodes around them; a shared subtree once."""
    for node, around in _with_surroundings(tree):
        if isinstance(node, Event):
            yield Happening(node, entry, around)


def _with_surroundings(tree: Seq) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """Yield the nodes of a tree with those around them, outermost first; a shared subtree once."""
    pending: list[tuple[Node, tuple[Node, ...]]] = [(tree, ())]
    seen: set[int] = set()
    while pending:
        node, around = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node, around
        if node.__class__ is not Event:  # most nodes are, and have none inside
            inner = around if isinstance(node, Seq) else (*around, node)
            pending += [(child, inner) for child in reversed(children(node))]
