"""What a call of a library does, by its row: the result, what it makes the same or different, its event, callbacks."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace

from dslint.python import (
    attributes,
    bynames,
    commandlines,
    configdicts,
    durations,
    memory,
    orders,
    parameters,
    paths,
    ragged,
    ranknames,
    seeds,
    widths,
)
from dslint.python.binding import Arguments, BoundArguments, bind
from dslint.python.effects import effects
from dslint.python.events import Event
from dslint.python.eventtags import is_plain_tensor
from dslint.python.exceptions import is_success
from dslint.python.handed import contents
from dslint.python.happenings import PLACES, WRAPPERS, handed_event, is_noted_early, noted_event
from dslint.python.hooks import callbacks, self_calls, trainer_callbacks
from dslint.python.launches import words
from dslint.python.libraries import READS, Returns, Row, parse_returns
from dslint.python.machine import Machine
from dslint.python.models import note_wrapper, patched, train_on_batches
from dslint.python.parsers import parser_made, read_call
from dslint.python.restrictions import lanes_of_call
from dslint.python.results import Place, make
from dslint.python.values import (
    OPAQUE,
    Api,
    Atom,
    Bound,
    ClassAtom,
    Instance,
    Partial,
    Unknown,
    Value,
    const,
    one,
    unknown,
)
from dslint.python.varies import DATA, DIVERGENT, HOST, LOST, NAMED_RANK, OWN_FILE, RANK, RANKED

# The parameters that take what the process ends with.
STATUS = ("status", "code")


def call_path(m: Machine, path: str, arguments: Arguments, node: ast.AST) -> Value:
    """Return the result of calling a library function or class."""
    from dslint.python.functions import FUNCTIONS
    from dslint.python.opaque import opaque_call

    path = m.libraries.canonical(path)
    special = FUNCTIONS.get(path)
    found = special(m, arguments, node) if special is not None else None
    if found is not None:
        return found
    row = m.libraries.function(path)
    if row is not None:
        return call_row(m, row, arguments, None, node, None)
    if m.libraries.class_(path) is not None:
        return construct_library(m, path, arguments, node)
    owner, _, name = path.rpartition(".")
    method = m.libraries.method(owner, name)  # called on its class
    named = method or bynames.loader_of(m, owner, name)
    if named is not None:
        return call_row(m, named, arguments, None, node, None, owner if method is not None else "")
    configdicts.by_name(m, name, arguments, node)
    handed_event(m, path, arguments, node)
    return ranknames.called(m, name, arguments, node) or opaque_call(m, arguments, node, f"no row for `{path}`")


def construct_library(m: Machine, path: str, arguments: Arguments, node: ast.AST) -> Value:
    """Return a new object of a library class."""
    made = m.made(node, path)
    atom = made.single
    assert isinstance(atom, Instance)
    return initialize(m, path, arguments, atom, node, made)


def initialize(
    m: Machine, path: str, arguments: Arguments, receiver: Atom, node: ast.AST, made: Value | None = None
) -> Value:
    """Run the constructor of a library class on an object, perhaps of a class that derives from it."""
    row = m.libraries.class_(path)
    if row is None or not isinstance(receiver, Instance):
        return const(None)
    constructor = next(
        (r.constructor for r in m.libraries.lineage(path) if r.constructor.parameters is not None), row.constructor
    )
    bound = _bound(m, constructor, arguments)
    computed = {name for base in m.libraries.lineage(path) for name in base.properties}
    for base in m.libraries.lineage(path):
        for name, returns in base.fields.items():
            if name in computed:
                continue
            place = Place(m, base.constructor, bound, receiver, node)
            place.anchor = (receiver, name) if returns.word in ("new", "or") else None
            value = place.make(returns) if place.anchor else make(m, returns, base.constructor, bound, receiver, node)
            m.store.set((receiver, name), value)
    contents(m, row, bound, receiver, node)
    seeds.initialized(m, row, receiver)
    if row.kind == "generator":
        seeds.generator_made(m, receiver, _row_varies(m, row.constructor, bound, 0), node)
    m.store.set((receiver, "#arguments"), const(None))
    unpacked = {"*": bound.rest} if bound.rest is not None else {}
    starred = {f"*{at}": value for at, value in enumerate(bound.extra)}
    for name, value in (bound.given | bound.extra_keywords | starred | unpacked).items():
        m.store.set((receiver, ("argument", name)), value)
    if row.kind in ("parser", "namespace"):
        parser_made(m, receiver, bound)
    if row.kind == "device":
        _numbered(m, bound, receiver)
    elif row.kind == "tensor":
        memory.called(m, row.constructor, bound, None, one(receiver), node)
    result = made or const(None)
    if row.kind == "duration" and not unpacked and bound.open_keywords is None:
        result = durations.made(result, bound.given)
    if row.kind == "path" and made is not None:
        whole = m.thing(node, "a path", (*arguments.positional, *unpacked.values()), path)
        result = paths.made(m, paths.joined([paths.known(m, v) for v in arguments.positional], whole, node=node))
    if row.constructor.tags:
        noted_event(m, row.constructor, bound, None, result, node)
    effects(m, row.constructor, bound, receiver, node)
    if row.kind == "ddp":
        note_wrapper(m, bound.given.get("module"), receiver)
    return result


def _numbered(m: Machine, bound: BoundArguments, device: Instance) -> None:
    """Keep by what the number of a device differs: where a tensor lies says nothing of what it holds, this does."""
    bits = 0
    for value in bound.given.values():
        bits |= m.varies(value)
    if bits:
        m.store.set((device, "index"), unknown(OPAQUE, "number of a device", bits, 0, "builtins.int"))


def _bound(m: Machine, row: Row, arguments: Arguments) -> BoundArguments:
    if row.parameters is None:
        given = {str(at): value for at, value in enumerate(arguments.positional)}
        nodes = {str(at): node for at, node in arguments.nodes.items()}
        return BoundArguments(
            {**given, **arguments.keywords}, nodes, rest=arguments.rest, open_keywords=arguments.open_keywords
        )
    bound = bind(row.parameters, arguments)
    for name, value in bound.given.items():
        if any(isinstance(atom, Api) for atom in value.atoms):
            bound.given[name] = _of_all_ranks(m, value)
    return bound


def _of_all_ranks(m: Machine, value: Value) -> Value:
    """Return what a library does with an argument: the group of all ranks is for it what `None` is."""
    rows = {a: m.libraries.value(a.path) for a in value.atoms if isinstance(a, Api)}
    groups = frozenset(atom for atom, row in rows.items() if row is not None and "all-ranks" in row.tags)
    return replace(value, atoms=value.atoms - groups | const(None).atoms) if groups else value


def call_row(m: Machine, row: Row, arguments: Arguments, receiver: Atom | None, node: ast.AST,
             base: Value | None, owner: str = "") -> Value:  # fmt: skip
    """Return the result of a function or method that a row describes, with all that it does."""
    bound = _bound(m, row, arguments)
    if "decorator" in row.tags and "decorates" in row.extra and row.extra["decorates"] not in bound.given:
        # `@on_process(process_index=1)`: the function comes with the next call.
        itself = Bound(row.path, receiver) if receiver is not None else Api(row.path)
        return one(Partial(one(itself), tuple(arguments.positional), tuple(arguments.keywords.items())))
    place = _place(m, row, bound, receiver, node, base)
    place.owner = receiver if isinstance(receiver, ClassAtom) else owner
    before = len(m.events)
    is_early = is_noted_early(m, row)
    if is_early:
        noted_event(m, row, bound, base, const(None), node, m.lanes)
    if row.tags & WRAPPERS or "forward" in row.tags:
        result = _forward(place, arguments)
    else:
        parsed = read_call(m, row, bound, receiver, node)
        result = parsed if parsed is not None else place.make(row.returns)
        if "path_from" in row.extra:
            result = _path(
                m, row, [base, *arguments.positional] if base is not None else arguments.positional, result, node
            )
    result = ragged.called(m, row, bound, base, result, node)
    memory.called(m, row, bound, base, result, node)
    lanes = lanes_of_call(m, row, place, result)
    order, seed = orders.drawn(m, row, bound, receiver)
    parameters.note_copy(m, row, base, result)
    if READS in row.tags:
        parameters.reading(m, [base] if base is not None else bound.given.values(), row.path, node)
    elif row.tags and lanes and not is_early and not is_plain_tensor(row, bound.given):
        noted_event(m, row, bound, base, result, node, lanes)
        orders.noted(m.events[-1], order, seed)
        m.events.insert(before, m.events.pop())  # the call begins before what it runs
    if row.returns.word == "context" and isinstance(result.single, Instance):
        _context(m, row, place, result.single)
    effects(m, row, bound, receiver, node)
    result = orders.marked(m, row, bound, result, node) if order else result
    callbacks(m, row, bound, receiver, node)
    self_calls(m, row, receiver, node)
    train_on_batches(m, row, receiver, node)
    trainer_callbacks(m, row, receiver, bound, node)
    if "exits" in row.tags:
        m.leave("raise", node, is_clean=_is_clean(row, bound))
    return result


def _is_clean(row: Row, bound: BoundArguments) -> bool:
    """Return whether a call that ends the process hands over status 0; what has no status ends it otherwise."""
    parameters = row.parameters
    taken = {p.arg for p in (*parameters.posonlyargs, *parameters.args)} if parameters is not None else set()
    return any(name in taken and is_success(bound.given.get(name)) for name in STATUS)


def _path(m: Machine, row: Row, operands: list[Value], result: Value, node: ast.AST) -> Value:
    """Return the result of a call that makes a path of others, which it tells from then on."""
    given = [paths.known(m, value) for value in operands]
    return paths.made(m, paths.derived(row.extra["path_from"], given, result, node))


def _context(m: Machine, row: Row, place: Place, manager: Instance) -> None:
    """Keep what a context manager does for the `with` statement around it."""
    tags = set(row.tags)
    local = row.extra.get("local")
    if local and m.truth(place.given(local)) == (m.lanes, 0, 0):
        tags = tags - {"main-first"} | {"local-main-first"}
        event = m.events[-1] if m.events else None
        if isinstance(event, Event) and event.api == row.path:
            event.tags = frozenset(tags)
    m.store.set((manager, "#tags"), const(" ".join(sorted(tags))))
    gives = row.extra.get("gives")
    if gives:
        m.store.set((manager, "#gives"), place.make(parse_returns(gives)).with_(place.varies, place.shape))


def _place(
    m: Machine, row: Row, bound: BoundArguments, receiver: Atom | None, node: ast.AST, base: Value | None
) -> Place:
    """Return one call with the causes for which its result may differ between ranks."""
    operands = [*bound.given.values(), *bound.extra, *bound.extra_keywords.values()]
    operands += [v for v in (bound.rest, bound.open_keywords, base) if v is not None]
    varies = shape = 0
    made_by: frozenset[Instance] = frozenset()
    places = [v for name, v in bound.given.items() if name in PLACES or name == row.extra.get("device")]
    if "moves-to-device" in row.tags and base is not None:
        places = [v for v in operands if v is not base]
    is_standard = row.path.partition(".")[0] in sys.stdlib_module_names  # looks at all that an object holds
    for operand in operands:
        made_by |= m.made_by(operand)
        if any(operand is place for place in places):
            continue  # where a tensor lies says nothing of what it holds
        varies |= m.deep_varies(operand) if is_standard else m.varies(operand)
        shape |= m.shape(operand)
    varies = _row_varies(m, row, bound, varies) | (seeds.drawn(m, row, bound) if receiver is None else 0)
    if row.extra.get("shape_of"):
        subject = bound.given.get(row.extra["shape_of"]) if row.extra["shape_of"] != "self" else base
        varies = m.shape(subject) if subject is not None else varies
    elif row.shape and row.extra.get("shape_without") not in bound.given:
        shape |= row.shape if varies & (DIVERGENT | LOST) or row.shape not in (DATA, RANK) else 0
        # As many as the data say: what else is known or unknown of the form of the data makes no difference.
        shape &= ~LOST if row.shape == DATA and varies & DIVERGENT else shape
    for name in row.extra.get("cuts", ()):
        shape |= m.varies(bound.given[name]) if name in bound.given else 0
    shape |= widths.joined(m, bound.given.get(row.extra.get("joins", "")))
    shape = widths.sized(m, bound.given.get(row.extra.get("sets_size", "")), shape)
    if row.varies == 0 and "collective" in row.tags:
        shape = 0  # what all ranks hold has one length
    if "ends_gradient" in row.extra:
        made_by = frozenset()
    return Place(m, row, bound, receiver, node, varies, shape, made_by, operands)


def _row_varies(m: Machine, row: Row, bound: BoundArguments, varies: int) -> int:
    if row.varies is None:
        return varies
    for key in ("seed", "clock_without", "random_without"):
        name = row.extra.get(key)
        if name:
            given = bound.given.get(name)
            if given is not None and given.constants != (None,):
                return varies
    if row.varies == 0:
        return 0
    asks_own = "path" in row.extra and row.varies & HOST and varies & RANKED
    return row.varies | (varies & LOST) | (varies & NAMED_RANK | OWN_FILE if asks_own else 0)


def field_value(m: Machine, returns: Returns, atom: Instance, name: str, node: ast.AST) -> Value:
    """Return a field of a library object whose constructor has not been seen."""
    if returns.word in ("parameter", "field", "opaque"):
        return attributes.child(m, atom, name)
    place = Place(m, Row(str(atom.cls), None), BoundArguments(), atom, node)
    place.anchor = (atom, name)
    return place.make(returns)


def result_of_value(m: Machine, row: Row) -> Value:
    """Return the value of a module-level name of a library."""
    told = words(m) if row.path == "sys.argv" else None
    node = m.frame.call or m.frame.module.tree
    if told is None and row.path == commandlines.ARGV.path:
        return commandlines.argv(m, node)
    return told or Place(m, row, BoundArguments(), None, node, row.varies or 0).make(row.returns)


def result_of_property(m: Machine, row: Row, atom: Instance, node: ast.AST) -> Value:
    """Return the value of a property of a library object."""
    varies = m.varies(one(atom)) if row.varies is None else row.varies
    shape = m.shape(one(atom))
    made_by = m.made_by(one(atom))
    if row.extra.get("shape_of") == "self":
        varies = shape
    place = Place(m, row, BoundArguments(), atom, node, varies, shape, made_by, [one(atom)])
    if row.returns.word == "new":
        place.anchor = (atom, row.path)
    found = place.make(row.returns)
    if "path_from" in row.extra:
        found = _path(m, row, [one(atom)], found, node)
    if row.tags - {READS}:
        noted_event(m, row, BoundArguments(), one(atom), found, node)
    return found


def _forward(place: Place, arguments: Arguments) -> Value:
    """Run the forward of the model inside a wrapper; what comes out is made by the wrapper."""
    from dslint.python.invoke import call_value

    m, receiver = place.m, place.receiver
    wrapper = frozenset((receiver,)) if isinstance(receiver, Instance) and place.row.tags & WRAPPERS else frozenset()
    inner = m.store.get((receiver, "module")) if isinstance(receiver, Instance) and wrapper else None
    is_inside = isinstance(receiver, Instance) and receiver in m.forwarding  # a model that is wrapped again in a loop
    own = patched(m, receiver, place.row.path.rpartition(".")[2])
    if own is not None and not is_inside:
        return call_value(m, own, arguments, place.node)
    if inner is not None and not is_inside and any(not isinstance(a, Unknown) for a in inner.atoms):
        m.forwarding = m.forwarding | wrapper
        try:
            found = call_value(m, inner, arguments, place.node)
        finally:
            m.forwarding = m.forwarding - wrapper
        if not m.alive:
            return found
        return found.with_(0, 0, wrapper)
    place.made_by |= wrapper
    return place.make(place.row.returns).with_(0, 0, wrapper)


def forward_event(m: Machine, path: str, receiver: Instance, arguments: Arguments, node: ast.AST) -> None:
    """Note that a model runs that a library has changed in place (`fully_shard(model)`)."""
    row = m.libraries.method(path, "forward")
    if row is not None and row.tags & WRAPPERS and receiver not in m.forwarding:
        noted_event(m, row, _bound(m, row, arguments), one(receiver), const(None), node)
