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

import libcst as cst

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.script.quick import flat
from dslint.model.script.zero.partialmodel import PartialModels, PartialPart
from dslint.model.script.zero.statedstage import may_know_stage
from dslint.python.events import Loop
from dslint.python.queries.skipped import Skipped, skipped_parts
from dslint.python.varies import MISSING
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.walk import ScriptCheck

META = RuleMeta(
    code="DSL208",
    name="modality-conditional-forward",
    kind="script",
    severity=Severity.WARNING,
    summary="a part of the model runs only on ranks whose batch has something for it",
    markers=(
        r"forward|prepare_inputs|get_vllm_embedding|_embed|merge",
        r"pixel|image|vision|video|audio|speech|multimodal|input_features|expert",
        r"deepspeed|transformers|zero",
    ),
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/7170",
        "https://github.com/QwenLM/Qwen3-VL/issues/126",
        "https://github.com/deepspeedai/DeepSpeed/pull/4966",
    ),
    depends_on_run=True,
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
_DUMMIES = re.compile(
    r"dummy_?(?:image|pixel|audio|video|vision)|(?:image|pixel|audio|video)s?_?dummy"
    # ``item["image"] = torch.zeros(3, 224, 224)`` for a sample without one.
    r"|\[[\"']\w*(?:image|pixel|audio|video)\w*[\"']\]\s*=\s*\w+\.zeros",
    re.I,
)
# A blank image that a sample without one gets: its shape is written out.
_BLANK = re.compile(r"\(\s*\(?(?:1,\s*)?3,\s*\d{2,4},\s*\d{2,4}")


def applies(_: str, context: Context, raw: bytes) -> bool:
    """Only where the ZeRO stage is certain is there anything to say."""
    return may_know_stage(context, raw)


def precheck(tree: ast.Module) -> bool:
    """A method that prepares inputs tests something of the batch."""
    nodes = flat(tree)
    for function in nodes.nodes(ast.FunctionDef):
        if function.name.lstrip("_").startswith(("forward", "prepare_inputs", "get_", "merge")):
            at = nodes.place(function)
            inside = nodes.order[at : nodes.ends[at]]
            if any(isinstance(n, ast.If) for n in inside) and _speaks_of_parts(function, inside):
                return True
    return False


def _speaks_of_parts(function: ast.FunctionDef, inside: list[ast.AST]) -> bool:
    words = ("pixel", "image", "vision", "video", "audio", "speech", "multimodal", "input_features", "mel_")
    arguments = (a.arg for a in (*function.args.args, *function.args.kwonlyargs))
    if any(word in name for name in arguments for word in words):
        return True
    return any(isinstance(n, ast.Attribute) and "expert" in n.attr for n in inside)


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where the forward of the model that a run trains asks whether the batch has something."""
    if run.context.is_one_process or run.stage not in (1, 2, 3):
        return
    seen: set[int] = set()
    for _, tree in run.trees():
        for found in skipped_parts(run.machine, tree):
            if isinstance(found.test, Loop):
                continue  # DSL280
            is_told = id(found.test.node) in seen or not found.test.varies & MISSING
            # The dummy of a file that cures nothing is no reason to be silent.
            if not is_told and (found.frozen is not None or not _is_filled(found)):
                seen.add(id(found.test.node))
                yield _finding(run, found)


def _is_filled(found: Skipped) -> bool:
    """Return whether the file puts a dummy image into every batch."""
    text = found.test.module.source.text
    return bool(_DUMMIES.search(text) or _BLANK.search(text))


def _finding(run: RunQuery, found: Skipped) -> Finding:
    part, test = found.frozen or found.part, found.test
    asked_value = None if isinstance(test, Loop) else test.test
    name = run.text(part.module, getattr(part.node, "func", part.node))
    asked = run.text(test.module, getattr(test.node, "test", test.node))
    how = f"`{name}` runs {'without gradients' if found.frozen else 'only'} where `{asked}` decides so, for the batch"
    other = (run.location(found.part.module, found.part.node, "with gradients here"),) if found.frozen else ()
    return run.finding(
        META,
        part.module,
        part.node,
        f"{how} of each rank: when the ranks differ in a step, {_effect(run.stage == 3)}",
        hint=_HINT,
        related=(run.location(test.module, test.node, "differs between the ranks"), *other),
        varies=test.varies,
        origin=run.machine.origin(asked_value) if asked_value is not None else None,
        facts={"kind": "images", "stage": run.stage},
    )


_HINT = "Run it on zeros in the other arm and add the result times 0.0, or put a dummy input into every batch"


def _effect(at_3: bool) -> str:
    if at_3:
        return "the ranks whose batch has it wait for the others, which never gather these weights"
    return "the gradients of the ranks no longer match in the reduction"


class Check(ScriptCheck):
    """Looks into the methods that run the model."""

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        """Fire on the first part of each kind that a batch may leave out."""
        here = self.ctx.zero.at(node)
        if not here.is_among(1, 2, 3) or self.ctx.run.world_size.get_or(2) < 2:
            return
        text = self.ctx.doc.source.text
        for part in PartialModels(self.ctx.tree, self.ctx.names).of(node):
            if part.kind == "experts" and here.is_among(3) and "z3_leaf" not in text:
                self._report_experts(part)
            elif part.kind == "images" and not _DUMMIES.search(text) and not _BLANK.search(text):
                self._report_images(part, here.stage)

    def _report_images(self, part: PartialPart, stage: int | None) -> None:
        self.report(
            part.call,
            f"`{self.ctx.text(part.call.func)}` runs only where `{self.ctx.text(part.test)}` decides so, for the batch "
            f"of each rank: when the ranks differ in a step, {_effect(stage == 3)}",
            hint=_HINT,
            related=(self.ctx.location(part.test, "differs between the ranks"),),
            facts={"kind": "images", "stage": stage},
        )

    def _report_experts(self, part: PartialPart) -> None:
        self.report(
            part.call,
            f"`{self.ctx.text(part.call.func)}` runs only where `{self.ctx.text(part.test)}` says that this rank has "
            "tokens for it: at ZeRO stage 3 the ranks that do wait for the others, which never gather these weights",
            hint="Call `deepspeed.utils.set_z3_leaf_modules(model, [...])` with the class of this block",
            related=(self.ctx.location(part.test, "differs between the ranks"),),
            facts={"kind": "experts", "stage": 3},
        )
