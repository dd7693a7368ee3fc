"""**What.** The config offloads the optimizer, and the script passes one of torch to `deepspeed.initialize`.

**Why it hurts.** Every rank stops with `ZeRORuntimeException: You are using ZeRO-Offload with a client provided
optimizer`: steps of torch on the CPU are slow.

**Fix.** Pass `deepspeed.ops.adam.DeepSpeedCPUAdam`, or name the optimizer in the config.
`"zero_force_ds_cpu_optimizer": false` allows the slow one (`--unsafe-fixes` adds it).

**When it stays quiet.** The switch is there; DeepSpeed's own optimizers for the CPU; transformers and accelerate, which
replace the optimizer; what the script passes is computed; several calls of `deepspeed.initialize`.

**Evidence.** `_configure_optimizer` in `deepspeed/runtime/engine.py`;
https://github.com/deepspeedai/DeepSpeed/issues/7524
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.model.edits import insert_member
from dslint.model.plan.handover import short
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import CLIENT

META = RuleMeta(
    code="DSL470",
    name="optimizer-client-with-offload",
    kind="plan",
    severity=Severity.ERROR,
    summary="Offload of the optimizer with one of torch that the script passes",
    fix="unsafe",
    references=("https://github.com/deepspeedai/DeepSpeed/issues/7524",),
    depends_on_run=True,
    needs=("config",),
    supersedes=("DSL607",),
)

_RUN = "deepspeed --num_gpus 8 train.py\n"
_CONFIG = """\
{"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "%s"}}%s}
"""
_OWN = "optimizer = deepspeed.ops.adam.DeepSpeedCPUAdam(model.parameters())"
_TORCH = "optimizer = torch.optim.AdamW(model.parameters())"
_GIVEN = ", optimizer=optimizer"
_ALLOWED = ', "zero_force_ds_cpu_optimizer": false'

EXAMPLES = (
    bad("an optimizer of torch", {
        "run.sh": _RUN, "train.py": CLIENT % (_TORCH, _GIVEN), "ds.json": _CONFIG % ("cpu", ""),
    }, "ds.json:1 error", fixed={"ds.json": _CONFIG % ("cpu", _ALLOWED)}),
    good("DeepSpeed's own", {
        "run.sh": _RUN, "train.py": CLIENT % (_OWN, _GIVEN), "ds.json": _CONFIG % ("cpu", ""),
    }),
    good("it is allowed", {
        "run.sh": _RUN, "train.py": CLIENT % (_TORCH, _GIVEN), "ds.json": _CONFIG % ("cpu", _ALLOWED),
    }),
    good("nothing is offloaded", {
        "run.sh": _RUN, "train.py": CLIENT % (_TORCH, _GIVEN), "ds.json": _CONFIG % ("none", ""),
    }),
)  # fmt: skip

_DEVICE, _SWITCH = "/zero_optimization/offload_optimizer/device", "zero_force_ds_cpu_optimizer"
_CPU = ("DeepSpeedCPUAdam", "DeepSpeedCPULion", "ZenFlowCPUAdam")


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The device and the call."""
    given, doc = plan.handover, plan.config
    if given is None or doc is None or not given.optimizer.is_known:
        return
    view, title = view_of(doc, context), short(given.optimizer.get())
    switch = view.fact(f"/{_SWITCH}")
    if title in _CPU or view.word(_DEVICE).get_or("") not in ("cpu", "nvme") or view.stage.get_or(0) == 0:
        return
    if switch.is_absent or (switch.is_known and switch.get() is True):
        edits = insert_member(doc, "", _SWITCH, "false")
        yield META.finding(
            doc.value(_DEVICE),
            f"the script passes `{title}` although the optimizer is offloaded to `{view.raw(_DEVICE)}`: every"
            " rank stops",
            hint=f"Pass `deepspeed.ops.adam.DeepSpeedCPUAdam`, or set `{_SWITCH}` to false",
            related=given.ends(given.optimizer),
            fix=Fix(f"Set `{_SWITCH}` to false", edits, Safety.UNSAFE) if edits else None,
            pointer=_DEVICE,
            facts={"consumer": "deepspeed", "client": title, "with": "/zero_optimization"},
        )
