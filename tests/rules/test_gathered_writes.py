"""Which in-place writes fall on parameters that a block gathers and does not hand on."""

from __future__ import annotations

import pytest
from script_helpers import queried

from dslint.rules.script import dsl211_gathered_write_without_modifier_rank as dsl211

_SCRIPT = """\
import torch
from deepspeed import zero


def main(head, model, other, state, extra, a, b, z3%s):
    %s
    with zero.GatheredParameters(%s):
%s
"""


def held(gathered: str, body: str, before: str = "") -> str | None:
    """The target of the first write in a block that gathers, which is among what it gathers."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    found = queried(dsl211, _SCRIPT % ("" if before else ", params, p", before or "pass", gathered, lines))
    return found[0].message.split("`")[1] if found else None


@pytest.mark.parametrize(
    ("gathered", "body", "expected"),
    [
        ("head.weight", "head.weight.data[-2:] = 0", "head.weight"),
        ("[head.weight, head.bias]", "torch.nn.init.zeros_(head.bias)", "head.bias"),
        ("[head.weight]", "head.bias.data.zero_()", None),
        ("[head.weight]", "head.weight.requires_grad_(False)", None),
        ("[head.weight]", "head.weight.grad.zero_()", None),
        ("[head.weight]", "x = head.weight.clone().mul_(2)", None),
        ("[head.weight]", "head.weight *= 2", "head.weight"),
        ("[head.weight]", "rows = head.weight.data\nrows[0] = 1", "rows"),
        ("model.parameters()", "for p in model.parameters():\n    p.data.mul_(2)", "p"),
        ("model.parameters()", "for n, p in model.named_parameters():\n    p[0] = 1", "p"),
        ("model.parameters()", "for a, b in zip(model.parameters(), other):\n    b.copy_(a)", None),
        ("model.parameters()", "for a, b in zip(other, model.parameters()):\n    b.copy_(a)", "b"),
        ("list(model.parameters()) + [extra]", "model.lm_head.weight.data.normal_()\nextra.fill_(1)",
         "model.lm_head.weight"),
        ("model.parameters()", "model.load_state_dict(state)", "model"),
        ("model.parameters()", "other.load_state_dict(state)", None),
        ("[a, b] if z3 else []", "b.copy_(a)", "b"),
        ("params", "p.zero_()", None),
    ],
)  # fmt: skip
def test_writes_into_gathered_parameters(gathered: str, body: str, expected: str | None) -> None:
    assert held(gathered, body) == expected


def test_a_list_made_before_and_a_loop_over_it() -> None:
    assert held("params", "for p in params:\n    p.zero_()", "params = [a.weight, b.weight]") == "p"
    assert held("params", "b.weight.data.zero_()", "params = [a.weight, b.weight]") == "b.weight"
