"""What is known of a place where two ranks part, and of what surrounds it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from dslint.python.events import Alt, Call, Event, Loop, Node
from dslint.python.queries.steps import Step
from dslint.python.values import PerRank
from dslint.python.varies import CLOCK, DATA, OWN_FILE, RANDOM, RANKED, WORLD

# What gives each rank a share of the items.
_SHARES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# What differs on each rank for certain, from turn to turn.
OWN_TURNS = DATA | CLOCK | OWN_FILE


@dataclass(slots=True)
class Parting:
    """Two ranks that part.

    `test` sends them different ways for the causes in `varies`; `event` waits, and ranks that go the other way do not
    come to it. `via` is the call in the function of the test that leads to the event. `on_true` says that the ranks
    for which the test holds make the call; `exit` is how the others leave. `by_lanes`: ranks are told apart by their
    number for certain. `path` are the calls that lead to the test. `order`: both make the same calls, `against` is
    where the others are. `times` is how often the two sides make a call of this kind. `is_alone`: some ranks do not
    come to the test at all. `behind` are the other calls that wait on that side, where the other side makes none.
    `in_batches`: a test in the loop makes the call, when enough items have come.
    `inner` is a test behind `test`: it is asked on one side only, and who answers it so leaves.
    `sometimes`: what all ranks answer alike to other tests decides whether both sides make the call.
    """

    test: Alt | Loop
    event: Event
    varies: int
    on_true: bool
    exit: str
    by_lanes: bool
    is_loop: bool = False
    path: tuple[Call, ...] = ()
    via: Call | None = None
    order: bool = False
    against: Step | None = None
    times: tuple[int, int] = (1, 0)
    lanes: tuple[int, int] = (0, 0)
    chain: tuple[Block, ...] = ()
    is_alone: bool = False
    behind: tuple[Step, ...] = ()
    in_batches: bool = False
    inner: Alt | Loop | None = None
    sometimes: bool = False

    @property
    def is_certain(self) -> bool:
        """Return whether the ranks part for certain, by their numbers or by data, clocks or chance of their own."""
        # Random numbers mostly come from one seed; how many items a dictionary has mostly is the same everywhere.
        if self.is_loop:
            own = OWN_TURNS if isinstance(self.test.node, ast.While) else OWN_FILE
            return bool(self.varies & (RANKED | own))
        if self.is_share or self.is_membership:
            return True
        # What only some ranks know of their host is each rank's own; files are often shared.
        is_lone = bool(self.varies & RANKED) and isinstance(self._origin, ast.If | ast.IfExp)
        # Who comes alone and continues may ask again, until it goes on as the others expect.
        leaves_alone = self.is_alone and self.exit in ("return", "break")
        # Numbers from a generator that each rank seeds by its number.
        is_drawn = bool(self.varies & RANDOM) and bool(self.varies & RANKED)
        return self.by_lanes or is_lone or self.asks_share or leaves_alone or is_drawn or bool(self.varies & OWN_TURNS)

    @property
    def _origin(self) -> ast.AST | None:
        """Return where the value that is tested begins to differ."""
        value = self.test.test if isinstance(self.test, Alt) else None
        return value.origin[1] if value is not None and value.origin is not None else None

    @property
    def asks_share(self) -> bool:
        """Return whether the test asks how many items the share of this rank has: `if not paths[rank::world_size]`."""
        place = self._origin
        is_part = isinstance(place, ast.Subscript) and isinstance(place.slice, ast.Slice | ast.Tuple)
        return bool(self.varies & RANKED) and not self.by_lanes and (is_part or isinstance(place, _SHARES))

    @property
    def is_membership(self) -> bool:
        """Return whether the test asks if the rank is one of several: `rank in members`."""
        test = getattr(self.test.node, "test", None)
        is_in = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In | ast.NotIn)
        return is_in and bool(self.varies & RANKED) and not self.varies & ~(RANKED | WORLD)

    @property
    def is_share(self) -> bool:
        """Return whether the test deals out the turns of a loop: `i % world_size == rank`."""
        if not isinstance(self.test, Alt) or self.by_lanes or self.test.test is None:
            return False
        return _deals(self.test.test.number) and any(block.kind == "loop" for block in self.chain)


def _deals(number: object) -> bool:
    """Return whether a formula compares the remainder of a division with the number of the rank."""
    if not isinstance(number, tuple) or len(number) != 2:
        return False
    word, sides = number
    if word == "not":
        return _deals(sides)
    if word is not ast.Eq:
        return False
    remainders = [side for side in sides if isinstance(side, tuple) and side[:1] == (ast.Mod,)]
    return bool(remainders) and any(_is_rank(side) for side in sides if side not in remainders)


def _is_rank(number: object) -> bool:
    if isinstance(number, tuple):
        return any(map(_is_rank, number))
    return isinstance(number, PerRank) and len(set(number.values)) > 2


@dataclass(slots=True)
class Block:
    """What surrounds a place: the rest of its block, or the test, loop, call, context or `finally` around the block."""

    kind: str  # "rest" | "arm" | "loop" | "call" | "context" | "final"
    items: list[Node] = field(default_factory=list)
    node: Node | None = None
    before: list[Node] = field(default_factory=list)
