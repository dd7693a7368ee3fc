"""A key below `deepspeed_config` that `accelerate launch` does not read.

**What.** The entries of `deepspeed_config` set the arguments of `accelerate launch` by name (`zero_stage`,
`offload_optimizer_device`). An entry that is not an argument is set as well, and nothing reads it.

**Why it hurts.** The setting is silently lost: with `zero_stge: 3` the run uses stage 2, accelerate's default; keys
of DeepSpeed's own config (`train_micro_batch_size_per_gpu`, `zero_force_ds_cpu_optimizer`,
`seq_parallel_communication_data_type`) never reach DeepSpeed.

**Fix.** Correct the name, or put DeepSpeed's own settings into a JSON file and name it in `deepspeed_config_file`.

**When it stays quiet.** Every argument of the command in some release in use; runs without DeepSpeed.

**Evidence.** `accelerate/commands/launch.py` (`_validate_launch_command`), run with such a file: the plugin is the same
as without the key. https://github.com/huggingface/accelerate/issues/2298
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
    code="DSL181",
    name="accelerate-unknown-deepspeed-key",
    kind="accelerate",
    severity=Severity.WARNING,
    summary="A key below `deepspeed_config` that `accelerate launch` silently drops",
    fix="unsafe",
    versions=("accelerate>=0.20",),
    references=("https://github.com/huggingface/accelerate/issues/2298",),
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 8
deepspeed_config:
  zero_stge: 3  # weights do not fit
  zero3_init_flag: false
"""

EXAMPLES = (
    bad("a misspelt key", {"zero.yaml": _FILE + "  zero3_save_16bit_model: true\n"}, "zero.yaml:6",
        fixed={"zero.yaml": _FILE.replace("zero_stge", "zero_stage") + "  zero3_save_16bit_model: true\n"}),
    bad("a key of DeepSpeed's own config", {
        "zero.yaml": _FILE.replace("zero_stge: 3", "train_micro_batch_size_per_gpu: 4"),
    }, "zero.yaml:6"),
    bad("newer than the release in use", {
        "zero.yaml": _FILE.replace("zero_stge: 3", "deepspeed_moe_layer_cls_names: Block"),
        "requirements.txt": "accelerate==0.28.0\n",
    }, "zero.yaml:6"),
    good("arguments of the command", {
        "zero.yaml": _FILE.replace("zero_stge: 3", "zero_stage: 2\n  deepspeed_moe_layer_cls_names: Block\n  tee: '3'"),
    }),
    good("the section is for another type", {
        "fsdp.yaml": _FILE.replace("DEEPSPEED", "FSDP").replace("deepspeed_config:", "fsdp_config:"),
    }),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Compare the entries of the section with the arguments of the command."""
    view = view_of(doc, context)
    if not view.is_deepspeed:
        return
    for key, pointer, _ in doc.children(SECTION):
        if not is_known("arguments", key, view.version):
            yield _finding(view, key, pointer)


def _finding(view: AccelerateView, key: str, pointer: str) -> Finding:
    near = closest(key, [name for name in names("arguments") if not view.doc.has(f"{SECTION}/{name}")])
    edits = rename_key(view.doc, pointer, near) if near else ()
    since = (releases_of("arguments", key) or (None, None))[0]
    reader = f"accelerate before {since}" if since else "`accelerate launch`"
    return META.finding(
        view.doc.key(pointer),
        f"`{key}` in `deepspeed_config` is not known to {reader}: the setting is silently ignored",
        hint=f"Write `{near}`"
        if near
        else "Put it into a DeepSpeed config and name that in `deepspeed_config_file`, or delete the key",
        fix=Fix(f"Write `{near}`", edits, Safety.UNSAFE) if edits else None,
        severity=view.severity(Severity.WARNING),
        pointer=pointer,
    )
