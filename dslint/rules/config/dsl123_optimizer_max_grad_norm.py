"""`max_grad_norm` among the hyper-parameters of the optimizer.

**What.** `optimizer.params.max_grad_norm` is in the config, with whatever value.

**Why it hurts.** Every rank stops with `ValueError: 'max_grad_norm' is not supported as an optimizer parameter` when
the engine is made, 0 and `"auto"` included. The parser before it only warns.

**Fix.** `--fix` moves the value to `gradient_clipping` at the top, where DeepSpeed reads it.

**When it stays quiet.** A script that passes an optimizer of its own, or lets a module of the project do so: DeepSpeed
does not look at the section then.
Where nobody knows the reader of the config it is a warning.

**Evidence.** `_configure_basic_optimizer` in `deepspeed/runtime/engine.py`
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.context import Context
from dslint.model.deepspeed.hyper import OPTIMIZER, caveat, refused, worded
from dslint.model.deepspeed.view import ConfigView, view_of
from dslint.model.edits import delete_member, insert_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL123",
    name="optimizer-max-grad-norm",
    kind="config",
    severity=Severity.ERROR,
    summary="`max_grad_norm` in the parameters of the optimizer stops the run; it is `gradient_clipping`",
    fix="safe",
    depends_on_run=True,
    references=("https://www.deepspeed.ai/docs/config-json/#gradient-clipping",),
    needs=("/optimizer/params/max_grad_norm",),
)

_TEXT = """\
{
  "train_batch_size": 8,%s
  "optimizer": {"type": "Adam", "params": {"lr": 1e-4%s}}%s
}
"""

EXAMPLES = (
    bad(
        "clipping belongs to the top",
        {"ds.json": _TEXT % ("", ', "max_grad_norm": 1.0', "")},
        "ds.json:3 warning",
        fixed={"ds.json": _TEXT % ("", "", ',\n  "gradient_clipping": 1.0')},
    ),
    bad(
        "it is there already",
        {"ds.json": _TEXT % ('\n  "gradient_clipping": 1.0,', ', "max_grad_norm": 1.0', "")},
        "ds.json:4 warning",
        fixed={"ds.json": _TEXT % ('\n  "gradient_clipping": 1.0,', "", "")},
    ),
    good("no optimizer of DeepSpeed", {"ds.json": '{"train_batch_size": 8, "optimizer": {"params": {}}}\n'}),
    good(
        "a module of the project passes an optimizer",
        {
            "run.sh": "deepspeed train.py --deepspeed_config ds.json\n",
            "train.py": "from lib.training import pretrain\n\npretrain()\n",
            "lib/__init__.py": "",
            "lib/training.py": """\
import deepspeed


def pretrain(args, model, optimizer):
    return deepspeed.initialize(args=args, model=model, optimizer=optimizer)
""",
            "ds.json": _TEXT % ("", ', "max_grad_norm": 1.0', ""),
        },
    ),
    good("where DeepSpeed reads it", {"ds.json": _TEXT % ("", "", ',\n  "gradient_clipping": 1.0')}),
)

_PLACE, _RIGHT = "/optimizer/params/max_grad_norm", "gradient_clipping"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The one key."""
    severity = refused(view_of(doc, context))
    if severity is None or not doc.has(_PLACE) or not isinstance(doc.get(OPTIMIZER), str):
        return
    yield META.finding(
        doc.key(_PLACE),
        "`max_grad_norm` is not a parameter of DeepSpeed's optimizers, not even as 0: every rank stops"
        f"{caveat(severity)}",
        hint=f"Move it to `{_RIGHT}` at the top of the config",
        fix=_fix(view_of(doc, context)),
        severity=severity,
        pointer=_PLACE,
        # The parser compares it with 0.
        facts={"with": "/optimizer", "shows": "engine" if view_of(doc, context).number(_PLACE).is_known else "parse"},
    )


def _fix(view: ConfigView) -> Fix | None:
    doc = view.doc
    removed, value = delete_member(doc, _PLACE), doc.get(_PLACE)
    if not removed or not (value == "auto" or isinstance(value, (int, float))):
        return None
    if doc.has(f"/{_RIGHT}"):
        safety = Safety.SAFE if doc.get(f"/{_RIGHT}") == value else Safety.UNSAFE
        return Fix("Delete `max_grad_norm`", removed, safety)
    added = insert_member(doc, "", _RIGHT, worded(view, _PLACE))
    return Fix(f"Move it to `{_RIGHT}`", (*removed, *added)) if added else None
