"""The tree of what a program does that concerns other ranks: order is asked of the tree, never of a flat list.

Shared by reference: the tree of a summary hangs in every call that reuses it, so no node is changed once it is closed.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dslint.python.commandlines import CommandLine
    from dslint.python.parts import Part
    from dslint.python.ragged import Ragged
    from dslint.python.snapshots import Dictionary
    from dslint.python.source import Module
    from dslint.python.sources import Source
    from dslint.python.values import Instance, Value

# How control leaves a block.
RETURN, BREAK, CONTINUE, RAISE = "return", "break", "continue", "raise"


@dataclass(slots=True, eq=False)
class Settings:
    """What a dictionary held that is a DeepSpeed configuration, when a call got it.

    `items` are the values by JSON pointer (`/zero_optimization/stage`), `maybe` the pointers that only some ways to the
    call have set, `whole` those of the dictionaries that hold nothing else (the empty text is the whole one).
    """

    node: ast.AST
    items: dict[str, Value] = field(default_factory=dict)
    maybe: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)

    def lacks(self, pointer: str) -> bool:
        """Return whether nothing is set there for certain."""
        parent = pointer.rpartition("/")[0]
        while parent and parent not in self.items:
            parent = parent.rpartition("/")[0]
            pointer = pointer.rpartition("/")[0]
        return pointer not in self.items and parent in self.whole

    def constant(self, pointer: str) -> object:
        """Return the constant that is certainly set there; `None` for none."""
        value = self.items.get(pointer)
        known = value.constants if value is not None and pointer not in self.maybe else None
        return known[0] if known is not None and len(known) == 1 else None


@dataclass(slots=True, eq=False)
class Event:
    """One call of a library function, method or constructor that a row describes (or a backward of unknown code).

    `api` is the canonical path (`torch.distributed.all_reduce`, `torch.nn.parallel.DistributedDataParallel.forward`);
    `arguments` are bound to the parameter names of the row; `lanes` is the set (bit mask) of simulated ranks that may
    come here; `varies` are the causes of divergence of the tests passed on the way; `may` says that the call is one of
    several that the expression may mean.
    """

    api: str
    tags: frozenset[str]
    node: ast.AST
    module: Module
    receiver: Value | None
    arguments: dict[str, Value]
    result: Value | None
    lanes: int
    varies: int = 0
    may: bool = False
    # Of each argument (and `self`) as it was then: causes of difference, of another shape, wrapped models behind it.
    snapshot: dict[str, tuple[int, int, frozenset[Instance]]] = field(default_factory=dict)
    # Where each argument that differs became each rank's own.
    origins: dict[str, tuple[Module, ast.AST]] = field(default_factory=dict)
    # Of calls that wrap a model for several ranks: the numbers in it that each rank has of its own.
    parts: list[Part] = field(default_factory=list)
    # Of the same calls, and of those that load a model: the model, and the modules inside.
    modules: frozenset[Instance] = frozenset()
    # Of calls that prepare: each model that they are given, with the modules inside of it alone.
    inside: dict[Instance, frozenset[Instance]] = field(default_factory=dict)
    # By what the first weights of these differ between ranks; of others, the order or the numbers that they draw.
    drawn: int = 0
    config: Value | None = None  # the DeepSpeed configuration that is passed
    stage: int | None = None  # of the same, where it is a dictionary
    keys: frozenset[str] | None = None  # of the same dictionary, where all that it may have are known
    settings: Settings | None = None  # of the same, where it is one dictionary (or nothing)
    named: Value | None = None  # a second configuration, in a field of an argument; `None` where nobody knows it
    # Of calls that make a loader: where its items and their order come from.
    sources: list[Source] = field(default_factory=list)
    samplers: list[Source] = field(default_factory=list)  # the sampler alone, also where nobody knows the data set
    # Of the same calls: where the data sets were made that may be in it, one around the other.
    held: frozenset[ast.AST] = frozenset()
    accumulation: Value | None = None  # the micro batches of a step, there or in arguments
    micro_batch: Value | None = None  # of a configuration: the samples of one on each process, where it states them
    nodes: dict[str, ast.expr] = field(default_factory=dict)
    # What lists and dictionaries hold that name devices or handlers, that are parameters, or that are saved.
    items: dict[str, list[Value]] = field(default_factory=dict)
    # Of calls that make a group or deal out a list: what that may hold, item by item; `None` where it is not known.
    members: list[list[Value] | None] = field(default_factory=list)
    # Of collectives: how long the list is that takes in the parts of all ranks; `None` where it is not known.
    entries: list[int | None] = field(default_factory=list)
    # Of calls that need the same shape from all ranks: the arguments whose shape follows from the data of each rank.
    ragged: dict[str, Ragged] = field(default_factory=dict)
    # Of calls whose path is one of several: what each of them is made of.
    paths: list[tuple[Hashable, ...]] = field(default_factory=list)
    open: bool = False  # unpacked arguments may fill any parameter ...
    batch: bool = False  # ... and all of them are data of the rank, no settings
    command_line: CommandLine | None = None  # of calls that parse the command line: what it may hold then


@dataclass(slots=True, eq=False)
class Exit:
    """Control leaves the block: `return`, `break`, `continue` or `raise`.

    `is_clean` is true of a `raise` that ends the process with status 0: no launcher stops the other ranks for it.
    """

    kind: str
    node: ast.AST
    is_clean: bool = False


@dataclass(slots=True, eq=False)
class Lost:
    """Here something was passed over (a budget, a construct): any events may happen, and `reason` says why."""

    reason: str
    node: ast.AST


@dataclass(slots=True, eq=False)
class Handed:
    """A dictionary that is a DeepSpeed configuration comes to who reads it (`configdicts.py`).

    `reader` is `deepspeed`, `hf`, `accelerate`, `lightning` or `unknown`; empty where only its name says what it is.
    `may`: something else may come there instead.
    """

    reader: str
    dictionary: Dictionary
    node: ast.AST
    module: Module
    may: bool = False


@dataclass(slots=True, eq=False)
class Seq:
    """Nodes one after the other. `flat` are all nodes below it, once the tree of an entry is complete."""

    items: list[Node] = field(default_factory=list)
    flat: list[Node] | None = None


@dataclass(slots=True, eq=False)
class Alt:
    """A test: `then` runs on `then_lanes`, `orelse` on `else_lanes`; a lane in both is decided by something unknown.

    `varies` are the causes for which ranks may decide differently where a lane is in both masks. `asks` is the
    expression that decides where `node` is the part of it that runs then: the `b` of `a and b`.
    """

    node: ast.AST
    module: Module
    test: Value | None
    then_lanes: int
    else_lanes: int
    varies: int
    then: Seq
    orelse: Seq
    asks: ast.expr | None = None


@dataclass(slots=True, eq=False)
class Loop:
    """A loop; `varies` are the causes for which ranks may run it a different number of times.

    `items` are the places that made what the target (or a `next` inside) holds: of the items of a loader, the call that
    made the loader; `begun` are those whose iterator is made anew inside. `counts` says that it goes through numbers,
    more than one. `is_frame` says that a generator runs inside, with the loops and tests that decide about the turns.
    `taken` is the `next` at whose end the loop is left.
    """

    node: ast.AST
    module: Module
    subject: Value | None  # what is iterated over, or the test of a `while`
    varies: int
    body: Seq
    orelse: Seq
    at_least_once: bool = False
    items: frozenset[ast.AST] = frozenset()
    begun: frozenset[ast.AST] = frozenset()
    counts: bool = False
    is_frame: bool = False
    taken: ast.AST | None = None
    # Of the loop in numbers of its turns (`turns.py`), and how many turns of any loop came before it.
    number: int = 0
    since: int = 0


@dataclass(slots=True, eq=False)
class Call:
    """A call of a function of the project: a `return` inside ends here."""

    node: ast.AST
    module: Module
    function: object
    body: Seq


@dataclass(slots=True, eq=False)
class Try:
    """A `try` statement: any prefix of `body` may be followed by one of `handlers`; `final` runs in every case."""

    node: ast.AST
    module: Module
    body: Seq
    handlers: list[Seq]
    orelse: Seq
    final: Seq


@dataclass(slots=True, eq=False)
class Context:
    """The body of a `with` statement, inside the context manager `manager`."""

    node: ast.AST
    module: Module
    manager: Value
    body: Seq
    tags: frozenset[str] = frozenset()


Node = Event | Exit | Lost | Handed | Seq | Alt | Loop | Call | Try | Context


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly inside `node`, in the order of the source."""
    if isinstance(node, Seq):
        return tuple(node.items)
    if isinstance(node, Alt):
        return (node.then, node.orelse)
    if isinstance(node, Loop):
        return (node.body, node.orelse)
    if isinstance(node, Call | Context):
        return (node.body,)
    if isinstance(node, Try):
        return (node.body, *node.handlers, node.orelse, node.final)
    return ()


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and every node below it, each once even where summaries share a subtree."""
    if node.__class__ is Seq and node.flat is not None:
        yield node
        yield from node.flat
        return
    seen: set[int] = set()
    pending = [node]
    while pending:
        top = pending.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        yield top
        if top.__class__ is not Event:  # most nodes are, and have none inside
            pending.extend(reversed(children(top)))


def tells(body: list[Node]) -> bool:
    """Return whether something happens in a body, and not only tests and calls that lead to nothing."""
    return any(isinstance(node, Event | Lost | Handed) for node in walk(Seq(body)))


def completed(tree: Seq) -> Seq:
    """Return the tree of an entry that nothing is added to any more: who walks it again takes the list."""
    if tree.flat is None:
        tree.flat = list(walk(tree))[1:]  # not itself: it would wait for the collector
    return tree


def events(node: Node) -> Iterator[Event]:
    """Yield all events below `node`."""
    return (found for found in walk(node) if isinstance(found, Event))


def raises(seq: Seq) -> bool:
    """Return whether a block ends by `raise`: the job ends there for all ranks, unless the exit is a clean one."""
    last = seq.items[-1] if seq.items else None
    if isinstance(last, Call):
        return raises(last.body)
    return isinstance(last, Exit) and last.kind == "raise" and not last.is_clean
