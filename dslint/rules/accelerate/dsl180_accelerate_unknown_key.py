"""A key at the top level of an accelerate config that no release in use knows.

**What.** `accelerate launch` makes a `ClusterConfig` of the file; a key that is not a field of it stops the command.

**Why it hurts.** `ValueError: The config file at ... had unknown keys (['num_procesess'])` before anything starts. A
key of a newer release ends the same way on an older one.

**Fix.** Correct the name. A key of DeepSpeed (`zero_stage`) belongs below `deepspeed_config`.

**When it stays quiet.** Keys that some release in use knows, the older names `fp16` and `dynamo_backend`, which
accelerate converts; files of SageMaker. In the files of a project's tests it is an information: some are wrong on
purpose.

**Evidence.** `accelerate/commands/config/config_args.py` (`BaseConfig.from_yaml_file`); which release knows which key
comes from the sources of 0.20.0 to 1.15.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.accelerate.names import is_known, names, releases_of
from dslint.model.accelerate.view import SECTION, AccelerateView, view_of
from dslint.model.context import Context
from dslint.model.deepspeed.suggest import closest
from dslint.model.yamledits import rename_key
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL180",
    name="accelerate-unknown-key",
    kind="accelerate",
    severity=Severity.ERROR,
    summary="A key of an accelerate config that `accelerate launch` refuses",
    fix="unsafe",
    versions=("accelerate>=0.20",),
    references=("https://github.com/huggingface/accelerate/issues/2298",),
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_procesess: 8
deepspeed_config:
  zero_stage: 2
"""
_RIGHT = _FILE.replace("procesess", "processes")

EXAMPLES = (
    bad("a misspelt key", {"zero2.yaml": _RIGHT + "same_netwrk: true\n"}, "zero2.yaml:7",
        fixed={"zero2.yaml": _RIGHT + "same_network: true\n"}),
    bad("a misspelt key that is missing then", {"zero2.yaml": _FILE}, "zero2.yaml:4", fixed={"zero2.yaml": _RIGHT}),
    bad("a key of the section at the top level", {"zero2.yaml": _RIGHT + "gradient_clipping: 1.0\n"}, "zero2.yaml:7"),
    bad("newer than the release in use", {
        "zero2.yaml": _RIGHT + "parallelism_config: {}\n",
        "requirements.txt": "accelerate==1.2.0\n",
    }, "zero2.yaml:7"),
    bad("removed in the release in use", {
        "zero2.yaml": _RIGHT + "ipex_config: {}\n",
        "requirements.txt": "accelerate==1.15.0\n",
    }, "zero2.yaml:7"),
    good("known keys, two of them by their older names", {"zero2.yaml": _RIGHT + "dynamo_backend: 'NO'\nfp16: true\n"}),
    good("known to an older release, and nobody states one", {"zero2.yaml": _RIGHT + "ipex_config: {}\n"}),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Compare the keys with the fields of the class."""
    view = view_of(doc, context)
    if not view.is_local:
        return
    for key, pointer, _ in doc.children(""):
        if not is_known("keys", key, view.version):
            yield _finding(view, key, pointer)


def _finding(view: AccelerateView, key: str, pointer: str) -> Finding:
    doc = view.doc
    near = closest(key, [name for name in names("keys") if not doc.has(f"/{name}")])
    edits = rename_key(doc, pointer, near) if near else ()
    inner = key in names("arguments")
    hint = "Delete the key"
    if near:
        hint = f"Write `{near}`"
    elif inner:
        hint = f"Move it below `{SECTION[1:]}`"
    return META.finding(
        doc.key(pointer),
        f"`{key}` {_state(view, key)}: `accelerate launch` stops with `ValueError`",
        hint=hint,
        fix=Fix(f"Write `{near}`", edits, Safety.UNSAFE) if edits else None,
        severity=view.severity(Severity.ERROR),
        pointer=pointer,
    )


def _state(view: AccelerateView, key: str) -> str:
    found = releases_of("keys", key)
    release = f"accelerate {view.version.specifier.removeprefix('==')}"
    if found is None:
        return "is not a key of an accelerate config"
    since, until = found
    return (
        f"was removed in accelerate {until}"
        if until
        else f"is new in accelerate {since}, but the project has {release}"
    )
