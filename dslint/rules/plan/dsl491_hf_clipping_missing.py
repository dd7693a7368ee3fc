"""Gradients that are not clipped as the Trainer is told: the DeepSpeed config has no `gradient_clipping`.

**What.** A run of the transformers Trainer has a DeepSpeed config without `gradient_clipping`, and the clipping of
DeepSpeed's own default differs from `max_grad_norm` (1.0 where nobody gives it).

**Why it hurts.** Under DeepSpeed the Trainer clips nothing itself: `accelerator.clip_grad_norm_` only returns the norm.
It writes `max_grad_norm` into the config only where that says `"auto"`. A missing key is left to DeepSpeed, whose
default is 0 (no clipping) before 0.19.3 and 1.0 from there on. So `--max_grad_norm` is silently ignored, one bad batch
moves the weights without a bound, and runs with and without DeepSpeed differ.

**Fix.** Add `"gradient_clipping": "auto"`, which takes the argument over. The fix does that; it is unsafe because
training changes.

**When it stays quiet.** With the key in the config; where the config is a dictionary of the script (DSL606); where the
release of DeepSpeed is not stated and the argument is 1.0; where the argument, the reader of the config or what the
script makes of the config is not known. Where a range allows releases on both sides of 0.19.3 it is an information.

**Evidence.** `HfTrainerDeepSpeedConfig.fill_match` in transformers, `Accelerator.clip_grad_norm_` in accelerate,
`GRADIENT_CLIPPING_DEFAULT` in `deepspeed/runtime/constants.py`. Run with the Trainer of transformers 5 under DeepSpeed
0.18.9 (steps as long as the gradient) and 0.19.8 (steps clipped to 1.0 with `max_grad_norm=0.01`);
https://github.com/axolotl-ai-cloud/axolotl/issues/1381
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact, absent
from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.model.edits import insert_member
from dslint.model.plan.runplan import Peer, RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import TRAINER

META = RuleMeta(
    code="DSL491",
    name="hf-clipping-missing",
    kind="plan",
    severity=Severity.WARNING,
    summary="`max_grad_norm` is never applied: the DeepSpeed config has no `gradient_clipping`",
    fix="unsafe",
    versions=("transformers>=4.6",),
    references=("https://github.com/axolotl-ai-cloud/axolotl/issues/1381",),
    depends_on_run=True,
    needs=("config",),
)

_KEY, _CHANGED = "/gradient_clipping", "0.19.3"


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """Compare what the Trainer is told with what DeepSpeed does without the key."""
    doc, norm = plan.config, plan.arguments.get("max_grad_norm", absent())
    if doc is None or plan.consumer.get_or("") != "hf" or plan.config_is_rewritten or plan.recipe is not None:
        return
    view = view_of(doc, context)
    if not norm.is_known or not view.fact(_KEY).is_absent or view.has(_KEY):
        return
    runs = _clips(view, norm)
    if runs is None or any(p.is_earlier and p.consumer == plan.consumer and _same(p, norm) for p in plan.peers):
        return
    does, severity = runs
    edits = insert_member(doc, "", _KEY[1:], '"auto"')
    yield META.finding(
        doc.value(""),
        f"`gradient_clipping` is missing: {does}, and `max_grad_norm` {_shown(norm)} is never applied",
        hint='Add `"gradient_clipping": "auto"`: `max_grad_norm` then fills it',
        related=(
            *(o.labelled(f"max_grad_norm {norm.get():g}") for o in norm.origins),
            *version_origin(view.version),
        ),
        fix=Fix('Add `"gradient_clipping": "auto"`', edits, Safety.UNSAFE) if edits else None,
        severity=Severity.INFO if plan.command.in_docs else severity,
        pointer=_KEY,
        facts={"max_grad_norm": norm.get(), "consumer": "hf"},
    )


def _clips(view: ConfigView, norm: Fact[float]) -> tuple[str, Severity] | None:
    """What DeepSpeed does in the releases in use; `None` where it does what the Trainer is told."""
    runs = view.runs(f">={_CHANGED}") if view.version.is_known else "maybe"
    value = norm.get()
    if runs == "no":
        return (f"{version_named(view.version)} does not clip", Severity.WARNING) if value else None
    if runs == "yes":
        return None if value == 1 else (f"{version_named(view.version)} clips at 1.0", Severity.WARNING)
    if value not in (0, 1):
        return f"DeepSpeed clips at 1.0 since {_CHANGED} and not before", Severity.WARNING
    if not view.version.is_known or not value:
        return None
    return f"{version_named(view.version)} may not clip", Severity.INFO


def _same(peer: Peer, norm: Fact[float]) -> bool:
    theirs: Fact[float] = peer.arguments.get("max_grad_norm", absent())
    return theirs.is_known and bool(theirs.get() == norm.get())


def _shown(norm: Fact[float]) -> str:
    return f"{norm.get():g}" if norm.origins else f"{norm.get():g} (default)"


_RUN = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --output_dir out --bf16 True%s\n"
_TEXT = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 2}
}
"""
_FIXED = _TEXT.replace("2}\n", '2},\n  "gradient_clipping": "auto"\n')
_OLD, _NEW = "deepspeed==0.14.0\n", "deepspeed==0.19.8\n"


def _project(given: str = "", config: str = _TEXT, release: str = _OLD) -> dict[str, str]:
    return {"run.sh": _RUN % given, "train.py": TRAINER, "ds.json": config, "requirements.txt": release}


EXAMPLES = (
    bad("the default of an old release", _project(), "ds.json:1 warning", fixed={"ds.json": _FIXED}),
    bad("an own limit", _project(" --max_grad_norm 0.3", release=_NEW), "ds.json:1 warning", fixed={"ds.json": _FIXED}),
    bad("an own limit, and no release", _project(" --max_grad_norm 0.3", release=""), "ds.json:1 warning",
        fixed={"ds.json": _FIXED}),
    bad("a range with both", _project(release="deepspeed>=0.14\n"), "ds.json:1 info", fixed={"ds.json": _FIXED}),
    bad("no clipping is wanted", _project(" --max_grad_norm 0", release=_NEW), "ds.json:1 warning",
        fixed={"ds.json": _FIXED}),
    good("it is filled", _project(config=_FIXED)),
    good("the config says the number", _project(config=_FIXED.replace('"auto"\n', "1.0\n"))),
    good("the new default is what the Trainer means", _project(release=_NEW)),
    good("no clipping is wanted, and none is done", _project(" --max_grad_norm 0")),
    good("no release is stated", _project(release="")),
)  # fmt: skip
