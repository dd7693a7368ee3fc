"""Which in-place writes fall on gathered parameters, and how a keyword is put into a call."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from dslint.core.fix import apply_edits
from dslint.core.source import SourceFile
from dslint.model.context import Context
from dslint.model.script.edits import keyword_edit
from dslint.parse.python import ScriptDoc, parse_script
from dslint.rules.scriptcontext import ScriptContext


def parsed(code: str) -> ScriptDoc:
    """The document of a text."""
    doc = parse_script(SourceFile("train.py", textwrap.dedent(code)))
    assert isinstance(doc, ScriptDoc)
    return doc


def held(gathered: str, body: str, before: str = "") -> list[str]:
    """The targets of the writes in a block that gathers, which are among what it gathers."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    doc = parsed(
        f"import torch\nfrom deepspeed import zero\n{before}\nwith zero.GatheredParameters({gathered}):\n{lines}\n"
    )
    ctx = ScriptContext(doc, Context())
    (block,) = [node for node in ctx.tree.order if isinstance(node, cst.With)]
    (gather,) = ctx.zero3.gathers.of_block(block)
    return [ctx.text(w.target) for w in ctx.zero3.gathers.writes(block.body) if ctx.zero3.gathers.holds(gather, w)]


@pytest.mark.parametrize(
    ("gathered", "body", "expected"),
    [
        ("head.weight", "head.weight.data[-2:] = 0", ["head.weight"]),
        ("[head.weight, head.bias]", "torch.nn.init.zeros_(head.bias)", ["head.bias"]),
        ("[head.weight]", "head.bias.data.zero_()", []),
        ("[head.weight]", "head.weight.requires_grad_(False)", []),
        ("[head.weight]", "head.weight.grad.zero_()", []),
        ("[head.weight]", "x = head.weight.clone().mul_(2)", []),
        ("[head.weight]", "head.weight *= 2", ["head.weight"]),
        ("[head.weight]", "rows = head.weight.data\nrows[0] = 1", ["rows"]),
        ("model.parameters()", "for p in model.parameters():\n    p.data.mul_(2)", ["p"]),
        ("model.parameters()", "for n, p in model.named_parameters():\n    p[0] = 1", ["p"]),
        ("model.parameters()", "for a, b in zip(model.parameters(), other):\n    b.copy_(a)", []),
        ("model.parameters()", "for a, b in zip(other, model.parameters()):\n    b.copy_(a)", ["b"]),
        ("list(model.parameters()) + [extra]", "model.lm_head.weight.data.normal_()\nextra.fill_(1)",
         ["model.lm_head.weight", "extra"]),
        ("model.parameters()", "model.load_state_dict(state)", ["model"]),
        ("model.parameters()", "other.load_state_dict(state)", []),
        ("[a, b] if z3 else []", "b.copy_(a)", ["b"]),
        ("params", "p.zero_()", []),
    ],
)  # fmt: skip
def test_writes_into_gathered_parameters(gathered: str, body: str, expected: list[str]) -> None:
    assert held(gathered, body) == expected


def test_a_list_made_before_and_a_loop_over_it() -> None:
    assert held("params", "for p in params:\n    p.zero_()", "params = [a.weight, b.weight]") == ["p"]
    assert held("params", "b.weight.data.zero_()", "params = [a.weight, b.weight]") == ["b.weight"]


@pytest.mark.parametrize(
    ("call", "edited"),
    [
        ("f(a)", "f(a, k=0)"),
        ("f()", "f(k=0)"),
        ("f(a, k=None)", "f(a, k=0)"),
        ("f(\n  a,\n  b,  # last\n)", "f(\n  a,\n  b, k=0,  # last\n)"),
        ("f(*a, **b)", "f(*a, **b, k=0)"),
        ("f((x for x in y))", "f((x for x in y), k=0)"),
        ("f(x for x in y)", None),
    ],
)
def test_a_keyword_is_put_into_a_call(call: str, edited: str | None) -> None:
    doc = parsed(call + "\n")
    node = next(n for n in ScriptContext(doc, Context()).tree.order if isinstance(n, cst.Call))
    edit = keyword_edit(doc, node, "k", "0")
    assert (apply_edits(doc.source.text, [edit]).strip() if edit else None) == edited
