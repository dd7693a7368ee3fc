"""Which parts of a model a batch may leave out."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from dslint.core.source import SourceFile
from dslint.model.context import Context
from dslint.model.script.zero.partialmodel import PartialModels
from dslint.parse.python import ScriptDoc, parse_script
from dslint.rules.scriptcontext import ScriptContext


def parts(
    body: str, parameters: str = "self, tokens, images=None", name: str = "forward", owner: str = "Model(Base)"
) -> list[str]:
    """The kinds of the parts that a method of a model leaves out for some batches."""
    lines = textwrap.indent(textwrap.dedent(body), "        ")
    doc = parse_script(SourceFile("m.py", f"class {owner}:\n    def {name}({parameters}):\n{lines}\n"))
    assert isinstance(doc, ScriptDoc)
    ctx = ScriptContext(doc, Context())
    (method,) = [n for n in ctx.tree.order if isinstance(n, cst.FunctionDef)]
    return [part.kind for part in PartialModels(ctx.tree, ctx.names).of(method)]


@pytest.mark.parametrize(
    "body",
    [
        "if images is not None:\n    x = self.encode_images(images)",
        "if images is None:\n    return self.text(tokens)\nreturn self.vision_tower(images)",
        "if len(images) > 0:\n    x = self.model.visual(images)\nelse:\n    x = 0",
        "if images is not None and images.sum() != 0:\n    x = self.get_vision_tower()(images)",
    ],
)
def test_a_part_for_some_batches(body: str) -> None:
    assert parts(body) == ["images"]


@pytest.mark.parametrize(
    "body",
    [
        "if images is not None:\n    x = self.vision(images)\nelse:\n    x = self.vision(self.blank)",
        "if images is not None:\n    x = self.vision(images)\nelse:\n    x = 0.0 * self.other.sum()",
        "if images is None:\n    raise ValueError\nx = self.vision(images)",
        "if images is None or tokens.shape[1] == 1:\n    return self.text(tokens)\nreturn self.vision(images)",
        "if images is not None and self.training:\n    x = self.vision(images)",
        "if tokens is not None:\n    x = self.vision(images)",
        "if images is not None:\n    x = self.text(images)",
        "if images is not None:\n    x = images.to(self.device)",
    ],
)
def test_no_part_that_a_rank_may_miss(body: str) -> None:
    assert parts(body) == []


def test_only_classes_with_layers() -> None:
    body = "if images is not None:\n    x = self.image_part(images)"
    assert parts(body, name="merge_inputs", owner="LlavaMetaForCausalLM(ABC)") == ["images"]
    assert parts(body, name="merge_inputs", owner="Thing") == []
    assert parts(body, name="merge_inputs", owner="ModelProcessor(Base)") == []


def test_other_methods_and_computed_inputs_are_left_alone() -> None:
    body = "if images is not None:\n    x = self.vision(images)"
    assert parts(body, name="describe") == []
    assert parts(body.replace("images", "image_hidden_states"), "self, image_hidden_states=None") == []


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("mask.any()", ["experts"]),
        ("rows[mask].shape[0] > 0", ["experts"]),
        ("len(index)", ["experts"]),
        ("number < self.active", []),
        ("self.config.route_all()", []),
    ],
)
def test_experts_that_get_no_tokens(test: str, expected: list[str]) -> None:
    body = f"for number in range(8):\n    if {test}:\n        out = self.experts[number](rows)"
    assert parts(body, "self, rows") == expected


def test_an_expert_behind_a_continue_and_one_that_always_runs() -> None:
    loop = "for number, expert in enumerate(self.experts):\n"
    assert parts(loop + "    if mask.sum() == 0:\n        continue\n    out = expert(rows)", "self, rows") == [
        "experts"
    ]
    assert parts(loop + "    out = expert(rows)", "self, rows") == []
