"""Which parts of a model that nobody makes a batch may leave out (DSL208)."""

from __future__ import annotations

import textwrap

import pytest
from script_helpers import queried

from dslint.rules.script import dsl208_modality_conditional_forward as dsl208

HEAD = """\
import deepspeed
import torch
from base import ABC, Base
from torch import nn

CONFIG = {"zero_optimization": {"stage": %d}}


"""


def parts(
    body: str,
    parameters: str = "self, tokens, images=None",
    name: str = "forward",
    owner: str = "Model(Base)",
    stage: int = 3,
    before: str = "",
) -> list[object]:
    """The kinds of the parts that a method of a model leaves out for some batches."""
    lines = textwrap.indent(textwrap.dedent(body), "        ")
    text = HEAD % stage + f"class {owner}:\n{before}    def {name}({parameters}):\n{lines}\n"
    return [finding.fact("kind") for finding in queried(dsl208, text)]


@pytest.mark.parametrize(
    "body",
    [
        "if images is not None:\n    x = self.encode_images(images)",
        "if images is None:\n    return self.text(tokens)\nreturn self.vision_tower(images)",
        "if len(images) > 0:\n    x = self.model.visual(images)\nelse:\n    x = 0",
        "if images is not None and images.sum() != 0:\n    x = self.get_vision_tower()(images)",
        "tower = self.get_vision_tower()\nif images is None:\n    return tokens\nreturn tower(images)",
        "tower = self.vision_tower\nif images is not None:\n    x = tower(images)",
        "given = images is not None\nif not given:\n    return tokens\nreturn self.get_model().mm_projector(images)",
    ],
)
def test_a_part_for_some_batches(body: str) -> None:
    assert parts(body) == ["images"]


@pytest.mark.parametrize(
    "body",
    [
        "if images is not None:\n    x = self.vision(images)\nelse:\n    x = self.vision(self.blank)",
        "if images is not None:\n    x = self.vision(images)\nelse:\n    x = self.image_stub(tokens)",
        "if images is not None:\n    x = self.vision(images)\nelse:\n    x = 0.0 * self.other.sum()",
        "if images is not None:\n    x = self.vision(images)\nelse:\n    x = self.dummy_forward()",
        "if images is None:\n    raise ValueError\nx = self.vision(images)",
        "if images is None or tokens.shape[1] == 1:\n    return self.text(tokens)\nreturn self.vision(images)",
        "if images is not None and self.training:\n    x = self.vision(images)",
        "if images is not None:\n    if self.config.tuned:\n        x = self.vision(images)",
        "if tokens is not None:\n    x = self.vision(images)",
        "if images is not None:\n    x = self.text(images)",
        "if images is not None:\n    x = images.to(self.device)",
        "if images is not None:\n    x = self.process_images(images)",
    ],
)
def test_no_part_that_a_rank_may_miss(body: str) -> None:
    assert parts(body) == []


def test_only_classes_with_layers() -> None:
    body = "if images is not None:\n    x = self.image_part(images)"
    assert parts(body, name="merge_inputs", owner="LlavaMetaForCausalLM(ABC)") == ["images"]
    assert parts(body, name="prepare_inputs_for_images", owner="LlavaMetaForCausalLM(ABC)") == ["images"]
    assert parts(body, name="merge_inputs", owner="Thing") == []
    assert parts(body, name="merge_inputs", owner="ModelProcessor(Base)") == []


def test_other_methods_and_computed_inputs_are_left_alone() -> None:
    body = "if images is not None:\n    x = self.vision(images)"
    assert parts(body, name="describe") == []
    assert parts(body.replace("images", "image_hidden_states"), "self, image_hidden_states=None") == []
    assert parts(body, before="    @torch.no_grad()\n") == []


def test_a_parameter_without_a_default_may_be_missing_where_the_method_asks() -> None:
    body = "if images is None:\n    return tokens\nreturn self.vision(images)"
    assert parts(body, "self, tokens, images", "prepare_inputs_labels_for_multimodal") == ["images"]


def test_a_part_behind_another_method_of_the_model() -> None:
    helper = "    def encode(self, images):\n        return self.get_model().get_vision_tower()(images)\n\n"
    body = "if images is not None:\n    x = self.encode(images)"
    assert parts(body, before=helper) == ["images"]


def test_the_stage_at_the_place_counts() -> None:
    body = "if images is not None:\n    x = self.vision(images)"
    assert [parts(body, stage=stage) for stage in (0, 1, 2)] == [[], ["images"], ["images"]]
    asked = "if is_deepspeed_zero3_enabled():\n    return tokens\n" + body
    assert parts(asked, stage=3) == []


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("mask.any()", ["experts"]),
        ("rows[mask].shape[0] > 0", ["experts"]),
        ("len(index)", ["experts"]),
        ("number < self.active", []),
        ("number < len(self.experts)", []),
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


def test_experts_that_the_constructor_makes() -> None:
    made = (
        "    def __init__(self):\n        super().__init__()\n"
        "        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))\n\n"
    )
    body = "for expert in self.experts:\n    if mask.sum() == 0:\n        continue\n    out = expert(rows)"
    assert parts(body, "self, rows", owner="Mixture(nn.Module)", before=made) == ["experts"]
