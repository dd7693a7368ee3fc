"""A schedule that neither DeepSpeed nor torch has.

**What.** `scheduler.type` is neither a schedule of DeepSpeed (`LRRangeTest`, `OneCycle`, `WarmupLR`, `WarmupDecayLR`,
`WarmupCosineLR`) nor a class in `torch.optim.lr_scheduler`. The case of letters counts.

**Why it hurts.** Every rank stops with `AssertionError: DeepSpeed does not recognize LR scheduler warmuplr` when the
engine is made, after the model was loaded.

**Fix.** `--fix` corrects the case of letters.

**When it stays quiet.** A placeholder, `"auto"`, a name that some release in question knows. A script that hands its
own schedule to `deepspeed.initialize` runs anyway.

**Evidence.** `_scheduler_from_config` in `deepspeed/runtime/engine.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.hyper import SCHEDULER, class_name, is_known
from dslint.model.deepspeed.signatures import SCHEDULES, own_names, since, torch_names
from dslint.model.deepspeed.suggest import closest
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL127",
    name="scheduler-unknown-type",
    kind="config",
    severity=Severity.ERROR,
    summary="The schedule of the config is none that DeepSpeed or torch has",
    fix="safe",
    references=("https://www.deepspeed.ai/docs/config-json/#scheduler-parameters",),
    depends_on_run=True,
    needs=("/scheduler/type",),
)

_TEXT = '{\n  "train_batch_size": 8,\n  "scheduler": {"type": "%s", "params": {%s}}\n}\n'
_COSINE = '"total_num_steps": 100'

EXAMPLES = (
    bad("small letters", {"ds.json": _TEXT % ("warmuplr", "")}, "ds.json:3 error",
        fixed={"ds.json": _TEXT % ("WarmupLR", "")}),
    bad("the name of transformers", {"ds.json": _TEXT % ("cosine", "")}, "ds.json:3 error"),
    bad("the release is too old for it", {"ds.json": _TEXT % ("WarmupCosineLR", _COSINE)}, "ds.json:3 error",
        deepspeed_version="0.12.2"),
    good("a schedule of DeepSpeed", {"ds.json": _TEXT % ("WarmupCosineLR", _COSINE)}),
    good("a release from before the first that is known", {"ds.json": _TEXT % ("WarmupLR", "")},
         deepspeed_version="0.6.5"),
    good("a schedule of torch", {"ds.json": _TEXT % ("CosineAnnealingLR", '"T_max": 10')}),
)  # fmt: skip

# Words of transformers.
_WORDS = {"linear": "WarmupDecayLR", "cosine": "WarmupCosineLR", "constant_with_warmup": "WarmupLR"}


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The name in the section."""
    view = view_of(doc, context)
    fact = class_name(view, "scheduler")
    if not fact.is_known or is_known(view, "scheduler", fact.get()):
        return
    name = fact.get()
    if name in own_names(SCHEDULES):
        message = (
            f"`scheduler.type` `{name}` is new in DeepSpeed {since(SCHEDULES, name)}: "
            f"{version_named(view.version)} stops when the engine is made"
        )
        yield META.finding(
            doc.value(SCHEDULER), message, hint="Name another schedule, or upgrade", pointer=SCHEDULER,
            related=version_origin(view.version), facts={"since": since(SCHEDULES, name), "with": "/scheduler"},
        )  # fmt: skip
        return
    known = (*own_names(SCHEDULES), *torch_names(SCHEDULES))
    same = [other for other in known if other.casefold() == name.casefold()]
    right = same[0] if same else _WORDS.get(name.casefold()) or closest(name, known)
    edits = replace_value(doc, SCHEDULER, f'"{right}"') if same else ()
    shown = ", ".join(f"`{other}`" for other in own_names(SCHEDULES))
    yield META.finding(
        doc.value(SCHEDULER),
        f"`scheduler.type` `{name}` is neither a DeepSpeed nor a torch schedule: every rank stops when the engine is "
        "made",
        hint=f"Write `{right}`" if same else f"Did you mean `{right}`?" if right else f"Name one of {shown}",
        fix=Fix(f"Write `{right}`", edits, Safety.SAFE) if edits else None,
        pointer=SCHEDULER,
        facts={"with": "/scheduler"},
    )
