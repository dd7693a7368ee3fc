"""Settings that code reads by their names: `cfg["data"]["workers"]`, `args_data.get("pin_mem")`, `cfg.TRAIN.LR`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.python.source import Module
from dslint.rules.training.training import last_name

# Names of variables and sections that hold settings.
_CONFIGS = re.compile(
    r"(?i)(?:\w*_)?(?:cfgs?|conf(?:ig)?s?|configuration|args?|opts?|options|hparams|hyper_?params|hps|settings|yaml)"
    r"(?:_\w+)?"
)
# What decides over training, data, evaluation and checkpoints; what else there is, is for people to look at.
_WEIGHTY = re.compile(
    r"(?i)(?:^|_)(?:lr|learning|rate|decay|wd|optim\w*|sched\w*|warmup|batch\w*|workers?|pin|mem|prefetch|shuffle|seed"
    r"|sampl\w+|drop|dropout|persistent|epochs?|steps?|accum\w*|clip|grad\w*|precision|amp|fp16|bf16|bfloat16|ema"
    r"|momentum|betas?|eps|loss\w*|resume\w*|ckpt|checkpoint\w*|save|eval\w*|val|valid\w*|test|freq|interval|dist\w*"
    r"|sync|ddp|fsdp|zero|deepspeed|world|rank|nodes?|gpus?|backend|init|method|timeout|crop|resolution|size|aug\w*"
    r"|mixup|cutmix|label\w*|smoothing|freeze|frozen|pretrain\w*|load|compile|reg\w*|weights?|cfg|prob|legacy|margin"
    r"|num|log|resource|decode|one|clips?|frames?)(?:_|$)"
)
_KEY = re.compile(r"[A-Za-z_]\w*")
_GETS = ("get", "pop")


@dataclass(frozen=True, slots=True)
class Setting:
    """One read of a setting: the expression, what it is read from, and its name."""

    module: Module
    node: ast.expr
    base: ast.expr
    key: str
    default: ast.expr | None = None


def settings_read(module: Module) -> tuple[Setting, ...]:
    """Return the settings that a module reads by a name that it writes out."""
    return module.once(_settings)


def _settings(module: Module) -> tuple[Setting, ...]:
    return tuple(_each_setting(module))


def _each_setting(module: Module) -> Iterator[Setting]:
    for call in module.nodes_of(ast.Call):
        func, args = call.func, call.args
        key = args[0].value if args and isinstance(args[0], ast.Constant) else None
        if not isinstance(func, ast.Attribute) or func.attr not in _GETS or not isinstance(key, str):
            continue
        if len(args) < 3 and holds_settings(func.value):
            yield Setting(module, call, func.value, key, args[1] if len(args) > 1 else None)
    for item in module.nodes_of(ast.Subscript):
        named = item.slice.value if isinstance(item.slice, ast.Constant) else None
        if isinstance(item.ctx, ast.Load) and isinstance(named, str) and holds_settings(item.value):
            yield Setting(module, item, item.value, named)
    for field in module.nodes_of(ast.Attribute):
        outer = field.value
        is_upper = isinstance(outer, ast.Attribute) and field.attr.isupper() and outer.attr.isupper()
        if isinstance(field.ctx, ast.Load) and is_upper and holds_settings(outer):
            yield Setting(module, field, outer, field.attr)


def holds_settings(node: ast.expr) -> bool:
    """Return whether an expression is a configuration or a part of one, by the names in it."""
    at: ast.AST = node
    while True:
        if _CONFIGS.fullmatch(last_name(at)):
            return True
        if isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute):
            at = at.func.value
        elif isinstance(at, ast.Attribute | ast.Subscript):
            at = at.value
        else:
            return False


def is_weighty(name: str) -> bool:
    """Return whether a setting decides over what a run computes, by its name."""
    return _WEIGHTY.search(name) is not None


def is_key(text: str) -> bool:
    """Return whether a text may be the name of a setting."""
    return _KEY.fullmatch(text) is not None


def unpacked_names(modules: list[Module]) -> set[str]:
    """Return the last names of what calls unpack: `build(**cfg.data)` gives `data`."""
    found = set()
    for module in modules:
        for keyword in module.nodes_of(ast.keyword):
            if keyword.arg is None:
                found.add(last_name(keyword.value))
        for pair in module.nodes_of(ast.Dict):
            found |= {last_name(v) for k, v in zip(pair.keys, pair.values, strict=True) if k is None}
    return found - {""}
