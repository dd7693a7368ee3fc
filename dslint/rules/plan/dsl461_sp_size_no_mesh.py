"""**What.** A config sets `sequence_parallel_size` alone, and the script passes neither `mpu` nor `mesh_param` to
`deepspeed.initialize`.

**Why it hurts.** Nobody makes the groups of ranks that share a sequence: every rank trains on a sequence of its own,
as if the key were not there. The config still divides the ranks by it, so `train_batch_size` and the accumulation
steps that are derived from it are too small by this factor.

**Fix.** Add `data_parallel_size`, the number of ranks divided by `sequence_parallel_size`: DeepSpeed then makes both
kinds of groups. Or pass `mesh_param=(data_parallel_size, sequence_parallel_size)`, or an `mpu`. Delete the key where no
sequence parallelism is meant.

**When it stays quiet.** The script names an `mpu`, a mesh or parallel groups anywhere, unpacks arguments, calls
`deepspeed.initialize` several times, or changes the config; the config has a `compile` section, whose pass `autosp`
reads the key; another program than DeepSpeed reads the config; DeepSpeed before 0.15, which does not know the key.

**Evidence.** `initialize` in `deepspeed/__init__.py`, `DeepSpeedConfig.__init__`, `_get_sequence_parallel_world_size`
in `deepspeed/utils/groups.py`. Two gloo ranks of DeepSpeed 0.19.8 with a size of 2: `train_batch_size()` is 1.0, the
data parallel world has 2 ranks, and the engine's `sequence_parallel_size` is 1. Releases 0.15 and 0.16 do not even
divide.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import ENGINE

META = RuleMeta(
    code="DSL461",
    name="sp-size-no-mesh",
    kind="plan",
    severity=Severity.WARNING,
    summary="A sequence parallel size for which nobody makes groups of ranks",
    depends_on_run=True,
    versions=("deepspeed>=0.15",),
    references=("https://www.deepspeed.ai/tutorials/ds-sequence/",),
    needs=("config",),
)

_DP, _SP = "/data_parallel_size", "/sequence_parallel_size"
_CONFIG = """\
{
  "train_micro_batch_size_per_gpu": 1,
  "sequence_parallel_size": 4
}
"""
_RUN = "deepspeed --num_gpus 8 train.py\n"
_DICT = ENGINE.replace('"ds.json"', '{\n    "train_micro_batch_size_per_gpu": 1,\n    "sequence_parallel_size": 4,\n}')

EXAMPLES = (
    bad("nobody makes groups of 4", {"run.sh": _RUN, "train.py": ENGINE, "ds.json": _CONFIG}, "ds.json:3 warning"),
    bad("the same in a dict", {"run.sh": _RUN, "train.py": _DICT}, "train.py:7 warning"),
    good("with both sizes DeepSpeed makes them", {
        "run.sh": _RUN,
        "train.py": ENGINE,
        "ds.json": _CONFIG.replace("4\n", '4,\n  "data_parallel_size": 2\n'),
    }),
    good("the script passes a mesh", {
        "run.sh": _RUN,
        "train.py": ENGINE.replace("config=", "mesh_param=(2, 4), config="),
        "ds.json": _CONFIG,
    }),
    good("the size 1 means none", {"run.sh": _RUN, "train.py": ENGINE, "ds.json": _CONFIG.replace("4", "1")}),
    good("nobody knows what is passed", {
        "run.sh": _RUN,
        "train.py": ENGINE.replace("config=", "**more, config="),
        "ds.json": _CONFIG,
    }),
)  # fmt: skip


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The size of one run that plain DeepSpeed configures, and the one call that could bring groups."""
    doc, given, profile = plan.config, plan.handover, plan.profile
    if doc is None or given is None or profile is None or profile.is_parallel or not given.groups.is_absent:
        return
    view = view_of(doc, context)
    size = view.number(_SP).get_or(0)
    if size < 2 or isinstance(size, float) or doc.has(_DP) or doc.has("/compile") or view.runs(">=0.15") == "no":
        return
    world = plan.world_size.or_else(context.world_size).get_or(0)
    yield META.finding(
        doc.value(_SP),
        f"`sequence_parallel_size` is {size}, but nothing makes its groups: every rank trains on its own"
        f" sequence{_batch(view, size, world)}",
        hint=_hint(size, world),
        related=(given.location.labelled("the call that gets no `mpu` and no `mesh_param`"),),
        severity=Severity.INFO if plan.command.in_docs else None,
        pointer=_SP,
        facts={"consumer": "deepspeed"},
    )


def _batch(view: ConfigView, size: int | float, world: int) -> str:
    if view.runs(">=0.17") != "yes":
        return ""
    found = f"{world // size} data parallel ranks, and {world} train" if world and not world % size else ""
    return f", with batch sizes for {found or f'1/{size} of the ranks'}"


def _hint(size: int | float, world: int) -> str:
    if world and not world % size:
        return f"Add `data_parallel_size` {world // size}, or delete the key"
    return f"Add `data_parallel_size`, the number of ranks divided by {size}, or delete the key"
