"""What a name says of the rank where nothing else tells it, and where it says nothing."""

from __future__ import annotations

import pytest

from dslint.python.entries import Analysis
from dslint.python.files import Texts
from dslint.python.lanes import Worlds
from dslint.python.values import Const, PerRank, Value
from dslint.python.varies import NAMED_RANK, RANKED

TWO = Worlds(((1, 2),), stated=True)
HEAD = "import torch.distributed as dist\nimport unknown\n"


def held(text: str) -> list[Value]:
    """Return what `x` holds where it is read."""
    found: list[Value] = []
    analysis = Analysis(Texts({"main.py": HEAD + text}), TWO)

    def note(module: object, node: object, value: Value) -> None:
        if getattr(node, "id", "") == "x" and type(getattr(node, "ctx", None)).__name__ == "Load":
            found.append(value)

    analysis.machine.recorder = note
    analysis.script("main.py")
    return found


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("x = unknown.get_rank()\nx", (0, 1)),
        ("x = unknown.is_main_process()\nx", (True, False)),
        ("x = unknown.is_main_process(unknown.args)\nx", (True, False)),
        ("rank, n = unknown.setup()\nx = rank\nx", (0, 1)),
        ("config = unknown.load()\nx = config['local_rank']\nx", (0, 1)),
        ("x = unknown.parse_args().local_rank\nx", (0, 1)),
    ],
)
def test_a_name_says_what_nobody_can_read(text: str, values: tuple[object, ...]) -> None:
    (found,) = held(text)
    atom = found.single
    assert isinstance(atom, PerRank)
    assert atom.values == values
    assert found.varies & RANKED


@pytest.mark.parametrize(
    "text",
    [
        "x = unknown.get_rank(unknown.tensor_group)\nx",  # inside a group
        "x = unknown.tp_rank\nx",
        "import peft\n# lora\nx = unknown.cfg.rank\nx",  # of a matrix
        "rank = len(unknown.f()) % 7\nx = rank\nx",  # computed: the name is all that it shares with one
        "rank = 3\nx = rank\nx",
    ],
)
def test_a_name_says_nothing_of_other_ranks(text: str) -> None:
    (found,) = held(text)
    assert not isinstance(found.single, PerRank)
    assert not found.varies & (RANKED | NAMED_RANK)


def test_the_rank_in_a_mesh_is_none_of_a_machine() -> None:
    (found,) = held("x = unknown.mesh['dp'].get_local_rank()\nx")
    assert not isinstance(found.single, PerRank)
    assert found.varies & RANKED


def test_what_a_program_defines_is_read_and_not_guessed() -> None:
    (found,) = held("def get_rank():\n    return 7\nx = get_rank()\nx")
    assert found.single == Const(7)
