"""The arguments that transformers' ``TrainingArguments`` shares with a DeepSpeed config.

``HfTrainerDeepSpeedConfig.trainer_config_process`` and ``trainer_config_finalize`` fill ``"auto"`` from these
arguments and refuse every other value that differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dslint.core.fact import Fact, absent, known, unknown
from dslint.python.launches import FALSE_WORDS, TRUE_WORDS

Arguments = Mapping[str, Fact[Any]]

# Defaults that every transformers release since the DeepSpeed integration has had.
HF_DEFAULTS: Mapping[str, object] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_grad_norm": 1.0,
    "learning_rate": 5e-5,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "fp16": False,
    "fp16_full_eval": False,
    "bf16": False,
    "bf16_full_eval": False,
    "auto_find_batch_size": False,
    "save_only_model": False,
    "load_best_model_at_end": False,
}
# Those of plain `TrainingArguments` alone: programs around the Trainer have a warm-up of their own. The ratio is 0.0
# before and ``None`` since transformers 5.
EXACT_DEFAULTS: Mapping[str, object] = {**HF_DEFAULTS, "warmup_steps": 0, "warmup_ratio": 0.0}
WARMUP = "/scheduler/params/warmup_num_steps"
_INTEGERS = {"per_device_train_batch_size", "gradient_accumulation_steps", "max_steps"}
_FLAGS = {name for name, value in HF_DEFAULTS.items() if isinstance(value, bool)}
# Arguments that are words; without them something else decides (``optim``: the release), or nothing does (``fsdp``).
_WORDS = {"optim", "lr_scheduler_type", "fsdp"}
# Names that plain ``TrainingArguments`` of transformers reads and dslint uses, in the same order in every process.
HF_NAMES = dict.fromkeys((*EXACT_DEFAULTS, *sorted(_INTEGERS), *sorted(_WORDS))).keys()


@dataclass(frozen=True, slots=True)
class Pair:
    """A config value and the argument(s) it must equal."""

    pointer: str
    called: str
    value: Callable[[Arguments], Fact[Any]]


def parse_value(name: str, text: str) -> Fact[Any]:
    """What HfArgumentParser makes of the text of an argument."""
    if name in _WORDS:
        return known(text)
    try:
        if name in _FLAGS:
            low = text.lower()
            if low in TRUE_WORDS or low in FALSE_WORDS:
                return known(low in TRUE_WORDS)
        elif name in _INTEGERS:
            return known(int(text))
        else:
            number = float(text)
            # A count, and since transformers 5 a part of all steps where it is below 1.
            return known(int(number) if name == "warmup_steps" and (number >= 1 or not number) else number)
    except (ValueError, OverflowError):
        pass
    return unknown(f"{text!r} is no value of this argument")


def fitting(name: str, fact: Fact[Any]) -> Fact[Any]:
    """A value that a script hands to the argument: text is read as the parser does; of another type it is unknown."""
    if not fact.is_known or name in _WORDS:
        return fact
    value = parse_value(name, fact.get()) if isinstance(fact.get(), str) else fact
    is_number = isinstance(value.value, (int, float)) and not isinstance(value.value, bool)
    if value.is_known and not (isinstance(value.value, bool) if name in _FLAGS else is_number):
        value = unknown(f"{value.get()!r} is no value of this argument")
    return Fact(value.state, value.value, fact.origins, value.reason)


def is_flag(name: str) -> bool:
    """The argument is a switch: ``--bf16`` alone means true."""
    return name in _FLAGS


def _plain(name: str) -> Callable[[Arguments], Fact[Any]]:
    return lambda arguments: arguments.get(name, absent())


def _both(first: str, second: str) -> Callable[[Arguments], Fact[Any]]:
    def value(arguments: Arguments) -> Fact[Any]:
        a, b = arguments.get(first, absent()), arguments.get(second, absent())
        if not a.is_known or not b.is_known:
            return a if a.is_unknown else (b if not b.is_known else a)
        return known([a.get(), b.get()], *a.origins, *b.origins)

    return value


def _either(first: str, second: str) -> Callable[[Arguments], Fact[Any]]:
    """True as soon as one is true; false only when both are known to be."""

    def value(arguments: Arguments) -> Fact[Any]:
        a, b = arguments.get(first, absent()), arguments.get(second, absent())
        for fact in (a, b):
            if fact.is_known and fact.get():
                return fact
        if a.is_known and b.is_known:
            return a
        return a if not a.is_known else b

    return value


def _micro(arguments: Arguments) -> Fact[Any]:
    search = arguments.get("auto_find_batch_size", absent())
    if search.is_unknown or search.get_or(False):
        return unknown("`auto_find_batch_size` chooses the batch size")
    return arguments.get("per_device_train_batch_size", absent())


def _total(arguments: Arguments) -> Fact[Any]:
    """``max_steps``: only a positive number is used as it stands."""
    fact = arguments.get("max_steps", absent())
    return unknown("`max_steps` is computed") if fact.is_known and fact.get() < 1 else fact


def _warmup(arguments: Arguments) -> Fact[Any]:
    """The steps of the warm-up; 0 where there certainly is none."""
    steps, ratio = (arguments.get(name, absent()) for name in ("warmup_steps", "warmup_ratio"))
    value = steps.get_or(None)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return steps if not steps.is_known else unknown("`warmup_steps` is no number")
    # Which of the two wins has changed in transformers 5.
    if ratio.is_known and (ratio.get() or ratio.origins):
        return unknown("`warmup_ratio` is stated")
    if value >= 1:
        return known(int(value), *steps.origins)
    return unknown("the warm-up is computed") if value or not ratio.is_known else steps


PAIRS: tuple[Pair, ...] = (
    Pair("/train_micro_batch_size_per_gpu", "per_device_train_batch_size", _micro),
    Pair("/gradient_accumulation_steps", "gradient_accumulation_steps", _plain("gradient_accumulation_steps")),
    Pair("/gradient_clipping", "max_grad_norm", _plain("max_grad_norm")),
    Pair("/optimizer/params/lr", "learning_rate", _plain("learning_rate")),
    Pair("/optimizer/params/betas", "[adam_beta1, adam_beta2]", _both("adam_beta1", "adam_beta2")),
    Pair("/optimizer/params/eps", "adam_epsilon", _plain("adam_epsilon")),
    Pair("/optimizer/params/weight_decay", "weight_decay", _plain("weight_decay")),
    Pair("/scheduler/params/warmup_max_lr", "learning_rate", _plain("learning_rate")),
    Pair("/scheduler/params/total_num_steps", "max_steps", _total),
    Pair(WARMUP, "warmup_steps", _warmup),
    Pair("/fp16/enabled", "fp16", _either("fp16", "fp16_full_eval")),
    Pair("/bf16/enabled", "bf16", _either("bf16", "bf16_full_eval")),
)
