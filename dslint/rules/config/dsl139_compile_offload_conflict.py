"""Two offload targets of DeepCompile at once.

**What.** `compile.deepcompile` at ZeRO stage 3 with two of `offload_activation`, `offload_parameters` and
`offload_opt_states`, or with `offload_opt_states` while the ZeRO section offloads the optimizer to the CPU.

**Why it hurts.** `engine.compile()` raises a `ValueError` on every rank: each pass plans the memory of the GPU as if it
were alone.

**Fix.** Choose one.

**When it stays quiet.** Without `deepcompile`; at other stages, whose compile passes do not look at these keys.
Releases before 0.19.4 (before 0.19.8 for `offload_activation`), which take the first of the targets.

**Evidence.** `init_z3` in `deepspeed/compile/init_z3.py`, read in DeepSpeed 0.19.8. It is a warning: the script must
call `engine.compile()` for it to show.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.parse.data import DataDoc, dotted_key
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL139",
    name="compile-offload-conflict",
    kind="config",
    severity=Severity.WARNING,
    summary="Two offload targets of DeepCompile: `engine.compile()` raises a ValueError",
    versions=("deepspeed>=0.19.4",),
    depends_on_run=True,
    no_experiment="DeepCompile needs a GPU and compiled operators",
    needs=("/compile/deepcompile",),
)

_DS = (
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": %s},\n'
    ' "compile": {"deepcompile": true, "offload_parameters": true%s}}\n'
)

EXAMPLES = (
    bad("activations and parameters", {"ds.json": _DS % (2 + 1, ', "offload_activation": true')}, "ds.json:2"),
    bad("parameters and optimizer states", {"ds.json": _DS % (2 + 1, ', "offload_opt_states": true')}, "ds.json:2"),
    good(
        "one target",
        {"ds.json": (_DS % (3, "")).replace("3}", '3,\n "stage3_gather_16bit_weights_on_model_save": true}')},
    ),
    good("another stage", {"ds.json": _DS % (1, ', "offload_activation": true')}),
)

_KEYS = {"offload_activation": "0.19.8", "offload_parameters": "0.19.4", "offload_opt_states": "0.19.4"}


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The targets that are on."""
    view = view_of(doc, context)
    if not view.flag("/compile/deepcompile").get_or(False) or view.stage.get_or(0) != 3:
        return
    on = [
        f"/compile/{key}"
        for key, since in _KEYS.items()
        if view.flag(f"/compile/{key}").get_or(False) and view.runs(f">={since}") != "no"
    ]
    if len(on) > 1:
        yield _finding(view, on[1], on[0])
    elif on and on[0].endswith("states"):
        other = "/zero_optimization/offload_optimizer/device"
        if view.word(other).get_or("none") == "cpu":
            yield _finding(view, on[0], other)


def _finding(view: ConfigView, pointer: str, other: str) -> Finding:
    first, second = (p.rpartition("/")[2] if p.startswith("/compile") else dotted_key(p) for p in (pointer, other))
    return META.finding(
        view.value(pointer),
        f"`compile.{first}` and `{second}` are both on: `engine.compile()` stops, since a run has one offload target",
        hint="Switch one of the two off",
        related=(view.value(other, "the other target"),),
        pointer=pointer,
    )
