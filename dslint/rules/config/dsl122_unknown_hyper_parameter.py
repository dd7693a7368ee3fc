"""A hyper-parameter that the optimizer or schedule does not take.

**What.** `optimizer.params` or `scheduler.params` holds a name that the class of `type` has no argument for:
`learning_rate`, `warmup_steps`, `warmup_max_lr` for `WarmupCosineLR`, `total_num_steps` for `WarmupLR`.

**Why it hurts.** DeepSpeed hands all of `params` to the class: every rank stops with `TypeError: __init__() got an
unexpected keyword argument` when the engine is made, after the model was loaded.

**Fix.** Use the name that the class has; `--unsafe-fixes` writes it where it is clear. Delete what has no counterpart.

**When it stays quiet.** For a class that is not known, for Muon, which drops names that it does not know, and for a
name that some class takes which DeepSpeed may make: of `AdamW` it makes three, by device, offload and `torch_adam`. A
script that passes an optimizer of its own; where nobody knows the reader of the config, one of an optimizer is a
warning. `max_grad_norm` belongs to `optimizer-max-grad-norm`. Signatures are those of each DeepSpeed release and of
torch 2.13.

**Evidence.** `_configure_basic_optimizer` and `_scheduler_from_config` in `deepspeed/runtime/engine.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.hyper import SECTIONS, caveat, class_name, meant, parameters, refused, renamed, takes
from dslint.model.deepspeed.signatures import torch_names, torch_release
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.parse.data import DataDoc, join_pointer
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL122",
    name="unknown-hyper-parameter",
    kind="config",
    severity=Severity.ERROR,
    summary="A hyper-parameter that the class of the optimizer or schedule does not take",
    fix="unsafe",
    references=("https://www.deepspeed.ai/docs/config-json/#scheduler-parameters",),
    depends_on_run=True,
    needs=("/optimizer/params", "/scheduler/params"),
)

_TEXT = '{\n  "train_batch_size": 8,\n  "%s": {"type": "%s", "params": {%s}}\n}\n'

EXAMPLES = (
    bad(
        "the word of another library",
        {"ds.json": _TEXT % ("optimizer", "AdamW", '"learning_rate": 1e-4')},
        "ds.json:3 warning",
        fixed={"ds.json": _TEXT % ("optimizer", "AdamW", '"lr": 1e-4')},
    ),
    bad(
        "a schedule calls it otherwise",
        {"ds.json": _TEXT % ("scheduler", "WarmupLR", '"warmup_steps": 100')},
        "ds.json:3 error",
        fixed={"ds.json": _TEXT % ("scheduler", "WarmupLR", '"warmup_num_steps": 100')},
    ),
    bad(
        "it belongs to another schedule",
        {"ds.json": _TEXT % ("scheduler", "WarmupLR", '"warmup_num_steps": 10, "total_num_steps": 100')},
        "ds.json:3 error",
    ),
    bad("torch does not take it", {"ds.json": _TEXT % ("optimizer", "SGD", '"lr": 1, "betas": [0, 1]')},
        "ds.json:3 error", consumer="deepspeed"),
    bad("only the Adam of torch takes it", {"ds.json": _TEXT % ("optimizer", "AdamW", '"lr": 1, "maximize": true')},
        "ds.json:3 error", consumer="deepspeed"),
    good("switches of Adam", {
        "ds.json": _TEXT % ("optimizer", "Adam", '"lr": 1, "torch_adam": true, "foreach": true'),
    }),
    good("what the compiled Adam takes", {
        "ds.json": _TEXT % ("optimizer", "AdamW", '"lr": 1, "bias_correction": true'),
    }),
    good("a class of mup", {"ds.json": _TEXT % ("optimizer", "MuAdam", '"lr": 1, "anything": true')}),
    good("older releases of torch took it", {
        "ds.json": _TEXT % ("scheduler", "StepLR", '"step_size": 3, "verbose": true'),
    }),
)  # fmt: skip

_OWN_RULE = "max_grad_norm"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Both sections."""
    view = view_of(doc, context)
    for section in SECTIONS:
        severity = refused(view) if section == "optimizer" else Severity.ERROR
        if severity is None:
            continue
        name, given = class_name(view, section), parameters(view, section)
        accepted = takes(view, section, name.get()) if name.is_known and given else None
        for word in given or () if accepted is not None else ():
            if word not in (accepted or ()) and not (section == "optimizer" and word == _OWN_RULE):
                yield _finding(view, section, word, accepted or frozenset(), severity)


def _finding(view: ConfigView, section: str, word: str, accepted: frozenset[str], severity: Severity) -> Finding:
    pointer = join_pointer(f"/{section}/params", word)
    title = view.raw(f"/{section}/type")
    right = meant(word, accepted - set(view.raw(f"/{section}/params")))
    whose = f" of torch {torch_release()}" if title in torch_names(SECTIONS[section]) and title != "AdamW" else ""
    return META.finding(
        view.key(pointer),
        f"`{word}` is not an argument of `{title}`{whose}: every rank stops with a `TypeError`{caveat(severity)}",
        hint=f"Did you mean `{right}`?" if right else f"Delete `{word}`; known are {_listed(accepted)}",
        fix=renamed(view, pointer, right) if right else None,
        severity=severity,
        pointer=pointer,
        facts={"with": f"/{section}"},
    )


def _listed(words: frozenset[str]) -> str:
    hidden = {"last_batch_iteration", "last_epoch", "torch_adam", "fp32_optimizer_states", "set_grad_none"}
    return ", ".join(f"`{word}`" for word in sorted(words - hidden)[:8])
