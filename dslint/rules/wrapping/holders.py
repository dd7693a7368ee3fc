"""Of what an object is a part: the module of a parameter, the parameter of its `.data`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from dslint.python.values import Instance, Value
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances


class Holders:
    """Answers for one run of a script."""

    def __init__(self, run: RunQuery) -> None:
        self.run = run

    def shares(self, value: Value | None, gathered: list[Value | None]) -> bool:
        """Return whether what a value may be is one of several tensors, or belongs to the model that gave them all."""
        tensors = {atom for listed in gathered for atom in instances(listed)}
        whole = {owner for atom in tensors for owner in self._listed.get(id(atom.node), ())}
        for atom in instances(value):
            if atom in tensors or self._tensor(atom) in tensors:
                return True
            if any(owner in whole for owner in self.above(atom)):
                return True
        return False

    def above(self, atom: Instance) -> Iterator[Instance]:
        """Yield an object, the models whose parameters it is one of, and all that these are fields of."""
        pending, seen = [atom], set[Instance]()
        while pending:
            inner = pending.pop()
            if inner in seen:
                continue
            seen.add(inner)
            yield inner
            pending += self._listed.get(id(inner.node), ())
            if inner.context in self._fields:
                pending.append(self._fields[inner.context][0])

    def _tensor(self, atom: Instance) -> Instance | None:
        """Return the tensor of an unknown class whose `.data` an object is."""
        holder, name = self._fields.get(atom.context, (None, ""))
        return holder if name == "data" else None

    @cached_property
    def _fields(self) -> dict[int, tuple[Instance, str]]:
        """Return the object and the name of each field that was read before anything set it, by its context."""
        return self.run.machine.fields()

    @cached_property
    def _listed(self) -> dict[int, tuple[Instance, ...]]:
        """Return the models by the calls that list their parameters."""
        found: dict[int, tuple[Instance, ...]] = {}
        for happening in self.run.occurrences("parameters"):
            event = happening.event
            found[id(event.node)] = (*found.get(id(event.node), ()), *instances(event.receiver))
        return found
