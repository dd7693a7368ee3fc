"""Which gathered tensors have a shape that depends on the data of the rank."""

from __future__ import annotations

import pytest
from script_helpers import findings

from dslint.rules.script import dsl227_gather_of_ragged_tensor as rule

HEAD = "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
RAGGED = (
    "x = model.generate(**batch)\n",
    "with torch.no_grad():\n    x = model.generate(**batch)\n",
    "x = model.generate(**batch).sequences.cpu()\n",
    "x = model.generate(**batch)\nif short:\n    x = x[:, start:]\nx = x.contiguous()\n",
    "x = loss[labels != -100]\n",
    "keep = ~(labels == -100) & (loss > 0)\nx = loss[keep]\n",
    "x = torch.nonzero(mask)\n",
    "x = rows.masked_select(mask).float()\n",
)
EQUAL = (
    "x = model(**batch)\n",
    "x = model.generate(**batch)\nx = pad(x)\n",
    "x = model.generate(**batch)\nif short:\n    x = pad(x)\n",
    "x = model.generate(**batch)[0, :5]\n",
    "x = model.generate(**batch)[:, :5]\n",
    "x = loss[labels != -100].sum()\n",
    "x = loss[index]\n",
    "x = torch.nonzero(mask, size=4)\n",
    "x = default\nfor _ in range(3):\n    x = model.generate(**batch)\n",
    "x = rows[labels is None]\n",
)


@pytest.mark.parametrize("code", RAGGED)
def test_ragged(code: str) -> None:
    """The length is what the data makes it, however the tensor travels."""
    assert len(findings(rule, HEAD + code + "accelerator.gather(x)\n")) == 1


@pytest.mark.parametrize("code", EQUAL)
def test_equal_or_unknown(code: str) -> None:
    """Padded, reduced, chosen by number, or nobody knows."""
    assert findings(rule, HEAD + code + "accelerator.gather(x)\n") == []


def test_every_element_of_a_tuple_counts() -> None:
    """`gather((a, b))` gathers both."""
    code = HEAD + "x = model.generate(**batch)\naccelerator.gather_for_metrics((labels, x))\n"
    assert len(findings(rule, code)) == 1
