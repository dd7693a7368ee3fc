"""`"auto"` as a batch size in a config that DeepSpeed reads by itself.

**What.** `train_batch_size`, `train_micro_batch_size_per_gpu` or `gradient_accumulation_steps` is `"auto"`. That word
belongs to transformers and accelerate, which replace it by a number before DeepSpeed sees the config.

**Why it hurts.** `deepspeed.initialize` computes with the text and every rank stops with a `TypeError` that names
neither the key nor the file: `'>' not supported between instances of 'str' and 'int'`.

**Fix.** Write the micro batch and the accumulation steps as numbers and leave `train_batch_size` out: DeepSpeed
computes it.

**When it stays quiet.** Transformers, accelerate or Lightning reads the file; nobody knows who reads it; the script
changes the batch sizes of the config before it hands it over.

**Evidence.** `_set_batch_related_parameters` in `deepspeed/runtime/config.py`: all 19 combinations of `"auto"`, a
number and nothing end in an exception, on one rank and on two. https://github.com/Roblox/FAI-RL/pull/70
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.batch import MICRO, STEPS, TRAIN
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import ENGINE

META = RuleMeta(
    code="DSL131",
    name="batch-auto-without-trainer",
    kind="config",
    severity=Severity.ERROR,
    summary='A batch size of `"auto"` that nobody fills in',
    depends_on_run=True,
    consumers=("deepspeed",),
    references=("https://github.com/Roblox/FAI-RL/pull/70",),
)

_AUTO = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": 2,
  "zero_optimization": {"stage": 2}
}
"""

EXAMPLES = (
    bad("DeepSpeed reads the file", {"ds.json": _AUTO}, "ds.json:2 error", consumer="deepspeed"),
    bad("the script hands it to DeepSpeed", {"ds.json": _AUTO, "train.py": ENGINE}, "ds.json:2 error"),
    good("the Trainer fills it in", {"ds.json": _AUTO}, consumer="hf"),
    good("nobody knows who reads it", {"ds.json": _AUTO}),
    good("numbers", {"ds.json": _AUTO.replace('"auto"', "4")}, consumer="deepspeed"),
    good(
        "the script fills it in",
        {
            "ds.json": _AUTO,
            "train.py": "import json\n\n"
            + ENGINE.replace(
                "engine,",
                'config = json.load(open("ds.json"))\nconfig["train_micro_batch_size_per_gpu"] = 4\nengine,',
            ).replace('config="ds.json"', "config=config"),
        },
    ),
)


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The three keys of the batch triangle; one finding for all of them."""
    view = view_of(doc, context)
    pointers = [f"/{key}" for key in (MICRO, TRAIN, STEPS) if view.is_auto(f"/{key}")]
    if not pointers:
        return
    names = " and ".join(f"`{p[1:]}`" for p in pointers)
    others = tuple(doc.value(p, "this one as well") for p in pointers[1:])
    readers = tuple(place.labelled("DeepSpeed reads the config here") for place in context.consumer.origins[:1])
    yield META.finding(
        doc.value(pointers[0]),
        f'{names} {"are" if others else "is"} `"auto"`, which DeepSpeed itself does not fill in: it stops with a '
        "`TypeError`",
        hint=f"Write numbers for `{MICRO}` and `{STEPS}`, and leave `{TRAIN}` out; only the Trainer and accelerate"
        " fill in `auto`",
        related=(*others, *readers),
        pointer=pointers[0],
        facts={"with": " ".join(pointers[1:])},
    )
