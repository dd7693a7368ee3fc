"""What a call of a library gives: the value of a `returns` form, for the arguments of one call."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslint.python import attributes, containers, shares
from dslint.python.binding import Arguments, BoundArguments, default_of
from dslint.python.environment import COLUMNS, by_rank
from dslint.python.heap import CONTENT
from dslint.python.joins import join, join_all
from dslint.python.libraries import Returns, Row
from dslint.python.machine import Machine
from dslint.python.models import note_wrapper
from dslint.python.operators import constant_atom
from dslint.python.values import (
    NOTHING,
    OPAQUE,
    Atom,
    ClassAtom,
    Const,
    Instance,
    Tuple,
    Unknown,
    Value,
    const,
    one,
    unknown,
)
from dslint.python.varies import DATA, DIVERGENT, NODE, RANK, RANKED

# What nobody knows of a number that counts within a group of ranks.
GROUP_RANK, GROUP_SIZE = "rank in a group", "size of a group"


class Place:
    """One call of a row: what its result is made of.

    `owner` is the class through which a class method is called; `anchor` an object and a name: what is made is then
    the same object at every place that reads that name.
    """

    def __init__(self, m: Machine, row: Row, bound: BoundArguments, receiver: Atom | None, node: ast.AST,
                 varies: int = 0, shape: int = 0, made_by: frozenset[Instance] = frozenset(),
                 operands: list[Value] | None = None) -> None:  # fmt: skip
        self.m, self.row, self.bound, self.receiver, self.node = m, row, bound, receiver, node
        self.varies, self.shape, self.made_by, self.operands = varies, shape, made_by, operands or []
        self.owner: ClassAtom | str = ""
        self.anchor: tuple[Instance, str] | None = None

    @property
    def origin(self) -> object:
        """Return where the difference between ranks came from."""
        for operand in self.operands:
            found = self.m.origin(operand)
            if found is not None:
                return found
        if self.row.varies and self.row.varies & DIVERGENT:
            return (self.m.frame.module, self.node)
        return None

    def make(self, returns: Returns, at: int = 0) -> Value:
        """Return the value of a `returns` form."""
        word = returns.word
        if word in COLUMNS:
            return by_rank(self.m, COLUMNS[word])
        handler = _FORMS.get(word)
        if handler is not None:
            return handler(self, returns)
        if word in ("int", "float", "str", "bool", "bytes"):
            atom = Unknown(OPAQUE, f"result of `{self.row.path}`", f"builtins.{word}")
            return Value(frozenset((atom,)), self.varies, 0, self.made_by, self._number(), self.origin)  # type: ignore[arg-type]
        return self.fresh("", at)

    def _number(self) -> object:
        if self.anchor is not None:
            return ("field", *self.anchor)
        if self.row.varies == NODE and not self.operands:
            return (self.row.path, ())  # how many devices a machine has does not change while a process lives
        if self.row.varies is not None and self.row.varies != 0:
            return None
        numbers = tuple(v.number if v.number is not None else v.single for v in self.operands)
        impure = self.row.tags & {"collective", "reads-file"}
        return None if impure or None in numbers else (self.row.path, numbers)

    def fresh(self, cls: ClassAtom | str, at: int = 0) -> Value:
        """Return a new object with unknown content."""
        m = self.m
        atom = Unknown(OPAQUE, f"result of `{self.row.path}`", cls if isinstance(cls, str) else "")
        content = Value(frozenset((atom,)), self.varies, self.shape, self.made_by, None, self.origin)  # type: ignore[arg-type]
        if self.anchor is not None:
            return self._anchored(cls, at, content)
        if not at:
            return m.made(self.node, cls, content)
        loops = m.frame.loops
        instance = m.instance(self.node, m.context((m.frame.id, at)), cls, loops[-1].number if loops else 0)
        m.store.set((instance, CONTENT), content)
        return one(instance)

    def _anchored(self, cls: ClassAtom | str, at: int, content: Value) -> Value:
        m = self.m
        assert self.anchor is not None
        base = self.anchor[0]
        instance = m.instance(base.node, m.context((*self.anchor, at)), cls, base.loop)
        if m.store.get((instance, CONTENT)) is None:
            m.store.set((instance, CONTENT), content)
        return Value(frozenset((instance,)), 0, 0, frozenset(), ("field", *self.anchor, at))

    def parameter(self, returns: Returns) -> Value:
        """Return an argument itself; a part for each rank differs between them."""
        given, place = self.given(returns.name), (self.m.frame.module, self.node)
        if "shards-data" not in self.row.tags:
            return given
        varies, shape = given.varies | (self.row.varies or 0), given.shape | self.row.shape
        return Value(given.atoms, varies, shape, given.made_by, given.number, place)

    def given(self, name: str) -> Value:
        """Return what a parameter holds; its default where nothing is passed."""
        name = name.lstrip("*")
        found = self.bound.given.get(name)
        if found is not None:
            return found
        if self.row.parameters is not None and name not in self.bound.maybe:
            default = default_of(self.row.parameters, name)
            if isinstance(default, ast.Constant):
                return const(default.value)
        return unknown(OPAQUE, f"parameter `{name}` of `{self.row.path}`")

    def counted(self, returns: Returns) -> Value:
        """Return a number that each rank counts for itself where an argument differs between them."""
        atom = Unknown(OPAQUE, f"number in `{self.row.path}`", "builtins.int")
        given = self.bound.given.get(returns.name)
        if given is None:
            return Value(frozenset((atom,)), self.varies)
        varies = self.m.varies(given) | self.varies
        varies |= DATA if varies & DIVERGENT else 0
        return Value(frozenset((atom,)), varies, 0, frozenset(), None, self.m.origin(given))

    def tuple(self, returns: Returns) -> Value:
        """Return a tuple; `field NAME` in it is an attribute of its first part."""
        found: list[Value] = []
        for at, part in enumerate(returns.parts):
            first = found[0].single if found else None
            if part.word == "field" and isinstance(first, Instance):
                found.append(attributes.read(self.m, one(first), part.name, self.node))
            else:
                found.append(self.make(part, at + 1))
        return one(Tuple(tuple(found)))

    def list(self, returns: Returns) -> Value:
        """Return a list of unknown length."""
        element = join_all(self.make(part, 1) for part in returns.parts)
        made = containers.new_list(self.m, self.node, [], element)
        atom = made.single
        assert isinstance(atom, Instance)
        self.m.store.set((atom, "#length"), unknown(OPAQUE, "length", self.shape, 0, "builtins.int"))
        return made

    def iterator(self, returns: Returns) -> Value:
        """Return something that gives such things when it is iterated over."""
        made = self.fresh("builtins.iterator")
        atom = made.single
        assert isinstance(atom, Instance)
        self.m.store.set((atom, "#yields"), join_all(self.make(part, 1) for part in returns.parts))
        return made

    def parts(self, _returns: Returns) -> Value:
        """Return parts that need not have one length."""
        shares.note_parts(self.m, self.bound.given, one(self.receiver) if self.receiver else None, self.node)
        made = self.fresh("")
        self.m.store.set((made.single, "#parts"), const(True))
        return made

    def new(self, returns: Returns) -> Value:
        """Return a new object of a library class, or of the class through which a class method was called."""
        m = self.m
        cls = self._class_of(returns.name)
        if isinstance(cls, ClassAtom) and cls is self.owner:
            return _constructed(m, cls, self.bound, self.node)
        made = self.fresh(cls)
        atom = made.single
        assert isinstance(atom, Instance)
        if self.anchor is not None and m.store.get((atom, "#made")) is not None:
            return made
        for name, part in returns.fields:
            m.store.set((atom, name), self.make(part, 1))
        named = dict(returns.fields)
        for base in m.libraries.lineage(returns.name):
            for name, part in base.fields.items():
                if name not in named and part.word == "parameter" and part.name in self.bound.given:
                    m.store.set((atom, name), self.bound.given[part.name])
        if returns.name == "accelerate.PreparedModel":
            note_wrapper(m, m.store.get((atom, "module")), atom)
        if self.anchor is not None:
            m.store.set((atom, "#made"), const(True))
        row = m.libraries.class_(returns.name)
        if row is not None and row.kind in _WITH_ITEMS and m.store.get((atom, "#yields")) is None:
            from dslint.python.handed import contents

            contents(m, row, self.bound, atom, self.node)
            self._keep_share(atom)
        return made

    def _keep_share(self, made: Instance) -> None:
        """Give what a method makes of a part that a rank has the shape of that part: `share.map(f)`."""
        m, base = self.m, self.receiver
        if not self.row.extra.get("same_class") or not isinstance(base, Instance):
            return
        old, new = m.content(base), m.content(made)
        share = m.shape(one(base)) & RANKED if old is not None else 0
        if share and new is not None:
            m.store.set((made, CONTENT), new.with_(0, share))

    def _class_of(self, path: str) -> ClassAtom | str:
        """Return the class of a new object: `same_class` and `engine_of` may name another."""
        m, extra = self.m, self.row.extra
        if extra.get("same_class"):
            own = self.owner or (self.receiver.cls if isinstance(self.receiver, Instance) else "")
            if own and own != path and attributes.is_instance_of(m, own, path):
                return own
        engines = extra.get("engine_of")
        if engines:
            model = self.bound.given.get(extra.get("wraps", "model"))
            for atom in model.atoms if model is not None else ():
                for wanted, engine in engines.items():
                    if isinstance(atom, Instance) and atom.cls and attributes.is_instance_of(m, atom.cls, wanted):
                        return str(engine)
        return path

    def parameters(self, returns: Returns) -> Value:
        """Return the star arguments, each as the call wraps it; a single one bare."""
        from dslint.python.wrappers import wrapped

        values = [wrapped(self.m, self.row, v, at, self.node, False) for at, v in enumerate(self.bound.extra)]
        if self.bound.rest is not None:
            return join_all([*values, self.bound.rest])
        return values[0] if len(values) == 1 else one(Tuple(tuple(values)))

    def wrapped(self, returns: Returns) -> Value:
        """Return an argument as the call wraps it."""
        from dslint.python.wrappers import wrapped

        sure = self.row.extra.get("wraps") == returns.name and bool(self.row.tags & {"wraps-model", "replicates-model"})
        return wrapped(self.m, self.row, self.given(returns.name), 0, self.node, sure)

    def either(self, returns: Returns) -> Value:
        """Return one of several; after a parameter, what comes next is only for where it is not given."""
        first, *rest = returns.parts
        if first.word != "parameter":
            return join_all(self.make(part, at) for at, part in enumerate(returns.parts) if self._may_come(part.name))
        given = self.bound.given.get(first.name)
        kept = frozenset(a for a in given.atoms if a != Const(None)) if given is not None else frozenset()
        if given is not None and kept == given.atoms:
            return given
        other = join_all(self.make(part, at + 1) for at, part in enumerate(rest))
        return (
            other if not kept or given is None else join(Value(kept, given.varies, given.shape, given.made_by), other)
        )

    def _may_come(self, cls: str) -> bool:
        """Return whether the arguments let a call give this class: `comes_with` of its row."""
        for condition in filter(None, self.row.extra.get("comes_with", {}).get(cls, "").split(", ")):
            name = condition.removeprefix("not ")
            true, false, _ = self.m.truth(self.given(name))
            if not (true if name == condition else false):
                return False
        return True

    def when(self, returns: Returns) -> Value:
        """Return the value where a parameter is true, `None` where it is not."""
        test = self.given(returns.name)
        true, false, _ = self.m.truth(test)
        found = self.make(returns.parts[0]) if true else NOTHING
        return join(found, const(None)) if false else found

    def self_(self, returns: Returns) -> Value:
        """Return the receiver."""
        return one(self.receiver) if self.receiver is not None else (self.operands[-1] if self.operands else NOTHING)

    def field(self, returns: Returns) -> Value:
        """Return an attribute of the receiver."""
        if isinstance(self.receiver, Instance):
            found = self.m.store.get((self.receiver, returns.name))
            return found if found is not None else attributes.child(self.m, self.receiver, returns.name)
        return self.fresh("")

    def constant(self, returns: Returns) -> Value:
        """Return a constant."""
        return one(constant_atom(ast.literal_eval(returns.name)))

    def group_rank(self, returns: Returns) -> Value:
        """Return the rank inside a group, or the size of the group."""
        is_rank = returns.word == "group-rank"
        group = self.given(returns.name) if returns.name != "self" else None
        if group is not None and group.constants == (None,):
            return by_rank(self.m, 0 if is_rank else 3)
        atom = Unknown(OPAQUE, GROUP_RANK if is_rank else GROUP_SIZE, "builtins.int")
        return Value(frozenset((atom,)), RANK if is_rank else 0)

    def is_rank(self, returns: Returns) -> Value:
        """Return what is true on one rank only."""
        from dslint.python.comparisons import compared

        ranks = by_rank(self.m, 0 if returns.word == "is-rank" else 1)
        wanted = int(returns.name) if returns.name.isdigit() else 0
        return compared(self.m, ast.Eq, ranks, const(wanted), self.node)

    def unwrapped(self, returns: Returns) -> Value:
        """Return the model inside wrapped ones."""
        from dslint.python.wrappers import unwrapped

        return unwrapped(self.m, self.given(returns.name))

    def copied(self, returns: Returns) -> Value:
        """Return a new object like an old one."""
        from dslint.python.wrappers import copied

        return copied(self.m, self.given(returns.name) if returns.name != "self" else self.self_(returns), self.node)

    def deeply_copied(self, returns: Returns) -> Value:
        """Return a new object like an old one, with copies of what it holds."""
        from dslint.python.wrappers import deeply_copied

        return deeply_copied(self.m, self.given(returns.name), self.node)

    def environment(self, returns: Returns) -> Value:
        """Return an environment variable."""
        from dslint.python.environment import variable

        default = self.bound.given.get("default")
        return variable(self.m, self.given(returns.name), default if default is not None else const(None), self.node)


# Kinds of classes whose objects hold items, whoever makes them.
_WITH_ITEMS = ("loader", "dataset", "dataset-dict")
_FORMS: dict[str, Callable[[Place, Returns], Value]] = {
    "none": lambda place, returns: const(None),
    "parameter": Place.parameter,
    "wrapped": Place.wrapped,
    "parameters": Place.parameters,
    "self": Place.self_,
    "field": Place.field,
    "new": Place.new,
    "tuple": Place.tuple,
    "list": Place.list,
    "iterator": Place.iterator,
    "parts": Place.parts,
    "or": Place.either,
    "if": Place.when,
    "constant": Place.constant,
    "Work": lambda place, returns: place.fresh("torch.distributed.Work"),
    "group-rank": Place.group_rank,
    "group-size": Place.group_rank,
    "is-rank": Place.is_rank,
    "is-local-rank": Place.is_rank,
    "unwrapped": Place.unwrapped,
    "copy": Place.copied,
    "deep-copy": Place.deeply_copied,
    "number": Place.counted,
    "environment": Place.environment,
    "context": lambda place, returns: place.fresh("builtins.context"),
}


def _constructed(m: Machine, cls: ClassAtom, bound: BoundArguments, node: ast.AST) -> Value:
    """Return a new object of a class of the project that a library makes: its constructor runs with what is known."""
    from dslint.python.entries import open_arguments
    from dslint.python.objects import _initializer, construct

    own = _initializer(m, cls)
    arguments = open_arguments(m, own, True) if own is not None else Arguments()
    for name in set(arguments.keywords) & set(bound.given):
        arguments.keywords[name] = bound.given[name]
    made = construct(m, cls, arguments, node)
    m.alive = True
    return made


def make(m: Machine, returns: Returns, row: Row, bound: BoundArguments, receiver: Atom | None, node: ast.AST) -> Value:
    """Return the value of a `returns` form outside of a call: a field, the items of a loader."""
    operands = list(bound.given.values())
    varies = 0
    for operand in operands:
        varies |= m.varies(operand)
    from dslint.python.varies import LOST

    return Place(m, row, bound, receiver, node, varies & LOST, 0, frozenset(), operands).make(returns, 2)
