"""No clipping in the config, and releases in use that differ about it.

**What.** `gradient_clipping` is missing, and the project allows releases of DeepSpeed before and after 0.19.3.

**Why it hurts.** The default changed from 0 (none) to 1.0 in 0.19.3: the same file begins to clip with an upgrade,
and curves of old and new runs differ. The rule is off unless it is selected: it is right of every such config.

**Fix.** Say what you want: `"gradient_clipping": 1.0`, or 0.

**When it stays quiet.** A release that is pinned on either side, or none that is stated; the Trainer of transformers,
of which DSL491 speaks.

**Evidence.** `GRADIENT_CLIPPING_DEFAULT` in `deepspeed/runtime/constants.py`;
https://github.com/deepspeedai/DeepSpeed/pull/8068
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.deepspeed.config import version_named, version_origin
from dslint.model.deepspeed.view import view_of
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL170",
    name="gradient-clipping-implicit",
    kind="config",
    severity=Severity.INFO,
    summary="Clipping is left to a default that changed in DeepSpeed 0.19.3",
    versions=("deepspeed>=0.19.3",),
    references=("https://github.com/deepspeedai/DeepSpeed/pull/8068",),
    optional=True,
    consumers=("deepspeed", "unknown"),
    depends_on_run=True,
    no_experiment="it speaks of two releases: no arm has both",
)

_TEXT = '{"train_batch_size": 8, "zero_optimization": {"stage": 2}%s}\n'

EXAMPLES = (
    bad("both sides are allowed", {"ds.json": _TEXT % "", "requirements.txt": "deepspeed>=0.18\n"}, "ds.json:1 info",
        select="DSL170"),
    good("it is said", {"ds.json": _TEXT % ', "gradient_clipping": 0', "requirements.txt": "deepspeed>=0.18\n"},
         select="DSL170"),
    good("one release", {"ds.json": _TEXT % "", "requirements.txt": "deepspeed==0.19.8\n"}, select="DSL170"),
)  # fmt: skip

_CLIPPING, _SINCE = "/gradient_clipping", "0.19.3"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The key that is not there."""
    view = view_of(doc, context)
    if not view.fact(_CLIPPING).is_absent or not view.version.is_known or view.runs(f">={_SINCE}") != "maybe":
        return
    yield META.finding(
        view.nearest(_CLIPPING),
        f"`gradient_clipping` is missing: {version_named(view.version)} allows releases that clip at 1.0 (since"
        f" {_SINCE}) "
        "and that do not",
        hint='Add `"gradient_clipping": 1.0`, or 0 for none',
        related=version_origin(view.version),
        pointer=_CLIPPING,
    )
