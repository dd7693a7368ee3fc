"""How an interpretation goes on: truth, branches and how they meet again, and the ways to leave a block."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslint.python import bindings, formulas
from dslint.python.bars import is_of_earlier_turn, same_items
from dslint.python.events import Alt, Exit, Lost, raises
from dslint.python.heap import (
    CONTAINERS,
    ITEMS,
    LENGTH,
    RAN,
    REST,
    UNFINISHED,
    Heap,
    Outcome,
    OutOfBudgetError,
)
from dslint.python.jobtests import asks_for_job
from dslint.python.joins import is_same, is_told, join, rank_or_constant
from dslint.python.operators import per_rank
from dslint.python.paths import MADE_OF, one_path
from dslint.python.store import Key
from dslint.python.values import (
    FALSE,
    NOTHING,
    OPAQUE,
    TRUE,
    UNKNOWN_LANE,
    Atom,
    ClassAtom,
    Const,
    Instance,
    PerRank,
    Property,
    Tuple,
    Unknown,
    Value,
    one,
)
from dslint.python.varies import DIVERGENT, LOST, NAMED_RANK, RANKED, TOLD, WORLD


class Machine(Heap):
    """Interprets modules and functions. One machine serves all entries that look at the same worlds."""

    # -- lanes and truth ----------------------------------------------------------------------------------------

    def truth(self, value: Value) -> tuple[int, int, int]:
        """Return the lanes on which a value may be true, those on which it may be false, and why ranks may differ."""
        decided = self.path.get(value.number) if value.number is not None else None
        if decided is not None:
            self.decided[value.number] = decided
            return (self.lanes, 0, 0) if decided else (0, self.lanes, 0)
        varies = self.varies(value)
        true = false = self.asked_varies = 0
        only_world = bool(varies & WORLD) and not varies & RANKED and not self.worlds.stated
        for atom in value.atoms:
            yes, no = self._atom_truth(atom)
            true, false = true | yes, false | no
        if only_world and any(isinstance(atom, PerRank) for atom in value.atoms):
            true = false = self.lanes
        elif formulas.is_compound(value.number):
            yes, no = formulas.lanes(self.worlds, value.number, self.path)
            if self.lanes & ~((true & yes) | (false & no)) == 0:
                true, false = true & yes, false & no
        return true & self.lanes, false & self.lanes, varies | self.asked_varies

    def _atom_truth(self, atom: Atom) -> tuple[int, int]:
        full = self.worlds.full
        if isinstance(atom, Const):
            return (full, 0) if atom.value else (0, full)
        if isinstance(atom, PerRank):
            true = self.worlds.mask(lambda lane: atom.values[lane] is UNKNOWN_LANE or bool(atom.values[lane]))
            false = self.worlds.mask(lambda lane: atom.values[lane] is UNKNOWN_LANE or not atom.values[lane])
            return true, false
        if isinstance(atom, Tuple):
            return (full, 0) if atom.items else (0, full)
        if isinstance(atom, Instance):
            return self._instance_truth(atom)
        return (full, full) if isinstance(atom, Unknown) or not self._is_always_true(atom) else (full, 0)

    def _instance_truth(self, atom: Instance) -> tuple[int, int]:
        full = self.worlds.full
        if atom.cls == "builtins.list":
            items = self.store.get((atom, ITEMS))
            if items is not None and items.atoms and self.store.get((atom, REST)) is None:
                found = {bool(choice.items) for choice in items.atoms if isinstance(choice, Tuple)}
                return (full if True in found else 0, full if False in found else 0)
        if isinstance(atom.cls, ClassAtom):
            return self._own_truth(atom, full)
        content = self.content(atom)
        if content is not None:
            true = false = 0
            for inner in content.atoms:
                yes, no = self._atom_truth(inner) if not isinstance(inner, Instance) else (full, full)
                true, false = true | yes, false | no
            return true, false
        if isinstance(atom.cls, str) and atom.cls and atom.cls not in CONTAINERS:
            row = self.libraries.class_(atom.cls)
            if row is not None and row.kind:
                return full, 0
        return full, full

    def _own_truth(self, atom: Instance, full: int) -> tuple[int, int]:
        """Ask `__bool__` or `__len__` of an object of the project; without them it is true."""
        from dslint.python.attributes import lineage
        from dslint.python.special import call_special

        for name in ("__bool__", "__len__"):
            answer = call_special(self, one(atom), name, [], atom.node)
            if answer is not None:
                true, false, varies = self.truth(answer) if self.alive else (full, full, 0)
                self.asked_varies |= varies
                return true, false
        is_open = any(base == "" for base in lineage(self, atom.cls)) if isinstance(atom.cls, ClassAtom) else True
        return full, full if is_open else 0

    def _is_always_true(self, atom: Atom) -> bool:
        from dslint.python.values import Api

        if isinstance(atom, Api):
            return self.libraries.function(atom.path) is not None or self.libraries.class_(atom.path) is not None
        return True

    # -- branches -----------------------------------------------------------------------------------------------

    def branch(self, alt: Alt, then: Callable[[], None], orelse: Callable[[], None], number: object = None) -> None:
        """Run both sides of a test on the lanes that may take them, and join what they leave behind."""
        mark, lanes, control, path, events = self.store.mark(), self.lanes, self.control, self.path, self.events
        splits = bool(alt.then_lanes & alt.else_lanes)
        outcomes: list[Outcome] = []
        raised = False
        for run, seq, mask, holds in (
            (then, alt.then, alt.then_lanes, True),
            (orelse, alt.orelse, alt.else_lanes, False),
        ):
            if not mask:
                continue
            self.lanes = mask
            self.control = control | alt.varies if splits else control
            self.path = {**path, **formulas.implied(number, holds)} if number is not None and splits else path
            self.events = seq.items
            try:
                run()
            except OutOfBudgetError:
                self.give_up(alt, seq.items)
                if seq is alt.then and alt.else_lanes:
                    alt.orelse.items.append(Lost(UNFINISHED, alt.node))
                raise
            if self.alive:
                outcomes.append(Outcome(self.store.changes(mark), self.lanes, self.control))
            elif raises(seq):
                raised = True
            self.store.undo(mark)
            self.alive = True
        self.events, self.path, self.lanes, self.control = events, path, lanes, control
        self.split, self.asked = (alt.module, alt.node), (alt.node, alt.test)
        self.meet(outcomes, alt.varies if splits else 0)
        self.split = self.asked = None
        if len(outcomes) == 1 and alt.then_lanes and alt.else_lanes and not raised:
            self.lanes = outcomes[0].lanes
            self.control = outcomes[0].control

    def meet(self, outcomes: list[Outcome], varies: int) -> None:
        """Join the ways that lead on from here; none leads on when there are none."""
        if not outcomes:
            self.alive = False
            return
        self.alive = True
        if len(outcomes) == 1:
            self.store.apply(outcomes[0].changes)
            return
        new: dict[object, bool] = {}
        for key in dict.fromkeys(key for outcome in outcomes for key in outcome.changes):
            base = self.store.get(key)
            found, lanes = NOTHING, 0
            for outcome in outcomes:
                value = outcome.changes.get(key, base)
                if key[1] == MADE_OF and key not in outcome.changes:
                    continue  # a way that did not make the path knows of that of an earlier turn at most
                if is_of_earlier_turn(self, key, outcome):
                    continue
                if value is None or not value.atoms:
                    if value is None and self._is_new(key[0], new):
                        continue
                    self.note_absence(key, outcomes, varies)
                    value = self.absent_value(key) if value is None else value
                    if value is None:
                        continue
                found = self.selected(found, lanes, value, outcome.lanes, varies) if found.atoms else value
                lanes |= outcome.lanes
            if found.atoms:
                if key[1] == LENGTH:
                    bits = self.length_bits(key, outcomes, varies)
                    found = found.with_(bits, origin=self.split if bits & DIVERGENT else None)
                self.store.set(key, bindings.marked(self, key, found, outcomes, base))

    def length_bits(self, key: Key, outcomes: list[Outcome], varies: int) -> int:
        """Return by what a number of items differs that changes on some of the ways only that meet."""
        changing = [outcome for outcome in outcomes if key in outcome.changes]
        if len(changing) == len(outcomes):
            return 0
        lanes = others = 0
        for outcome in outcomes:
            if key in outcome.changes:
                lanes |= outcome.lanes
            else:
                others |= outcome.lanes
        return varies if lanes & others else self.split_varies(lanes)

    def _is_new(self, owner: object, known: dict[object, bool]) -> bool:
        """Return whether an object was made on one of the ways that meet here: on the others there is none."""
        if not isinstance(owner, Instance):
            return False
        found = known.get(owner)
        if found is None:
            peek = self.store.peek
            found = known[owner] = all(peek((owner, name)) is None for name in self.store.names.get(owner, ()))
        return found

    def note_absence(self, key: Key, outcomes: list[Outcome], varies: int) -> None:
        """Remember that an item or a field is there on some of the ways only that meet here."""
        owner, name = key
        if not isinstance(owner, Instance):
            return
        if isinstance(name, tuple) and name[0] == "key":
            self.store.set((owner, ("maybe", name[1])), TRUE)
            lanes = outcomes[0].lanes
            bits = varies if all(o.lanes == lanes for o in outcomes) else varies | self.split_varies(lanes)
            old = self.store.get((owner, LENGTH))
            number = Value(frozenset((Unknown(OPAQUE, "length", "builtins.int"),)), bits)
            if bits & DIVERGENT:
                number = Value(number.atoms, bits, 0, frozenset(), None, self.split)
            self.store.set((owner, LENGTH), number.with_(old.varies, origin=old.origin) if old is not None else number)
        elif isinstance(name, tuple):
            if name[0] in ("option", "default"):  # of a parser
                self.store.set((owner, ("maybe", name)), TRUE)
        elif isinstance(name, str) and not name.startswith("#") and isinstance(owner.cls, ClassAtom):
            self.store.set((owner, ("maybe", name)), TRUE)

    def lacks(self, key: Key) -> bool:
        """Return whether it is noted that an item or a field may be absent."""
        owner, name = key
        is_item = isinstance(name, tuple) and name[0] == "key"
        is_field = isinstance(name, str) and not name.startswith("#")
        if not isinstance(owner, Instance) or not (is_item or (is_field and isinstance(owner.cls, ClassAtom))):
            return True
        found = self.store.get((owner, ("maybe", name[1] if isinstance(name, tuple) else name)))
        return found is not None and bool(found.atoms)

    def absent_value(self, key: Key) -> Value | None:
        """Return what a field holds that nothing has set: of the class, or of an object that nobody knows."""
        from dslint.python import attributes

        owner, name = key
        if name == RAN:
            return FALSE
        if not isinstance(owner, Instance) or not isinstance(name, str) or name.startswith("#"):
            return None
        if isinstance(owner.cls, ClassAtom):
            found = attributes.of_class(self, owner.cls, name, owner)
            return found if found is not None and not any(isinstance(a, Property) for a in found.atoms) else None
        return attributes.child(self, owner, name) if self.content(owner) is not None else None

    def selected(self, first: Value, first_lanes: int, second: Value, second_lanes: int, varies: int) -> Value:
        """Return what a variable holds where two ways meet, each on its own lanes."""
        if first == second and is_same(first, second):
            return first
        path = one_path(self, first, second)
        if path is not None:
            return path
        if same_items(self, first, second):
            return join(first, second)
        if first_lanes & second_lanes:
            if not varies & (DIVERGENT | LOST):
                ranked = rank_or_constant(first, second)
                if ranked is not None and first_lanes == second_lanes and self._asked_for_job():
                    return ranked
                if is_told(first, second):
                    return self._told(first, second, is_job=self._asked_for_job())
            if first_lanes == second_lanes:
                return self._met(join(first, second, varies), first, second)
            varies |= self.split_varies(second_lanes) | self.split_varies(first_lanes)
            return self._from_split(self._met(join(first, second, varies), first, second))
        if is_told(first, second):
            return self._told(first, second, is_job=True)
        by_rank = self._by_rank(first, first_lanes, second, second_lanes)
        by_rank = by_rank or self._items_by_rank(first, first_lanes, second, second_lanes)
        if by_rank is not None:
            return by_rank.with_(varies & NAMED_RANK)
        bits = self.split_varies(second_lanes) | varies & NAMED_RANK
        return self._from_split(self._met(join(first, second, bits), first, second))

    def _from_split(self, found: Value) -> Value:
        """Return a value with the test that has parted the ranks as the place where it begins to differ."""
        if self.split is None or not found.varies & RANKED:
            return found
        return Value(found.atoms, found.varies, found.shape, found.made_by, found.number, self.split)

    def _items_by_rank(self, first: Value, first_lanes: int, second: Value, second_lanes: int) -> Value | None:
        """Return a sequence of the same length on all ranks, each item by rank."""
        one, other = first.single, second.single
        if not isinstance(one, Tuple) or not isinstance(other, Tuple) or one.cls != other.cls:
            return None
        if len(one.items) != len(other.items):
            return None
        pairs = zip(one.items, other.items, strict=True)
        items = tuple(self.selected(a, first_lanes, b, second_lanes, 0) for a, b in pairs)
        return Value(frozenset((Tuple(items, one.cls),)), first.varies | second.varies, first.shape | second.shape)

    def _told(self, first: Value, second: Value, *, is_job: bool) -> Value:
        """Return what some ranks have and the others were told: where nothing is told, there is one process."""
        found = join(first, second, TOLD)
        # Of any other test nobody knows whether the ranks were told.
        lost = LOST if (found.varies | found.shape) & DIVERGENT and not is_job else 0
        bits, shape = found.varies & ~DIVERGENT | lost, found.shape & ~DIVERGENT | lost
        return self._met(Value(found.atoms, bits, shape, found.made_by, None, found.origin), first, second)

    def _asked_for_job(self) -> bool:
        return self.asked is not None and asks_for_job(*self.asked)

    def _met(self, value: Value, first: Value, second: Value) -> Value:
        """Give a value of several ways a number: who reads the variable twice reads the same value."""
        if value.is_lost or (value.number is not None and first.number == second.number):
            return value
        number = first.number if first.number is not None and first.number == second.number else None
        number = number or self.chosen_from(first, second)
        return Value(value.atoms, value.varies, value.shape, value.made_by, number, value.origin)

    def _by_rank(self, first: Value, first_lanes: int, second: Value, second_lanes: int) -> Value | None:
        columns = [self._column(value) for value in (first, second)]
        if columns[0] is None or columns[1] is None:
            return None
        if UNKNOWN_LANE in columns[0] and UNKNOWN_LANE in columns[1]:
            return None  # two things of which nothing is known: not one thing that is the same on all ranks
        values: list[object] = []
        for lane in range(self.worlds.count):
            if first_lanes >> lane & 1:
                values.append(columns[0][lane])
            elif second_lanes >> lane & 1:
                values.append(columns[1][lane])
            else:
                values.append(UNKNOWN_LANE)
        known = tuple(values)
        lanes = first_lanes | second_lanes
        if lanes == self.worlds.full:
            atom = per_rank(known)
        else:
            seen = {(type(v), v) for at, v in enumerate(known) if lanes >> at & 1}
            atom = Const(next(iter(seen))[1]) if len(seen) == 1 and UNKNOWN_LANE not in known[:0] else PerRank(known)
            if isinstance(atom, Const) and atom.value is UNKNOWN_LANE:
                atom = PerRank(known)
        bits = self.worlds.varies(known, lanes) if isinstance(atom, PerRank) else 0
        inner = (first.varies | second.varies) & ~(RANKED | WORLD)
        return Value(frozenset((atom,)), bits | inner, 0, frozenset(), None, first.origin or second.origin)

    def _column(self, value: Value) -> tuple[object, ...] | None:
        atom = value.single
        if isinstance(atom, Const):
            return (atom.value,) * self.worlds.count
        if isinstance(atom, PerRank):
            return atom.values
        if isinstance(atom, Unknown) and atom.type == "builtins.bool" and not self.varies(value) & LOST:
            return (UNKNOWN_LANE,) * self.worlds.count
        return None

    def split_varies(self, lanes: int) -> int:
        """Return by what the ranks inside a set of lanes differ from those outside."""
        return self.worlds.varies(tuple(bool(lanes >> lane & 1) for lane in range(self.worlds.count)), self.worlds.full)

    def leave(self, kind: str, node: ast.AST, value: Value | None = None, *, is_clean: bool = False) -> None:
        """Leave the block by `return`, `break`, `continue` or `raise`."""
        self.events.append(Exit(kind, node, is_clean))
        frame = self.frame
        if kind == "return":
            frame.returns.append(Outcome(self.store.changes(frame.mark), self.lanes, self.control, value, node))
        elif kind == "raise":
            if self.tries:
                mark, raised = self.tries[-1]
                raised.append(Outcome(self.store.changes(mark), self.lanes, self.control, value, node))
        elif frame.loops:
            state = frame.loops[-1]
            outcome = Outcome(self.store.changes(state.mark), self.lanes, self.control, None, node)
            (state.breaks if kind == "break" else state.continues).append(outcome)
        self.alive = False

    def new_loop(self, node: ast.AST) -> int:
        """Return the number of a loop in its frame."""
        key = (id(node), self.frame.id)
        found = self.shared.interned.loops.get(key) or self.own.loops.get(key)
        if found is None:
            found = self.new.loops[key] = self.number()
        return found
