"""A part of the model runs only for batches that have something for it.

**What.** In `forward` (or a method that prepares its inputs) a test of the batch, `if pixel_values is not None:`,
decides whether the vision or audio layers run, and the other arm does not run them; or an expert of a mixture runs only
where the router sent it a token.

**Why it hurts.** Ranks have different batches. At ZeRO stage 3 the layers gather their weights from all ranks when they
run: a rank with images waits for one without. At stages 1 and 2 the gradients are reduced in the order in which they
come, and no two ranks have the same ones: the reduction aborts, mixes up gradients, or waits. It happens at the first
step in which one rank has a text-only batch.

A dummy input under `no_grad` gathers the weights in the forward pass only, and gives no gradients: it cures nothing.

**Fix.** Run the layers on zeros in the other arm and add the result times 0.0; or let the collator put a dummy image
into every batch. For experts at stage 3, `deepspeed.utils.set_z3_leaf_modules(model, [Block])`: their weights are then
gathered together.

**When it stays quiet.** The stage is 0 or not known; both arms run such a part, or one adds something times zero; the
test asks for generation (`past_key_values`, `shape[1]`), `self.training` or the config; the other arm raises; methods
under `no_grad`; a collator of the same file that makes dummy images; experts where the file declares leaf modules, or
below stage 3. One process.

**Evidence.** Two gloo ranks, images on one of them: at stage 3 the rank with images waits in an all-gather, at stages 1
and 2 the reduction fails with a size mismatch; with a dummy path all pass. An expert for each rank hangs at stage 3,
and passes with `set_z3_leaf_modules`. With images on both ranks nothing happens: the finding is a warning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.python.events import Alt
from dslint.python.queries.asked import matched
from dslint.python.queries.skipped import Skipped
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.wrapping.leftparts import LeftOut, LeftParts, gathers_blocks

_METHODS = r"forward|prepare_inputs|get_vllm_embedding|_embed|merge"
_PARTS = r"pixel|image|vision|video|audio|speech|multimodal|input_features|expert"
META = RuleMeta(
    code="DSL208",
    name="modality-conditional-forward",
    kind="script",
    severity=Severity.WARNING,
    summary="a part of the model runs only on ranks whose batch has something for it",
    markers=(_METHODS, _PARTS, r"deepspeed|transformers|zero"),
    alone=(_METHODS, _PARTS, r"zero_?optimization|zero[_-]?stage|DeepSpeedPlugin"),
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/7170",
        "https://github.com/QwenLM/Qwen3-VL/issues/126",
        "https://github.com/deepspeedai/DeepSpeed/pull/4966",
    ),
    depends_on_run=True,
)

_STAGES = {"images": (1, 2, 3), "experts": (3,)}
_DUMMIES = re.compile(
    r"dummy_?(?:image|pixel|audio|video|vision)|(?:image|pixel|audio|video)s?_?dummy"
    # ``item["image"] = torch.zeros(3, 224, 224)`` for a sample without one.
    r"|\[[\"']\w*(?:image|pixel|audio|video)\w*[\"']\]\s*=\s*\w+\.zeros",
    re.I,
)
# A blank image that a sample without one gets: its shape is written out.
_BLANK = re.compile(r"\(\s*\(?(?:1,\s*)?3,\s*\d{2,4},\s*\d{2,4}")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where a model asks whether the batch has something, or whether an expert got tokens."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    parts = LeftParts(run)
    for left in (*parts.images(), *parts.experts()):
        test, here = left.found.test, run.stages.at(left.happening)
        if id(test.node) in seen or not here.is_among(*_STAGES[left.kind]):
            continue
        # The dummy of a file that cures nothing is no reason to be silent.
        if left.kind == "images" and (left.found.frozen is not None or not _is_filled(left.found)):
            seen.add(id(test.node))
            yield _of_images(run, left, here.stage)
        elif left.kind == "experts" and not gathers_blocks(run):
            seen.add(id(test.node))
            yield _of_experts(run, left)


def _is_filled(found: Skipped) -> bool:
    """Return whether the file puts a dummy image into every batch."""
    text = found.test.module.source.text
    return bool(_DUMMIES.search(text) or _BLANK.search(text))


def _words(run: RunQuery, left: LeftOut) -> tuple[str, str]:
    """Return the code of what runs, and of the test that decides about it."""
    name = run.text(left.via.module, getattr(left.via.node, "func", left.via.node))
    return name, run.text(left.found.test.module, _asked(left.found), 40)


def _asked(found: Skipped) -> ast.AST:
    test = found.test
    match = matched(test) if isinstance(test, Alt) else None
    return match.subject if match is not None else getattr(test.node, "test", test.node)


def _of_images(run: RunQuery, left: LeftOut, stage: int | None) -> Finding:
    found, (name, asked) = left.found, _words(run, left)
    how = f"whether `{name}` {'gets gradients' if found.frozen else 'runs'} depends on this rank's batch (`{asked}`)"
    other = (run.location(found.part.module, found.part.node, "with gradients here"),) if found.frozen else ()
    effect = (
        "ranks with it hang gathering ZeRO-3 weights" if stage == 3 else "gradients no longer match in the reduction"
    )
    return _finding(
        run,
        left,
        f"{how}: {effect}",
        "Run it on zeros in the other arm and add the result times 0.0, or put a dummy input into every batch",
        stage,
        other,
    )


def _of_experts(run: RunQuery, left: LeftOut) -> Finding:
    name, asked = _words(run, left)
    return _finding(
        run,
        left,
        f"`{name}` runs only where this rank has tokens for it (`{asked}`): ranks that do hang gathering ZeRO-3"
        " weights",
        "Call `deepspeed.utils.set_z3_leaf_modules(model, [...])` with the class of this block",
        3,
    )


def _finding(
    run: RunQuery, left: LeftOut, message: str, hint: str, stage: int | None, other: tuple[Location, ...] = ()
) -> Finding:
    test, part = left.found.test, left.happening.event
    value = test.test if isinstance(test, Alt) else None
    behind = (run.location(part.module, part.node, "this part runs"),) if part is not left.via else ()
    return run.finding(
        META,
        left.via.module,
        left.via.node,
        message,
        hint=hint,
        related=(run.location(test.module, _asked(left.found), "differs between the ranks"), *behind, *other),
        varies=test.varies,
        origin=run.machine.origin(value) if value is not None else None,
        facts={"kind": left.kind, "stage": stage},
    )


_MODEL = """\
import deepspeed
import torch
from torch import nn

CONFIG = {"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": %d}}


class Captioner(nn.Module):
    def __init__(self, vision_tower, text):
        super().__init__()
        self.vision_tower = vision_tower
        self.text = text

    def forward(self, tokens, pixel_values=None):
        hidden = self.text.embed(tokens)
%s
        return self.text(hidden)


def train(model, batches):
    engine, _, _, _ = deepspeed.initialize(model=model, config=CONFIG, model_parameters=model.parameters())
    for batch in batches:
        engine.backward(engine(**batch).mean())
        engine.step()
"""
_PLAIN = """\
        if pixel_values is not None:
            hidden = hidden + self.vision_tower(pixel_values)"""
_DUMMY = """\
        if pixel_values is not None:
            hidden = hidden + self.vision_tower(pixel_values)
        else:
            hidden = hidden + 0.0 * self.vision_tower(torch.zeros(1, 3, 224, 224)).sum()"""
_EARLY = """\
        if pixel_values is None or len(pixel_values) == 0:
            return self.text(hidden)
        hidden = hidden + self.vision_tower(pixel_values)"""
_MOE = """\
import torch
from torch import nn

CONFIG = {"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": %d}}


class Mixture(nn.Module):
    def forward(self, rows):
        chosen = self.router(rows).argmax(dim=-1)
        total = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            mine = torch.where(chosen == number)[0]
            if mine.numel() == 0:
                continue
            total[mine] = expert(rows[mine])
        return total
"""

EXAMPLES = (
    bad("the vision tower runs for batches with images", {"train.py": _MODEL % (3, _PLAIN)}, at="train.py:17 warning"),
    bad("text-only batches return early, at stage 2", {"train.py": _MODEL % (2, _EARLY)}, at="train.py:18 warning"),
    bad("experts without tokens are left out", {"train.py": "import deepspeed\n" + _MOE % 3}, at="train.py:16 warning"),
    good("zeros for the ranks without images", {"train.py": _MODEL % (3, _DUMMY)}),
    good("without ZeRO", {"train.py": _MODEL % (0, _PLAIN)}),
    good(
        "images are encoded once when text is generated",
        {
            "train.py": _MODEL
            % (3, _PLAIN.replace("pixel_values is not None", "pixel_values is not None and tokens.shape[1] > 1"))
        },
    ),
    good(
        "the experts are fetched together",
        {
            "train.py": "import deepspeed\n"
            + _MOE % 3
            + "\n\ndef prepare(model):\n    deepspeed.utils.set_z3_leaf_modules(model, [Mixture])\n"
        },
    ),
    good("experts at stage 2", {"train.py": "import deepspeed\n" + _MOE % 2}),
    good(
        "images are required",
        {
            "train.py": _MODEL
            % (
                3,
                "        if pixel_values is not None:\n            hidden = hidden + self.vision_tower(pixel_values)\n"
                '        else:\n            raise ValueError("no images")',
            )
        },
    ),
    good(
        "the collator puts a dummy image into every batch",
        {
            "train.py": _MODEL % (3, _PLAIN) + "\n\ndef collate(rows):\n    dummy_image = torch.zeros(3, 224, 224)\n"
            "    return {'pixel_values': torch.stack([row.get('image', dummy_image) for row in rows])}\n"
        },
    ),
    good(
        "the data set gives zeros where a sample has no image",
        {
            "train.py": _MODEL % (3, _PLAIN) + "\n\ndef item(row):\n    if 'image' not in row:\n"
            "        row['image'] = torch.zeros(3, 224, 224)\n    return row\n"
        },
    ),
)
