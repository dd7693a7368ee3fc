"""The collator of a run at ZeRO stage 3 gives images to some batches only.

**What.** A `data_collator` or `collate_fn` of the project passes `images=images or None`, `images=images if images else
None`, adds `batch["pixel_values"]` under `if images:`, or calls the processor with and without images; and a
multimodal model of a library is trained at ZeRO stage 3. The same of videos, audio and their features.

**Why it hurts.** Where a batch has no `pixel_values`, the forward of the model leaves the vision tower and the
projector out. At stage 3 each layer gathers its weights from all ranks when it runs: a rank with images waits for one
whose samples are all plain text, and training is still until the timeout. It comes at the first such step, often
after hours.

**Fix.** Put a small dummy image into a batch without one, and mask its tokens out of the attention and the labels; or
sample so that every batch has an image.

**When it stays quiet.** The file makes a dummy (a blank image, zeros in the shape of one); a setting decides, and not
the batch; another stage, or one that is not known; a model of the project, whose forward DSL208 reads; one process.

**Evidence.** Two gloo ranks at stage 3, images on one of them: the rank with images waits in an all-gather; with a
dummy on the other, or images on both, both train.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.python.source import Module
from dslint.python.values import Bound, ClassAtom, Function, Instance, Partial, Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import Happening, RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL634",
    name="images-in-some-batches",
    kind="script",
    severity=Severity.WARNING,
    summary="a collator gives images to some batches only: at ZeRO stage 3 ranks with images wait for those without",
    markers=(r"collat", r"images|pixel_values|videos|audios?\b|input_features", r"deepspeed|zero|Train"),
    references=(
        "https://github.com/hiyouga/LLaMA-Factory/pull/6233",
        "https://github.com/deepspeedai/DeepSpeed/issues/7170",
    ),
    depends_on_run=True,
)
_GIVEN = re.compile(r"(?:images?|videos?|audios?|pixel_values|pixel_values_videos|input_features)$")
_DUMMY = re.compile(
    r"dummy|blank|fake_|placeholder_(?:image|video|audio)|Image\.new\(|(?:zeros|ones|empty|full)\([^)\n]*\b3\b", re.I
)
_COLLATORS = ("data_collator", "collate_fn")


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where the collator of a run at stage 3 leaves something out for a batch."""
    if run.context.is_one_process:
        return
    seen: set[int] = set()
    trained = _trained_at_3(run)
    for found in run.occurrences("trainer", "makes-loader") if trained is not None else ():
        for name in _COLLATORS:
            for module, code in _code_of(found.event.arguments.get(name)):
                if id(code) in seen or _DUMMY.search(module.source.text):
                    continue
                seen.add(id(code))
                place = next(_left_out(code), None)
                if place is not None and trained is not None:
                    yield _finding(run, module, place, trained)


def _trained_at_3(run: RunQuery) -> Happening | None:
    """Return where a model of a library is certainly trained at stage 3."""
    for found in run.occurrences("trainer", "makes-engine", "prepares"):
        given = [atom for value in found.event.arguments.values() for atom in instances(value)]
        if any(isinstance(atom.cls, ClassAtom) for atom in found.event.modules):
            continue
        classes = [atom.cls for atom in (*given, *found.event.modules) if isinstance(atom.cls, str)]
        is_library = any(run.machine.libraries.is_class(cls, "pretrained-model") for cls in classes)
        if is_library and run.stages.at(found).is_among(3):
            return found
    return None


def _code_of(value: Value | None) -> Iterator[tuple[Module, ast.AST]]:
    """Yield the functions and classes of the project that a value may be."""
    for atom in value.atoms if value is not None else ():
        if isinstance(atom, Partial):
            yield from _code_of(atom.function)
            continue
        inner = atom.function if isinstance(atom, Bound) else atom.cls if isinstance(atom, Instance) else atom
        if isinstance(inner, Function | ClassAtom):
            yield inner.module, inner.node


def _left_out(code: ast.AST) -> Iterator[ast.AST]:
    """Yield where a batch gets images only if it has some."""
    maybe = {
        ast.unparse(node.targets[0])
        for node in ast.walk(code)
        if isinstance(node, ast.Assign) and _is_perhaps_none(node.value)
    }
    for node in ast.walk(code):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                value = keyword.value
                is_named = isinstance(value, ast.Name) and value.id in maybe
                if _GIVEN.match(keyword.arg or "") and (is_named or _is_perhaps_none(value)):
                    yield value
        elif isinstance(node, ast.If) and _asks_batch(node.test):
            yield from _added(node)


def _is_perhaps_none(value: ast.expr) -> bool:
    """Return whether an expression is `x or None`, or `x if x else None`, where the batch decides."""
    if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or):
        return _is_none(value.values[-1]) and _asks_batch(value.values[0])
    return isinstance(value, ast.IfExp) and _is_none(value.body) != _is_none(value.orelse) and _asks_batch(value.test)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _asks_batch(test: ast.expr) -> bool:
    """Return whether a test asks for something that is no setting of the object or of the job."""
    words = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)} - {"len", "any", "all", "bool"}
    return bool(words) and not words & {"self", "args", "config", "cfg", "training_args", "data_args", "processor"}


def _added(node: ast.If) -> Iterator[ast.AST]:
    """Yield what one side of a test gives to the batch, and the other does not."""
    for side, other in ((node.body, node.orelse), (node.orelse, node.body)):
        mine = {name: place for statement in side for name, place in _gives(statement)}
        others = {name for statement in other for name, _ in _gives(statement)}
        leaves = any(isinstance(inner, ast.Raise | ast.Continue) for inner in other)
        if not leaves:
            yield from (place for name, place in mine.items() if name not in others)


def _gives(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """Yield the keys of images that a statement writes into a batch, or passes to a processor."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            key = node.targets[0].slice
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and _GIVEN.match(key.value):
                yield key.value, node
        elif isinstance(node, ast.Call) and "processor" in ast.unparse(node.func):
            named = (k for k in node.keywords if _GIVEN.match(k.arg or "") and not _is_none(k.value))
            yield from ((str(k.arg), k.value) for k in named)


def _finding(run: RunQuery, module: Module, place: ast.AST, trained: Happening) -> Finding:
    return run.finding(
        META,
        module,
        place,
        "A batch without images skips their layers: at ZeRO stage 3 the ranks with images wait for it",
        hint="Put a dummy image into such a batch, and mask its tokens",
        related=(
            run.location(trained.event.module, trained.event.node, "trained at stage 3 here"),
            *run.stages.at(trained).places,
        ),
        facts={"kind": "images", "stage": 3},
    )


_TRAIN = """\
from transformers import AutoProcessor, LlavaForConditionalGeneration, Trainer, TrainingArguments

from data import Collator

CONFIG = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {
    "stage": %d, "stage3_gather_16bit_weights_on_model_save": True}}


def main(rows, name):
    args = TrainingArguments("out", deepspeed=CONFIG, remove_unused_columns=False)
    model = LlavaForConditionalGeneration.from_pretrained(name)
    collator = Collator(AutoProcessor.from_pretrained(name))
    Trainer(model=model, args=args, train_dataset=rows, data_collator=collator).train()
"""
_DATA = """\
class Collator:
    def __init__(self, processor, use_images=True):
        self.processor = processor
        self.use_images = use_images

    def __call__(self, rows):
        texts = [row["text"] for row in rows]
        images = [image for row in rows for image in row["images"]]
%s
        batch["labels"] = batch["input_ids"].clone()
        return dict(batch)
"""
_LOADER = """\
import functools

import deepspeed
from data import Collator
from torch.utils.data import DataLoader
from transformers import AutoModelForImageTextToText, AutoProcessor

CONFIG = {"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 3}}


def collate(processor, rows):
    %s
    return batch


def main(rows, name):
    model = AutoModelForImageTextToText.from_pretrained(name)
    engine, _, _, _ = deepspeed.initialize(model=model, config=CONFIG, model_parameters=model.parameters())
    join = functools.partial(collate, AutoProcessor.from_pretrained(name))
    for batch in DataLoader(rows, batch_size=2, collate_fn=join):
        engine.backward(engine(**batch).loss)
        engine.step()
"""
_OR = "        batch = self.processor(text=texts, images=images or None, return_tensors='pt')"
_BEHIND = "        batch = self.processor(text=texts, images=%s, return_tensors='pt')"
_NAMED = "        shown = images if len(images) > 0 else None\n" + _BEHIND % "shown"
_TWO = (
    "        if images:\n            batch = self.processor(text=texts, images=images, return_tensors='pt')\n"
    "        else:\n            batch = self.processor(text=texts, return_tensors='pt')"
)
_KEY = (
    "        batch = self.processor(text=texts, return_tensors='pt')\n        if images:\n"
    "            batch['pixel_values'] = self.processor.image_processor(images)['pixel_values']"
)
_BLANK = "        images = images or [Image.new('RGB', (64, 64))]\n" + _OR


def _files(lines: str, stage: int = 3) -> dict[str, str]:
    return {"train.py": _TRAIN % stage, "data.py": _DATA % lines}


EXAMPLES = (
    bad("nothing in the place of an empty list", _files(_OR), "data.py:9 warning"),
    bad("a choice that has a name", _files(_NAMED), "data.py:10 warning"),
    bad("the processor is called in two ways", _files(_TWO), "data.py:10 warning"),
    bad("a key that is added", _files(_KEY), "data.py:11 warning"),
    bad(
        "the loader of an engine, whose function has the processor bound",
        {
            "data.py": _DATA % _OR,
            "train.py": _LOADER % "images = sum((row['images'] for row in rows), [])\n"
            "    batch = processor([row['text'] for row in rows], images=images if images else None)",
        },
        "train.py:13 warning",
    ),
    good("a blank image", _files(_BLANK)),
    good("every batch has images", _files(_BEHIND % "images")),
    good("a setting decides", _files(_BEHIND % "images if self.use_images else None")),
    good("stage 2", _files(_OR, 2)),
)
