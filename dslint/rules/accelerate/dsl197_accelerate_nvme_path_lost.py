"""Offload to NVMe in an accelerate config: the path of the disk does not reach DeepSpeed.

**What.** `offload_optimizer_device: nvme` and `offload_param_device: nvme` need a path. `accelerate launch` knows
`offload_optimizer_nvme_path` and `offload_param_nvme_path`, in the file as well as on the command line, but no
release up to 1.15 hands them to the processes. The plugin there takes its default, the text `none`.

**Why it hurts.** DeepSpeed takes `none` for a folder and swaps into `none/` below the working directory: often a
network file system, never the fast local disk that was meant. Nothing is said.

**Fix.** A DeepSpeed config with `nvme_path`, named in `deepspeed_config_file`; or the environment variable
`ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH` (`..._PARAM_NVME_PATH`), which the plugin does read.

**When it stays quiet.** Other devices; a DeepSpeed config file; a launch command of the project that sets the variable;
parameters below stage 3, which do not move at all.

**Evidence.** `accelerate/utils/launch.py` (`prepare_deepspeed_cmd_env`) (0.20.0 to 1.15.0) and `utils/dataclasses.py`
(`DeepSpeedPlugin.__post_init__`), run with a path and without: the config holds `"nvme_path": "none"` both times.
https://github.com/huggingface/accelerate/issues/1463
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.accelerate.names import newest
from dslint.model.accelerate.view import view_of
from dslint.model.context import Context
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL197",
    name="accelerate-nvme-path-lost",
    kind="accelerate",
    severity=Severity.WARNING,
    summary="Offload to NVMe from an accelerate config: DeepSpeed swaps into a folder named `none`",
    versions=("accelerate>=0.20",),
    references=("https://github.com/huggingface/accelerate/issues/1463",),
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 8
deepspeed_config:
  offload_optimizer_device: nvme
  offload_optimizer_nvme_path: /local/swap
  offload_param_device: cpu
  zero3_save_16bit_model: true
  zero_stage: 3
"""
_RUN = "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH=/local accelerate launch --config_file zero3.yaml train.py\n"

EXAMPLES = (
    bad("the path is lost", {"zero3.yaml": _FILE}, "zero3.yaml:6"),
    bad("no path", {"zero3.yaml": _FILE.replace("  offload_optimizer_nvme_path: /local/swap\n", "")}, "zero3.yaml:6"),
    bad("parameters", {"zero3.yaml": _FILE.replace("optimizer_device: nvme", "optimizer_device: none")
                       .replace("param_device: cpu", "param_device: nvme")}, "zero3.yaml:8"),
    good("the variable carries it", {"zero3.yaml": _FILE, "run.sh": _RUN}),
    good("to the host", {"zero3.yaml": _FILE.replace("nvme\n", "cpu\n")}),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Both devices, and the variable that could help."""
    view = view_of(doc, context)
    if not view.is_deepspeed or not view.config_file.is_absent:
        return
    for what in ("optimizer", "param"):
        device = view.stated(f"offload_{what}_device")
        variable = f"ACCELERATE_DEEPSPEED_OFFLOAD_{what.upper()}_NVME_PATH"
        if str(device.get_or("")).lower() != "nvme" or not view.variable(variable).is_absent:
            continue
        if what == "param" and view.stage.get_or(3) != 3:
            continue
        path = view.fact(f"offload_{what}_nvme_path")
        lost = f"accelerate does not pass on `offload_{what}_nvme_path`" if path.is_known else "it has no path"
        pointer = view.pointer(f"offload_{what}_device")
        yield META.finding(
            doc.value(pointer),
            f"`offload_{what}_device: nvme`, but {lost}: DeepSpeed swaps into the folder `none`",
            hint=f"Name a DeepSpeed config with `nvme_path` in `deepspeed_config_file`, or set `{variable}`; accelerate"
            f" up to {newest()} does not pass the path on",
            severity=view.severity(Severity.WARNING),
            pointer=pointer,
        )
