"""An accelerate config whose `compute_environment` is not the word for machines of one's own.

**What.** Every value but `LOCAL_MACHINE`, also `null`, makes accelerate read the file as one for Amazon SageMaker.

**Why it hurts.** `ValueError: The config file ... had unknown keys (['deepspeed_config', 'num_processes'])`: the
message names keys that are right.

**Fix.** `LOCAL_MACHINE` (safe fix), or delete the line: it is the default.

**When it stays quiet.** `AMAZON_SAGEMAKER` with the keys of such a file; a missing key.

**Evidence.** `accelerate/commands/config/config_args.py` (`load_config_from_file`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.accelerate.names import is_known
from dslint.model.accelerate.view import view_of
from dslint.model.context import Context
from dslint.model.yamledits import replace_value
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL184",
    name="accelerate-compute-environment",
    kind="accelerate",
    severity=Severity.ERROR,
    summary="An accelerate config that is read as one for SageMaker because of its `compute_environment`",
    fix="safe",
    versions=("accelerate>=0.20",),
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 8
"""
_SAGEMAKER = """\
compute_environment: AMAZON_SAGEMAKER
distributed_type: NO
ec2_instance_type: ml.p3.2xlarge
iam_role_name: role
mixed_precision: 'no'
num_machines: 1
region: us-east-1
use_cpu: false
"""

EXAMPLES = (
    bad("no such environment", {"zero2.yaml": _FILE}, "zero2.yaml:1",
        fixed={"zero2.yaml": _FILE.replace("LOCAL", "LOCAL_MACHINE")}),
    bad("small letters", {"zero2.yaml": _FILE.replace("LOCAL", "local_machine")}, "zero2.yaml:1"),
    good("the word", {"zero2.yaml": _FILE.replace("LOCAL", "LOCAL_MACHINE")}),
    good("left out", {"zero2.yaml": _FILE.replace("compute_environment: LOCAL\n", "")}),
    good("SageMaker is meant", {"sagemaker.yaml": _SAGEMAKER}),
)  # fmt: skip

_KEY = "/compute_environment"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The word, and keys that a file for SageMaker does not have."""
    view = view_of(doc, context)
    if view.is_local:
        return
    refused = [key for key, _, _ in doc.children("") if not is_known("sagemaker_keys", key, view.version)]
    if not refused or not isinstance(doc.data, dict):
        return
    value = doc.get(_KEY)
    edits = replace_value(doc, _KEY, "LOCAL_MACHINE")
    shown = "null" if value is None else f"{value}"
    yield META.finding(
        doc.value(_KEY),
        f"`compute_environment` is `{shown}`: accelerate reads a SageMaker config and stops at unknown keys: "
        + ", ".join(f"`{key}`" for key in refused[:3]),
        hint="Write `LOCAL_MACHINE`",
        fix=Fix("Write `LOCAL_MACHINE`", edits, Safety.UNSAFE if value == "AMAZON_SAGEMAKER" else Safety.SAFE)
        if edits
        else None,
        severity=view.severity(Severity.ERROR),
        pointer=_KEY,
    )
