"""**What.** `data_parallel_size` x `sequence_parallel_size` of a config is more than the ranks that the command starts.

**Why it hurts.** Where a config holds both keys, `deepspeed.initialize` lays the ranks out as a mesh of this size.
Every rank stops with `RuntimeError: Mesh should not be bigger than default world size`.

**Fix.** Start as many ranks as the product, or correct the size that is wrong.

**When it stays quiet.** Only one of the two keys is there; the world size is not known; another program than DeepSpeed
reads the config, or the script changes it or brings groups of its own. A product below the world size.

**Evidence.** `initialize` in `deepspeed/__init__.py`; 2 x 2 on two gloo ranks of DeepSpeed 0.19.8 stops, 1 x 2 and
2 x 1 train.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.core.fact import Fact
from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.plan.runplan import RunPlan
from dslint.rules.base import RuleMeta, bad, good
from dslint.rules.examples.snippets import ARGUMENTS

META = RuleMeta(
    code="DSL460",
    name="sequence-parallel-mesh",
    kind="plan",
    severity=Severity.ERROR,
    summary="A mesh of data and sequence parallel ranks that is larger than the run",
    depends_on_run=True,
    versions=("deepspeed>=0.15",),
    references=("https://www.deepspeed.ai/tutorials/ds-sequence/",),
    needs=("config",),
)

_DP, _SP = "/data_parallel_size", "/sequence_parallel_size"
_CONFIG = """\
{
  "train_micro_batch_size_per_gpu": 1,
  "data_parallel_size": 4,
  "sequence_parallel_size": 4
}
"""
_RUN = "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json\n"

EXAMPLES = (
    bad("4 x 4 ranks, and 8 are started", {"run.sh": _RUN, "train.py": ARGUMENTS, "ds.json": _CONFIG}, "ds.json:3"),
    good("2 x 4 ranks", {"run.sh": _RUN, "train.py": ARGUMENTS, "ds.json": _CONFIG.replace("4,", "2,")}),
    good("nobody knows how many ranks run", {
        "run.sh": _RUN.replace("8", '"$GPUS"'),
        "train.py": ARGUMENTS,
        "ds.json": _CONFIG,
    }),
)  # fmt: skip


def check(plan: RunPlan, context: Context) -> Iterator[Finding]:
    """The mesh of one run that plain DeepSpeed configures."""
    doc, world = plan.config, plan.world_size.or_else(context.world_size)
    if doc is None or plan.config_is_rewritten or plan.consumer.get_or("") != "deepspeed" or not world.is_known:
        return
    if plan.profile is None or plan.profile.is_parallel:
        return
    data, sequence = _size(doc.fact(_DP)), _size(doc.fact(_SP))
    if not data or not sequence or data * sequence <= world.get():
        return
    command = plan.command.location
    yield META.finding(
        doc.value(_DP),
        f"a mesh of {data} data x {sequence} sequence parallel ranks needs {data * sequence} ranks, but"
        f" {world.get()} are "
        "started: every rank stops",
        hint=f"Start {data * sequence} ranks, or correct the size that is wrong",
        related=(doc.value(_SP, "the sequence parallel size"), command.labelled("the command that starts this run")),
        severity=Severity.WARNING if plan.command.in_docs else None,
        pointer=_DP,
        facts={"world": world.get(), "with": _SP, "consumer": "deepspeed"},
    )


def _size(fact: Fact[Any]) -> int:
    value = fact.get_or(0)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
