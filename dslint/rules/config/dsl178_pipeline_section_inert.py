"""Stages in the `pipeline` section.

**What.** `pipeline.stages` or `pipeline.partition` with a value.

**Why it hurts.** DeepSpeed stores both and uses neither: the stages of a pipeline come from
`PipelineModule(num_stages=...)` in the script. A run with `"stages": 4` and a plain model has no pipeline at all.

**Fix.** Pass the number to `PipelineModule` and delete the key.

**When it stays quiet.** `"auto"` and null; the other keys of the section, which the pipeline engine reads.

**Evidence.** `deepspeed/runtime/pipe/engine.py` reads other keys of the section only; run with DeepSpeed 0.19.8: the
engine of a plain model ignores them.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL178",
    name="pipeline-section-inert",
    kind="config",
    severity=Severity.WARNING,
    summary="Pipeline stages in the config, which DeepSpeed takes from the script only",
    needs=("/pipeline/stages", "/pipeline/partition"),
)

_DS = '{"train_batch_size": 8, "pipeline": {%s}}\n'

EXAMPLES = (
    bad("stages", {"ds.json": _DS % '"stages": 4, "partition": "best"'}, ("ds.json:1", "ds.json:1")),
    good("null says nothing", {"ds.json": _DS % '"stages": null'}),
    good("left to the script", {"ds.json": _DS % '"stages": "auto", "activation_checkpoint_interval": 1'}),
)

_ARGUMENTS = {"stages": "num_stages", "partition": "partition_method"}


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The two keys."""
    view = view_of(doc, context)
    for key, argument in _ARGUMENTS.items():
        fact = view.fact(f"/pipeline/{key}")
        if fact.is_known:
            yield META.finding(
                doc.value(f"/pipeline/{key}"),
                f"`pipeline.{key}` {fact.get()!r} is never used: only `PipelineModule({argument}=...)` in the script "
                "counts".replace("'", "`"),
                hint=f"Pass `{argument}` to `PipelineModule` and delete the key",
                pointer=f"/pipeline/{key}",
            )
