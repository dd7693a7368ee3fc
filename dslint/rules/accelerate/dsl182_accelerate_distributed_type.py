"""An accelerate config without `distributed_type`, or with a word that is none.

**What.** `distributed_type` names what runs the processes: `DEEPSPEED`, `FSDP`, `MULTI_GPU` and so on, in capitals.
The flags of the command do not replace it: the file is read first.

**Why it hurts.** `ValueError: A distributed_type must be specified in the config file`, or `ValueError: 'deepspeed'
is not a valid DistributedType`, before anything starts.

**Fix.** Write the word in capitals (safe fix where only the case is wrong).

**When it stays quiet.** `NO` without quotes, which YAML reads as false and accelerate as no distribution; words of
some release in use; files of SageMaker.

**Evidence.** `accelerate/commands/config/config_args.py` (`process_config`), `utils/dataclasses.py`
(`DistributedType`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.accelerate.names import is_known, names, releases_of
from dslint.model.accelerate.view import AccelerateView, view_of
from dslint.model.context import Context
from dslint.model.deepspeed.suggest import closest
from dslint.model.yamledits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL182",
    name="accelerate-distributed-type",
    kind="accelerate",
    severity=Severity.ERROR,
    summary="An accelerate config whose `distributed_type` is missing or no known word",
    fix="safe",
    versions=("accelerate>=0.20",),
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: deepspeed  # stage 2
num_machines: 1
num_processes: 8
deepspeed_config:
  zero_stage: 2
"""

EXAMPLES = (
    bad("small letters", {"zero2.yaml": _FILE}, "zero2.yaml:2",
        fixed={"zero2.yaml": _FILE.replace(": deepspeed ", ": DEEPSPEED ")}),
    bad("no such type", {"zero2.yaml": _FILE.replace(": deepspeed ", ": DEEPSPED ")}, "zero2.yaml:2"),
    bad("missing", {"zero2.yaml": _FILE.replace("distributed_type: deepspeed  # stage 2\n", "")}, "zero2.yaml:1"),
    bad("renamed in the release in use", {
        "tpu.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: TPU\nnum_machines: 1\nnum_processes: 8\n",
        "requirements.txt": "accelerate==1.15.0\n",
    }, "tpu.yaml:2"),
    good("capitals", {"zero2.yaml": _FILE.replace(": deepspeed ", ": DEEPSPEED ")}),
    good("a bare NO", {"one.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: NO\nnum_processes: 1\n"}),
)  # fmt: skip

_KEY = "/distributed_type"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The one key that every file needs."""
    view = view_of(doc, context)
    if not view.is_local:
        return
    if not doc.has(_KEY):
        yield META.finding(
            view.key(_KEY),
            "This accelerate config has no `distributed_type`: `accelerate launch` stops with a ValueError",
            hint="Add `distributed_type: DEEPSPEED`, or the type that this run has",
            severity=view.severity(Severity.ERROR),
            pointer="",
        )
        return
    value = doc.get(_KEY)
    if isinstance(value, str) and not is_known("distributed_types", value, view.version):
        yield _wrong(view, value)


def _wrong(view: AccelerateView, value: str) -> Finding:
    near = closest(value, names("distributed_types"))
    certain = near is not None and near.casefold() == value.casefold()
    edits = replace_value(view.doc, _KEY, near) if near else ()
    since, until = releases_of("distributed_types", value) or (None, None)
    when = f" since accelerate {until}" if until else f" before accelerate {since}" if since else ""
    return META.finding(
        view.doc.value(_KEY),
        f"`{value}` is not a distributed type{when}: `accelerate launch` stops with `is not a valid DistributedType`",
        hint=f"Write `{near}`" if near else f"Write one of {', '.join(names('distributed_types')[:6])}, ...",
        fix=Fix(f"Write `{near}`", edits, Safety.SAFE if certain else Safety.UNSAFE) if edits else None,
        severity=view.severity(Severity.ERROR),
        pointer=_KEY,
    )
