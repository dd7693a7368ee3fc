"""The one mutable store: variables by frame and name, fields by object and name, with a trail to go back.

A branch costs what it writes: its changes are taken from the trail, undone, and joined with those of the other branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dslint.python.values import Value

Key = tuple[object, object]


class Store:
    """Cells that hold values.

    `base` holds what modules have set up; nothing that happens in a run is kept there.
    """

    def __init__(self) -> None:
        self.cells: dict[Key, Value] = {}
        self.base: dict[Key, Value] = {}
        self.trail: list[tuple[Key, Value | None]] = []
        # What the calls that are being summarised have read before they wrote it, and what they have written.
        self.reads: dict[Key, Value | None] | None = None
        self.written: set[Key] = set()
        # The names of the cells of each owner, so that the fields of an object can be listed.
        self.names: dict[object, dict[object, None]] = {}

    def get(self, key: Key) -> Value | None:
        """Return the value of a cell; `None` when nothing was stored."""
        found = self.cells.get(key)
        if found is None:
            found = self.base.get(key)
        reads = self.reads
        if reads is not None and key not in reads and key not in self.written:
            reads[key] = found
        return found

    def peek(self, key: Key) -> Value | None:
        """Return the value of a cell without counting it as read."""
        found = self.cells.get(key)
        return found if found is not None else self.base.get(key)

    def set(self, key: Key, value: Value) -> None:
        """Store a value."""
        if self.reads is not None:
            self.written.add(key)
        old = self.cells.get(key)
        if old is value:
            return
        self.trail.append((key, old))
        self.cells[key] = value
        if old is None:
            owner, name = key
            names = self.names.get(owner)
            if names is None:
                self.names[owner] = {name: None}
            else:
                names[name] = None

    def mark(self) -> int:
        """Return a point to go back to."""
        return len(self.trail)

    def changes(self, mark: int) -> dict[Key, Value]:
        """Return the cells that were written after `mark`, with their values now."""
        cells = self.cells
        return {key: cells[key] for key, _ in self.trail[mark:] if key in cells}

    def undo(self, mark: int) -> None:
        """Forget what was written after `mark`."""
        cells = self.cells
        for key, old in reversed(self.trail[mark:]):
            if old is None:
                cells.pop(key, None)
            else:
                cells[key] = old
        del self.trail[mark:]

    def forget(self, owner: object, mark: int) -> None:
        """Remove the cells of an owner that were written after `mark`: the variables of a call that is over."""
        kept = []
        for entry in self.trail[mark:]:
            if entry[0][0] == owner:
                self.cells.pop(entry[0], None)
            else:
                kept.append(entry)
        if len(kept) < len(self.trail) - mark:
            self.trail[mark:] = kept

    def apply(self, changes: Mapping[Key, Value]) -> None:
        """Write all changes."""
        for key, value in changes.items():
            self.set(key, value)

    def history(self, mark: int) -> dict[Key, list[Value]]:
        """Return every value that the cells written after `mark` had on the way, their last one included."""
        found: dict[Key, list[Value]] = {}
        for key, old in self.trail[mark:]:
            values = found.setdefault(key, [])
            before = old if old is not None else self.base.get(key)
            if before is not None:
                values.append(before)
        for key, values in found.items():
            if key in self.cells:
                values.append(self.cells[key])
        return found

    def absent(self, keys: Iterable[Key], mark: int) -> list[Key]:
        """Return the cells in which nothing was stored at `mark`."""
        old: dict[Key, Value | None] = {}
        for key, value in self.trail[mark:]:
            if key not in old:
                old[key] = value
        return [
            key for key in keys if (old[key] is None and key not in self.base if key in old else self.peek(key) is None)
        ]

    def settle(self, mark: int) -> None:
        """Make what was written after `mark` part of the base: the body of a module has run."""
        changes = self.changes(mark)
        self.undo(mark)
        for key in changes:
            self.cells.pop(key, None)
        self.base.update(changes)
