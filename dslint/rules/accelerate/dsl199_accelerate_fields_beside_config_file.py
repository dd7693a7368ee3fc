"""A DeepSpeed config file and settings of its own in the same accelerate config.

**What.** With `deepspeed_config_file`, accelerate refuses `gradient_accumulation_steps`, `gradient_clipping`,
`zero_stage`, `offload_*_device`, `offload_*_nvme_path` and `zero3_save_16bit_model` in the section, and a
`mixed_precision` at the top level, whatever their values are: also `zero_stage: null` and `mixed_precision: 'no'`.

**Why it hurts.** `ValueError: When using deepspeed_config_file, the following accelerate config variables will be
ignored` in every process, after the script has started.

**Fix.** Delete the lines: the DeepSpeed config says it all. The fix is safe where that config is found and says the
same, else it asks.

**When it stays quiet.** `zero3_init_flag` and the settings of the launcher, which are allowed; `mixed_precision:
null`; a precision that the command passes with `--mixed_precision` instead; runs without DeepSpeed.

**Evidence.** `accelerate/utils/dataclasses.py` (`DeepSpeedPlugin._deepspeed_config_checks`), run with such files.
https://github.com/huggingface/accelerate/issues/936, https://github.com/huggingface/accelerate/pull/941
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.fix import Fix, Safety
from dslint.model.accelerate.view import REFUSED_BESIDE_FILE, SECTION, AccelerateView, view_of
from dslint.model.context import Context
from dslint.model.deepspeed.config import truth
from dslint.model.yamledits import delete_member
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL199",
    name="accelerate-fields-beside-config-file",
    kind="accelerate",
    severity=Severity.ERROR,
    summary="Settings beside `deepspeed_config_file` in an accelerate config: every process stops",
    fix="safe",
    versions=("accelerate>=0.20",),
    references=(
        "https://github.com/huggingface/accelerate/issues/936",
        "https://github.com/huggingface/accelerate/pull/941",
    ),
    depends_on_run=True,
)

_BARE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 8
deepspeed_config:
  deepspeed_config_file: ds.json
  zero3_init_flag: false
"""
_FILE = _BARE.replace("num_machines", "mixed_precision: bf16\nnum_machines").replace(
    "  zero3_init_flag", "  gradient_clipping: 1.0\n  zero3_init_flag"
)
_DS = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_clipping": 1.0,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2}
}
"""

EXAMPLES = (
    bad("the config says the same", {"zero2.yaml": _FILE, "ds.json": _DS}, "zero2.yaml:8",
        fixed={"zero2.yaml": _BARE}),
    bad("the config is not found", {"zero2.yaml": _FILE}, "zero2.yaml:8"),
    bad("`no` is a precision too", {"zero2.yaml": _BARE + "mixed_precision: 'no'\n", "ds.json": _DS}, "zero2.yaml:8"),
    bad("the command names the config", {
        "zero2.yaml": _FILE.replace("  deepspeed_config_file: ds.json\n", ""),
        "run.sh": "accelerate launch --config_file zero2.yaml --deepspeed_config_file ds.json train.py\n",
        "ds.json": _DS,
    }, "zero2.yaml:7"),
    good("the config alone", {"zero2.yaml": _BARE, "ds.json": _DS}),
    good("null is nothing", {"zero2.yaml": _BARE + "mixed_precision: null\n", "ds.json": _DS}),
    good("the precision comes from the command", {
        "zero2.yaml": _BARE + "mixed_precision: bf16\n",
        "run.sh": "accelerate launch --config_file zero2.yaml --mixed_precision bf16 train.py\n",
        "ds.json": _DS,
    }),
    good("no config file", {
        "zero2.yaml": _FILE.replace("  deepspeed_config_file: ds.json\n", "  deepspeed_config_file: none\n"),
    }),
)  # fmt: skip

_POINTERS = {
    "gradient_accumulation_steps": "/gradient_accumulation_steps",
    "gradient_clipping": "/gradient_clipping",
    "zero_stage": "/zero_optimization/stage",
    "offload_optimizer_device": "/zero_optimization/offload_optimizer/device",
    "offload_param_device": "/zero_optimization/offload_param/device",
    "offload_optimizer_nvme_path": "/zero_optimization/offload_optimizer/nvme_path",
    "offload_param_nvme_path": "/zero_optimization/offload_param/nvme_path",
    "zero3_save_16bit_model": "/zero_optimization/stage3_gather_16bit_weights_on_model_save",
}


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The file and every field that it excludes."""
    view = view_of(doc, context)
    if not view.is_deepspeed or not view.config_file.is_known:
        return
    found = [f"{SECTION}/{name}" for name in REFUSED_BESIDE_FILE if doc.has(f"{SECTION}/{name}")]
    if doc.get("/mixed_precision") is not None and view.flag("mixed_precision").is_absent:
        found.append("/mixed_precision")
    if not found:
        return
    names = ", ".join(f"`{pointer.rpartition('/')[2]}`" for pointer in found)
    others = tuple(doc.key(pointer, "refused as well") for pointer in found[1:])
    yield META.finding(
        doc.key(found[0]),
        f"{names} beside `deepspeed_config_file`: every process stops with a ValueError, whatever the value is",
        hint="Delete it here and set it in the DeepSpeed config",
        related=(*others, *(place.labelled("the DeepSpeed config") for place in view.config_file.origins)),
        fix=_fix(view, found),
        severity=view.severity(Severity.ERROR),
        pointer=found[0],
        facts={"with": " ".join(found)},
    )


def _fix(view: AccelerateView, found: list[str]) -> Fix | None:
    edits = [delete_member(view.doc, pointer) for pointer in found]
    if not all(edits):
        return None
    same = view.config is not None and all(_says_the_same(view, view.config, pointer) for pointer in found)
    every = tuple(edit for some in edits for edit in some)
    return Fix("Delete what the DeepSpeed config sets", every, Safety.SAFE if same else Safety.UNSAFE)


def _says_the_same(view: AccelerateView, config: DataDoc, pointer: str) -> bool:
    name, value = pointer.rpartition("/")[2], view.doc.get(pointer)
    if value is None:
        return True
    if name != "mixed_precision":
        stated = config.get(_POINTERS[name])
        none = str(value).lower() == "none" and stated is None
        return none or (stated is not None and str(stated).lower() == str(value).lower())
    on = {kind: truth(config.get(f"/{kind}/enabled", False)) for kind in ("fp16", "bf16")}
    wanted = str(value).lower()
    return on == {"fp16": wanted == "fp16", "bf16": wanted == "bf16"} and wanted in ("no", "fp16", "bf16")
