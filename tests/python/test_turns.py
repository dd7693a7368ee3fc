"""In which turns of a loop a call is made, and what is divided by the number of ranks."""

from __future__ import annotations

import pytest

from dslint.python.entries import Analysis
from dslint.python.events import Event, Loop, walk
from dslint.python.files import Texts
from dslint.python.lanes import Worlds
from dslint.python.queries.turns import Turns
from dslint.rules.runs import happenings_of

TWO = Worlds(((1, 2),), stated=True)
LOADER = "from loaders import loader, size\n"
HELPER = "def is_last(turn, count):\n    return (turn + 1) % count == 0\n"
LAST = "if (i + 1) % 4 == 0:\n        print(i)"

TURNS = {
    "the last": (f"for i, b in enumerate(loader):\n    {LAST}", [3]),
    "an option": ("for i, b in enumerate(loader):\n    if (i + 1) % size == 0:\n        print(i)", [3]),
    "a range": (f"for i in range(len(loader)):\n    {LAST}", [3]),
    "a short range": ("for i in range(4):\n    if i % 4 == 3:\n        print(i)", [3]),
    "counted from one": ("for i, b in enumerate(loader, 1):\n    if i % 4 == 0:\n        print(i)", [3]),
    "what is left over": ("for i, b in enumerate(loader):\n    if i % 4:\n        print(i)", [1, 2, 3]),
    "an early exit": ("for i, b in enumerate(loader):\n    if i % 4 < 2:\n        continue\n    print(i)", [2, 3]),
    "an exit in an inner test": (
        "for i, b in enumerate(loader):\n    if b:\n        if i % 4:\n            continue\n    print(i)",
        [0],
    ),
    "a flag": (
        "for i, b in enumerate(loader):\n    last = False\n    if i % 4 == 3:\n        last = True\n"
        "    if last:\n        print(i)",
        [3],
    ),
    "a function": (HELPER + "for i, b in enumerate(loader):\n    if is_last(i, 4):\n        print(i)", [3]),
    "a conditional value": (
        "for i, b in enumerate(loader):\n    k = i + 1 if size else i + 1 + 4\n    if k % 4 == 0:\n        print(i)",
        [3],
    ),
    "another number on each way": (
        "for i, b in enumerate(loader):\n    k = i + 1 if b else i - 1\n    if k % 4 == 0:\n        print(i)",
        [],
    ),
    "two tests that exclude each other": (
        "for i, b in enumerate(loader):\n    if size or b:\n        continue\n"
        "    if size and i % 4 == 1:\n        print(i)",
        [],
    ),
    "a test that is left open": ("for i, b in enumerate(loader):\n    if size and i % 4 == 1:\n        print(i)", [1]),
    "or the end": (
        "for i, b in enumerate(loader):\n    if i % 4 == 3 or i + 1 == len(loader):\n        print(i)",
        [3],
    ),
    "an index that is changed": (
        "for i, b in enumerate(loader):\n    i = next(b)\n    if i % 4 == 3:\n        print(i)",
        [],
    ),
}


@pytest.mark.parametrize("name", TURNS)
def test_the_turns_in_which_something_certainly_happens(name: str) -> None:
    text, expected = TURNS[name]
    analysis = Analysis(Texts({"main.py": LOADER + text + "\n"}), TWO)
    entry = analysis.script("main.py")
    assert entry is not None
    found = next(h for h in happenings_of(entry.tree, entry) if h.event.api == "builtins.print")
    loop = next(node for node in found.around if isinstance(node, Loop))
    turns = Turns(analysis.machine, loop)
    tests = turns.tests(found.around, found.event)
    divisor = turns.divisor(tests)
    assert (turns.both(tests, tests, divisor, 4) if divisor is not None else []) == expected


IMPORTS = "import os\nimport numpy as np\nimport torch.distributed as dist\n"
HEAD = IMPORTS + "rank, world = dist.get_rank(), dist.get_world_size()\n"
SHARED = {
    "a floor": ("size = 5 // world", "floor 5"),
    "the rest": ("size = 5 % world", "rest 5"),
    "a variable of the environment": ("size = 5 // int(os.environ['WORLD_SIZE'])", "floor 5"),
    "a list": ("mine = [1, 2, 3][rank::world]", "deal 3"),
    "numbers": ("for i in range(rank, 7, world):\n    print(i)", "range 7"),
    "parts": ("mine = np.array_split([1, 2, 3], world)[rank]", "deal 3"),
    "another number": ("size = 5 // 2", ""),
    "the number itself": ("size = world // world", ""),
    "a list of which nobody knows the length": ("mine = open('x').readlines()[rank::world]", "deal ?"),
}


@pytest.mark.parametrize("worlds", [TWO, Worlds()], ids=["stated", "open"])
@pytest.mark.parametrize("name", SHARED)
def test_what_is_divided_by_the_number_of_ranks(name: str, worlds: Worlds) -> None:
    text, expected = SHARED[name]
    entry = Analysis(Texts({"main.py": HEAD + text + "\n"}), worlds).script("main.py")
    assert entry is not None
    found = [e for e in walk(entry.tree) if isinstance(e, Event) and e.tags & {"shares", "asks-rest"}]
    sizes = [(e.arguments["size"].constants or ("?",))[0] for e in found]
    assert [f"{e.api.rpartition('.')[2]} {size}" for e, size in zip(found, sizes, strict=True)] == (
        [expected] if expected else []
    )
