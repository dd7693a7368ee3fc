"""Progress bars on one rank alone: the loop goes through the same rows on all ranks."""

from __future__ import annotations

import pytest

from dslint.python.entries import Analysis
from dslint.python.events import Loop, walk
from dslint.python.files import Texts
from dslint.python.lanes import Worlds
from dslint.python.varies import RANKED

TWO = Worlds(((1, 2),), stated=True)
HEAD = "import torch.distributed as dist\nfrom tqdm import tqdm\nimport unknown\n\nrank = dist.get_rank()\n"
LOOP = "for row in rows:\n    dist.barrier()\n"


def differs(text: str) -> bool:
    """Return whether the number of turns of the last loop differs between ranks."""
    entry = Analysis(Texts({"main.py": HEAD + text}), TWO).script("main.py")
    assert entry is not None
    loops = [node for node in walk(entry.tree) if isinstance(node, Loop)]
    return bool(loops[-1].varies & RANKED)


@pytest.mark.parametrize(
    "text",
    [
        "rows = list(unknown.rows)\nif rank == 0:\n    rows = tqdm(rows)\n" + LOOP,
        "rows = list(unknown.rows)\nif rank == 0:\n    rows = tqdm(rows, desc='x')\nelse:\n    rows = rows\n" + LOOP,
        "rows = list(unknown.rows)\nrows = tqdm(rows) if rank == 0 else rows\n" + LOOP,
        "rows = unknown.rows\nif rank == 0:\n    rows = unknown.tqdm(rows)\n" + LOOP,
        "from ray.experimental.tqdm_ray import tqdm\nrows = list(unknown.rows)\nif rank == 0:\n    rows = tqdm(rows)\n"
        + LOOP,
    ],
)
def test_a_bar_on_one_rank_shows_the_same(text: str) -> None:
    assert not differs(text)


@pytest.mark.parametrize(
    "text",
    [
        "rows = list(unknown.rows)\nif rank == 0:\n    rows = tqdm(rows[1:])\n" + LOOP,
        "rows = list(unknown.rows)\nif rank == 0:\n    rows = tqdm(list(unknown.others))\n" + LOOP,
    ],
)
def test_a_bar_over_something_else_does_not(text: str) -> None:
    assert differs(text)
