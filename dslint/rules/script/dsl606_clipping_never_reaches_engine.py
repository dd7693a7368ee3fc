"""The script asks for clipping, and the DeepSpeed config that it passes on has no `gradient_clipping`.

**What.** `TrainingArguments(max_grad_norm=..., deepspeed=CONFIG)`, or `accelerator.clip_grad_norm_(..., max_norm)` with
a `DeepSpeedPlugin`, where the config (or the plugin) says nothing of `gradient_clipping`.

**Why it hurts.** Under DeepSpeed the engine clips, and nobody else: the Trainer and `accelerator.clip_grad_norm_` leave
the gradients alone. The norm of the script reaches the engine through `gradient_clipping` only. Without that key
DeepSpeed keeps its default: no clipping before 0.19.3, and 1.0 from there on. A plugin without a config of its own
clips at 1.0. Nothing is said.

**Fix.** `"gradient_clipping": "auto"` in a config for the Trainer; with accelerate
`DeepSpeedPlugin(gradient_clipping=max_norm)`, or the number in the config.

**When it stays quiet.** The script sets `gradient_clipping` anywhere; a config that is a file, or of which not all keys
are known; a norm of 0 or `None`; a norm of 1.0 where DeepSpeed clips at 1.0; Lightning, which fills the key in.

**Evidence.** Two gloo ranks, DeepSpeed 0.19.8: with `max_norm=0.05` and a plugin without `gradient_clipping` the step
is that of a norm of 1.0. `Accelerator.clip_grad_norm_`; `HfTrainerDeepSpeedConfig.fill_match`, which fills in only keys
that are there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.versions.resolve import covers
from dslint.python.events import Event
from dslint.python.values import Value
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.runs import RunQuery
from dslint.rules.training.plateaus import instances

META = RuleMeta(
    code="DSL606",
    name="clipping-never-reaches-engine",
    kind="script",
    severity=Severity.WARNING,
    summary="the script asks for clipping, and its DeepSpeed config has no `gradient_clipping`",
    markers=(r"deepspeed|DeepSpeed|accelerat",),
    references=(
        "https://github.com/axolotl-ai-cloud/axolotl/issues/1381",
        "https://github.com/deepspeedai/DeepSpeed/issues/7220",
    ),
    depends_on_run=True,
)
_KEY = "gradient_clipping"
# What DeepSpeed takes since 0.19.3, and what accelerate puts for a plugin that does not say it.
_DEFAULT = 1.0
_HINTS = {
    True: 'Add `"gradient_clipping": "auto"` to the config: the Trainer puts its norm there',
    False: "Pass `gradient_clipping=` to the DeepSpeedPlugin, or set it in its config",
}


def query(run: RunQuery) -> Iterator[Finding]:
    """Fire where a norm is passed that the engine never learns of."""
    if not run.has("training-arguments", "clip-grad") or _is_set_somewhere(run):
        return
    for found in run.happenings("training-arguments"):
        event = found.event
        norm = event.arguments.get("max_grad_norm")
        if _lacks(event) and _asks(run, norm) and not _is_default(run, norm):
            yield _finding(run, event, event.nodes.get("max_grad_norm"), event)
    plugins = {atom: made for atom, made in run.makers.items() if made.api == "accelerate.DeepSpeedPlugin"}
    seen: set[int] = set()
    for found in run.occurrences("clip-grad") if plugins else ():
        event = found.event
        plugin = _plugin(run, event)
        norm = event.arguments.get("max_norm")
        if plugin is None or not _asks(run, norm) or event.may or id(event.node) in seen:
            continue
        is_bare = plugin.config is None or plugin.config.constants == (None,)
        if (is_bare and not _is_one(norm)) or (_lacks(plugin) and not _is_default(run, norm)):
            seen.add(id(event.node))
            yield _finding(run, event, event.nodes.get("max_norm"), plugin)


def _is_set_somewhere(run: RunQuery) -> bool:
    """Return whether the key stands anywhere in the code of the run."""
    for module in run.machine.program.modules():
        if _KEY not in module.code:
            continue
        for node in module.nodes:
            words = (getattr(node, "value", None), getattr(node, "arg", None), getattr(node, "attr", None))
            if _KEY in [word for word in words if isinstance(word, str)]:
                return True
    return False


def _lacks(event: Event) -> bool:
    """Return whether the config of a call certainly has no such key."""
    return not event.may and event.settings is not None and event.settings.lacks(f"/{_KEY}")


def _asks(run: RunQuery, norm: Value | None) -> bool:
    """Return whether clipping is wanted: a norm is given that is not certainly none."""
    known = run.likely(norm)
    return norm is not None and (known is None or any(known))


def _is_one(norm: Value | None) -> bool:
    """Return whether a norm is certainly the one that a plugin takes by itself."""
    return norm is not None and norm.constants == (_DEFAULT,)


def _is_default(run: RunQuery, norm: Value | None) -> bool:
    """Return whether the engine clips at this norm anyway: 1.0 with a release that is known to be new."""
    return _is_one(norm) and covers(run.context.deepspeed, ">=0.19.3") == "yes"


def _plugin(run: RunQuery, clip: Event) -> Event | None:
    """Return the plugin of the Accelerator that clips, where it is one that says nothing of clipping."""
    makers = [run.makers.get(atom) for atom in instances(clip.receiver)]
    if len(makers) != 1 or makers[0] is None or makers[0].open:
        return None
    plugins = [run.makers.get(atom) for atom in instances(makers[0].arguments.get("deepspeed_plugin"))]
    plugin = plugins[0] if len(plugins) == 1 else None
    if plugin is None or plugin.api != "accelerate.DeepSpeedPlugin" or plugin.open or _KEY in plugin.arguments:
        return None
    return plugin


def _finding(run: RunQuery, event: Event, node: ast.expr | None, configured: Event) -> Finding:
    is_trainer = "training-arguments" in event.tags
    at = node if node is not None else event.node
    norm = run.text(event.module, at, 40)
    has_dict = configured.settings is not None
    what = "the config" if has_dict else "the plugin"
    takes = "uses its default" if has_dict else "clips at 1.0"
    name = f"`max_grad_norm={norm}`" if is_trainer else f"the norm `{norm}`"
    related = []
    place = configured.settings.node if configured.settings is not None else configured.node
    module = run.machine.program.home_of(place)
    if module is not None:
        related.append(run.location(module, place, f"{what} of the engine"))
    return run.finding(
        META,
        event.module,
        at,
        f"{name} never reaches DeepSpeed: {what} has no `{_KEY}`, and the engine {takes}",
        hint=_HINTS[is_trainer],
        related=tuple(related),
        facts={"reader": "trainer" if is_trainer else "accelerate"},
    )


_TRAINER = """\
from transformers import Trainer, TrainingArguments

DS = {
    "train_micro_batch_size_per_gpu": "auto",
    "zero_optimization": {"stage": 2}%s
}


def main(model, data, clip):
    args = TrainingArguments("out", %sdeepspeed=DS)
    Trainer(model=model, args=args, train_dataset=data).train()
"""
_CONFIGS = """\
def config(stage, clip=None):
    found = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": stage}}
    if clip is not None:
        found%s = clip
    return found
"""
_MAKES = """\
from configs import config
from trl import SFTConfig, SFTTrainer

args = SFTConfig("out", max_grad_norm=0.3, deepspeed=config(2%s))
SFTTrainer("a/model", args=args).train()
"""
_ACCELERATE = """\
import torch
from accelerate import Accelerator, DeepSpeedPlugin


def make():
    return Accelerator(deepspeed_plugin=DeepSpeedPlugin(%s))


def train(model, loader, norm):
    accelerator = make()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch).mean())
        accelerator.clip_grad_norm_(model.parameters(), norm)
        optimizer.step()
        optimizer.zero_grad()
"""
_DICT = 'hf_ds_config={"train_batch_size": 8, "zero_optimization": {"stage": 2}}'

EXAMPLES = (
    bad(
        "the Trainer has nowhere to put its norm",
        {"train.py": _TRAINER % ("", "max_grad_norm=clip, ")},
        "train.py:10 warning",
    ),
    bad(
        "a config that another file makes",
        {"configs.py": _CONFIGS % '["steps_per_print"]', "train.py": _MAKES % ""},
        "train.py:4 warning",
    ),
    bad("a plugin that says only the stage", {"train.py": _ACCELERATE % "zero_stage=2"}, "train.py:15 warning"),
    bad("a plugin with a dict", {"train.py": _ACCELERATE % _DICT}, "train.py:15 warning"),
    good("`auto` is filled in", {"train.py": _TRAINER % (', "gradient_clipping": "auto"', "max_grad_norm=clip, ")}),
    good("nobody asks for a norm", {"train.py": _TRAINER % ("", "")}),
    good("clipping is switched off", {"train.py": _TRAINER % ("", "max_grad_norm=0.0, ")}),
    good(
        "set where it is given",
        {"configs.py": _CONFIGS % '["gradient_clipping"]', "train.py": _MAKES % ", clip=0.3"},
    ),
    good("the plugin clips", {"train.py": _ACCELERATE % "zero_stage=2, gradient_clipping=0.5"}),
    good("1.0 is what the plugin takes", {"train.py": (_ACCELERATE % "zero_stage=2").replace("(), norm", "(), 1.0")}),
)
