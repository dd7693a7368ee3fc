"""`Trainer(optimizers=...)` in a run with DeepSpeed: the optimizer that is passed never trains.

**What.** The script passes `optimizers=(optimizer, schedule)` to the transformers Trainer, and the run has a DeepSpeed
config.

**Why it hurts.** The integration begins with `trainer.optimizer = None` and makes an optimizer anew: that of the
config, or the AdamW of `create_optimizer`. SGD, Lion, own parameter groups and their learning rates are silently
ignored. Releases of transformers before 5 stop instead: `RuntimeError: Passing `optimizers` is not allowed`.

**Fix.** Subclass the Trainer, override `create_optimizer` and leave `optimizer` out of the DeepSpeed config; or pass
`optimizer_cls_and_kwargs=`.

**When it stays quiet.** The run has no DeepSpeed config; what is passed may be `None`; it is not known which Trainer
runs, or the class overrides `create_optimizer`.

**Evidence.** `deepspeed_init` in `transformers/integrations/deepspeed.py`. Run with the Trainer of transformers 5.24
and DeepSpeed 0.19.8: an SGD that is passed becomes AdamW.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL493",
    name="hf-optimizers-argument-lost",
    kind="plan",
    severity=Severity.WARNING,
    summary="`Trainer(optimizers=...)` under DeepSpeed: the optimizer that is passed never trains",
    versions=("transformers",),
    references=(
        "https://github.com/huggingface/transformers/issues/11464",
        "https://huggingface.co/docs/transformers/main_classes/trainer",
    ),
    depends_on_run=True,
    needs=("config",),
)


def check(plan: RunPlan, _context: Context) -> Iterator[Finding]:
    """Look for an optimizer that goes to the constructor of the Trainer."""
    own, doc = plan.own_optimizer, plan.config
    if own is None or own.passed is None or doc is None or own.override is not None:
        return
    if any(peer.is_earlier and peer.consumer == plan.consumer for peer in plan.peers):
        return  # told at the first run of this config
    yield META.finding(
        own.passed,
        "`optimizers` of the Trainer is dropped under DeepSpeed, which trains with another optimizer",
        hint="Override `create_optimizer`, and leave `optimizer` out of the DeepSpeed config",
        related=(doc.value("").labelled("the DeepSpeed config of the run"),),
        severity=Severity.INFO if plan.command.in_docs else None,
        facts={"passed": True},
    )


_TRAIN = """\
import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


def main():
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
%s


if __name__ == "__main__":
    main()
"""
_PASSED = """\
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = Trainer(model=model, args=args, train_dataset=[], optimizers=(optimizer, None))
    trainer.train()"""
_HELPER = """\
    trainer = Trainer(model=model, args=args, train_dataset=[], optimizers=groups_of(model))
    trainer.train()"""
_GROUPS = """\
import torch


def groups_of(model):
    head, rest = list(model.lm_head.parameters()), list(model.transformer.parameters())
    groups = [{"params": rest, "lr": 1e-5}, {"params": head, "lr": 1e-3}]
    optimizer = torch.optim.AdamW(groups)
    return optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer)
"""
_NONE = """\
    trainer = Trainer(model=model, args=args, train_dataset=[], optimizers=(None, None))
    trainer.train()"""
_SUBCLASS = """\
    own = Own(model=model, args=args, train_dataset=[])
    own.train()


class Own(Trainer):
    def create_optimizer(self):
        if self.optimizer is None:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        return self.optimizer"""
_CONFIG = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 2}
}
"""


def _project(train: str, given: str = " --deepspeed ds.json", **more: str) -> dict[str, str]:
    run = f"torchrun --nproc_per_node 8 train.py --output_dir out --bf16 True{given}\n"
    files = {"run.sh": run, "train.py": train, **({"ds.json": _CONFIG} if given else {})}
    return {**files, **{f"{name}.py": text for name, text in more.items()}}


EXAMPLES = (
    bad("SGD is passed, and AdamW trains", _project(_TRAIN % _PASSED), "train.py:9 warning"),
    bad(
        "groups that a function of another file makes",
        _project("from groups import groups_of\n" + _TRAIN % _HELPER, groups=_GROUPS),
        "train.py:9 warning",
    ),
    good("without DeepSpeed", _project(_TRAIN % _PASSED, "")),
    good("nothing is passed", _project(_TRAIN % _NONE)),
    good("an override", _project(_TRAIN % _SUBCLASS)),
)
