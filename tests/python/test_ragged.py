"""Which tensors are as long as the data of each rank make them, for certain."""

from __future__ import annotations

import pytest

from dslint.python.entries import Analysis
from dslint.python.events import events
from dslint.python.files import Texts

IMPORTS = "import torch\nimport torch.distributed as dist\nimport torch.nn.functional as F\n\n\n"


def gathered(text: str) -> str:
    """Return why what a gather gets is ragged, in words; empty when nothing says so."""
    analysis = Analysis(Texts({"main.py": IMPORTS + text}))
    analysis.script("main.py")
    found = [event for entry in analysis.entries for event in events(entry.tree)]
    ragged = [event.ragged["input_tensor"].words for event in found if "input_tensor" in event.ragged]
    return ragged[-1] if ragged else ""


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("x[x > 0]", "a boolean selection"),
        ("x[~(x > 0) & (x < 4)].float().detach()", "a boolean selection"),
        ("x.masked_select(x.ne(3))", "a boolean selection"),
        ("x[(x > 0).nonzero().squeeze(1)]", "positions of non-zeros"),
        ("x[torch.where(x > 0)[0]]", "positions"),
        ("torch.cat([x[x > 0], x[x < 0]])", "a boolean selection"),
        ("x[x > 0][:, 1] * 2", "a boolean selection"),
        ("F.softmax(x[x > 0], dim=-1).argmax(-1)", "a boolean selection"),
        ("x[:, : int((x > 0).sum(1).max())]", "rows trimmed to this rank's longest"),
        ("x[x > 0].mean()", ""),
        ("x[x > 0].t() @ x[x > 0]", ""),
        ("x[x > 0][:5]", ""),
        ("x[[0, 1]]", ""),
        ("F.pad(x[x > 0], (0, 9))", ""),
        ("torch.cat([x[x > 0], torch.zeros(3)])", ""),
        ("torch.where(x > 0, x, -x)", ""),
        ("x[torch.arange(4) > 2]", ""),
        ("x[:, : dist.get_world_size()]", ""),
    ],
)
def test_the_data_of_a_rank_make_a_shape(made: str, words: str) -> None:
    text = f"def f(x, out):\n    mine = {made}\n    dist.all_gather_into_tensor(out, mine)\n"
    assert gathered(text) == words


def test_a_shape_that_is_made_on_one_way_only_is_unknown() -> None:
    way = (
        "def f(x, out, pad):\n    mine = x[x > 0]\n    if pad:\n        mine = {}\n"
        "    dist.all_gather_into_tensor(out, mine)\n"
    )
    assert not gathered(way.format("F.pad(mine, (0, 9))"))
    assert gathered(way.format("mine.contiguous()")) == "a boolean selection"


def test_a_helper_that_is_called_again_gives_a_ragged_tensor_again() -> None:
    text = (
        "def cut(x):\n    return x[x > 0]\n\n\ndef f(x, out):\n    for _ in range(3):\n"
        "        mine = cut(x)\n        dist.all_gather_into_tensor(out, mine)\n"
    )
    assert gathered(text) == "a boolean selection"
