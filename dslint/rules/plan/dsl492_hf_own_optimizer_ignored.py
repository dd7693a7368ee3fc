"""A Trainer with a `create_optimizer` of its own, and a DeepSpeed config with an `optimizer` section.

**What.** A subclass of the transformers Trainer overrides `create_optimizer` (parameter groups with learning rates of
their own, another optimizer), and the DeepSpeed config of the run has an `optimizer` section.

**Why it hurts.** The section wins: the Trainer hands a `DummyOptim` with all parameters in one group to DeepSpeed. An
override that asks `if self.optimizer is None` finds that one and leaves it, so `--vision_lr`, `--mm_projector_lr` and
the like are silently ignored, and every weight learns at `learning_rate`. An override that does not ask puts its own
optimizer in the place, and accelerate stops the run: `ValueError: You cannot specify an optimizer in the config file
and in the code at the same time`.

**Fix.** Delete the `optimizer` section. The Trainer then calls the override and hands its optimizer to DeepSpeed. The
fix does that; it is unsafe because training changes.

**When it stays quiet.** The config has no such section; groups that only differ in weight decay; learning rates of
options that the command does not pass; an override that speaks of DeepSpeed; it is not known which Trainer runs.

**Evidence.** `deepspeed_optim_sched` in `transformers/integrations/deepspeed.py`. Run with the Trainer of transformers
5.24 and DeepSpeed 0.19.8: with the section one group at `learning_rate`, without it the two groups of the override.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.fact import Fact, absent
from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import delete_member
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL492",
    name="hf-own-optimizer-ignored",
    kind="plan",
    severity=Severity.WARNING,
    summary="`create_optimizer` of the Trainer is overruled by the `optimizer` section of the DeepSpeed config",
    fix="unsafe",
    versions=("transformers>=4.30",),
    references=(
        "https://github.com/huggingface/transformers/issues/24656",
        "https://huggingface.co/docs/transformers/deepspeed#optimizer-and-scheduler",
    ),
    depends_on_run=True,
    needs=("config",),
)
_KEY = "/optimizer"


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """Compare what the Trainer makes with the section of the config."""
    own, doc = plan.own_optimizer, plan.config
    if own is None or own.override is None or doc is None or plan.config_is_rewritten:
        return
    if not view_of(doc, context).has(_KEY):
        return
    wants = _wanted(plan)
    if own.is_guarded and not wants:
        return
    if own.is_guarded:
        what = "its learning rates and groups are silently ignored"
    else:
        what = "accelerate stops, since the run has two optimizers"
    edits = delete_member(doc, _KEY)
    yield META.finding(
        doc.key(_KEY) or doc.value(""),
        f"this `optimizer` overrules `create_optimizer` of the Trainer: {what}",
        hint="Delete the `optimizer` section: the Trainer hands its own optimizer to DeepSpeed",
        related=(own.override.labelled("the override"), *wants),
        fix=Fix("Delete the `optimizer` section", edits, Safety.UNSAFE) if edits else None,
        severity=Severity.INFO if plan.command.in_docs else None,
        pointer=_KEY,
        facts={"guarded": own.is_guarded},
    )


def _wanted(plan: RunPlan) -> tuple[Location, ...]:
    """Where the run asks for what only the override does."""
    own = plan.own_optimizer
    if own is None:
        return ()
    if own.always is not None:
        return (own.always.labelled("what it makes"),)
    found: list[Location] = []
    for name in own.rates:
        fact: Fact[str] = plan.passed.get(name, absent())
        if fact.is_known and fact.get() not in (None, "None", "null", ""):
            found += [place.labelled(f"`{name}` of the override") for place in fact.origins[:1]]
    return tuple(found)


_TRAIN = """\
from dataclasses import dataclass, field

from transformers import HfArgumentParser, TrainingArguments
from own import OwnTrainer


@dataclass
class Options(TrainingArguments):
    vision_lr: float = field(default=None)


def main(model, data):
    (args,) = HfArgumentParser(Options).parse_args_into_dataclasses()
    trainer = OwnTrainer(model=model, args=args, train_dataset=data)
    trainer.train()


if __name__ == "__main__":
    main(None, None)
"""
_OWN = """\
import torch
from transformers import Trainer


class OwnTrainer(Trainer):
    def create_optimizer(self):
        if self.optimizer is None:
            names = {n for n, _ in self.model.named_parameters() if "visual" in n}
            rest = [p for n, p in self.model.named_parameters() if n not in names]
            groups = [{"params": rest}]
            if self.args.vision_lr is not None:
                seen = [p for n, p in self.model.named_parameters() if n in names]
                groups.append({"params": seen, "lr": self.args.vision_lr})
            cls, options = self.get_optimizer_cls_and_kwargs(self.args)
            self.optimizer = cls(groups, **options)
        return self.optimizer
"""
_DECAY = """\
import torch
from transformers import Trainer


class OwnTrainer(Trainer):
    def create_optimizer(self):
        if self.optimizer is None:
            groups = [{"params": list(self.model.parameters()), "weight_decay": 0.0}]
            cls, options = self.get_optimizer_cls_and_kwargs(self.args)
            self.optimizer = cls(groups, **options)
        return self.optimizer
"""
_FIXED_RATE = """\
import torch
from transformers import Trainer


class Base(Trainer):
    def create_optimizer(self):
        if self.optimizer is not None:
            return self.optimizer
        head = [p for n, p in self.model.named_parameters() if "head" in n]
        rest = [p for n, p in self.model.named_parameters() if "head" not in n]
        self.optimizer = torch.optim.AdamW(
            [{"params": rest, "lr": self.args.learning_rate}, {"params": head, "lr": 1e-3}]
        )
        return self.optimizer


class OwnTrainer(Base):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return model(**inputs).loss
"""
_PLAIN = """\
from own_optimizer import Lion
from transformers import Trainer


class OwnTrainer(Trainer):
    def create_optimizer(self):
        self.optimizer = Lion(self.model.parameters(), lr=self.args.learning_rate)
        return self.optimizer
"""
_CONFIG = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "bf16": {"enabled": "auto"},
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}
  },
  "zero_optimization": {"stage": 2}
}
"""
_NONE = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 2}
}
"""


def _project(own: str, given: str = "", config: str = _CONFIG) -> dict[str, str]:
    run = f"deepspeed train.py --deepspeed ds.json --output_dir out --bf16 True{given}\n"
    return {"run.sh": run, "train.py": _TRAIN, "own.py": own, "ds.json": config}


_FIX = {"ds.json": _NONE}
EXAMPLES = (
    bad("a rate for the vision tower", _project(_OWN, " --vision_lr 2e-6"), "ds.json:6 warning", fixed=_FIX),
    bad("a rate that is in the code of a base class", _project(_FIXED_RATE), "ds.json:6 warning", fixed=_FIX),
    bad("an optimizer of its own, in any case", _project(_PLAIN), "ds.json:6 warning", fixed=_FIX),
    good("the config has no optimizer", _project(_OWN, " --vision_lr 2e-6", _NONE)),
    good("the rate is not passed", _project(_OWN)),
    good("groups for weight decay alone", _project(_DECAY)),
    good(
        "it knows of DeepSpeed",
        _project(_FIXED_RATE.replace("self.optimizer is not None", "self.is_deepspeed_enabled")),
    ),
)
