"""An accelerate config that does not say how many processes to start, and no command that does.

**What.** Without `num_processes` (or with `-1`) the flag `--num_processes` is needed. `null`, `0` and `8.0` are taken
as they are and fail later.

**Why it hurts.** `ValueError: You need to manually pass in --num_processes using this config yaml.`; for `null`,
`Unsupported nproc_per_node value: None`.

**Fix.** Write the number of all processes of all machines together.

**When it stays quiet.** A command of the project passes `--num_processes`, or may do so. Where no command of the
project names the file it is an information: such files are often written for a flag. `distributed_type: 'NO'` in
quotes starts one process.

**Evidence.** `accelerate/commands/launch.py` (`_validate_launch_command`); `torch/distributed/run.py`
(`determine_local_world_size`); both run.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.accelerate.view import SECTION, view_of
from dslint.model.context import Context
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL185",
    name="accelerate-processes-missing",
    kind="accelerate",
    severity=Severity.ERROR,
    summary="Neither the accelerate config nor its launch command says how many processes to start",
    depends_on_run=True,
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_machines: 1
deepspeed_config:
  zero_stage: 2
"""
_RUN = "accelerate launch --config_file zero2.yaml train.py\n"
_WITH = _RUN.replace("train.py", "--num_processes 8 train.py")

EXAMPLES = (
    bad("the command does not say it either", {"zero2.yaml": _FILE, "run.sh": _RUN}, "zero2.yaml:1 error"),
    bad("minus one", {"zero2.yaml": _FILE.replace("s: 1", "s: 1\nnum_processes: -1"), "run.sh": _RUN},
        "zero2.yaml:4 error"),
    bad("null", {"zero2.yaml": _FILE.replace("s: 1", "s: 1\nnum_processes:"), "run.sh": _RUN}, "zero2.yaml:4 error"),
    bad("no command is known", {"zero2.yaml": _FILE}, "zero2.yaml:1 info"),
    good("the command says it", {"zero2.yaml": _FILE, "run.sh": _WITH}),
    good("the command may say it", {"zero2.yaml": _FILE, "run.sh": _RUN.replace("train.py", '"$@" train.py')}),
    good("the file says it", {"zero2.yaml": _FILE.replace("s: 1", "s: 1\nnum_processes: 8"), "run.sh": _RUN}),
    good("one process", {"one.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nuse_cpu: false\n"}),
)  # fmt: skip

_KEY = "/num_processes"


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """The number, and who may pass it."""
    view = view_of(doc, context)
    missing = not doc.has(_KEY)
    kind = doc.get("/distributed_type", "NO")
    if not view.is_local or not view.flag("num_processes").is_absent or kind in ("XLA", "TPU"):
        return
    # accelerate reads the keys of the section like its own.
    if missing and (kind == "NO" or doc.has(f"{SECTION}/num_processes")):
        return
    value = doc.get(_KEY)
    one_process = view.kind.get_or("") == "NO"
    # A single process is started by accelerate itself, which compares the value with 1.
    refused = (value == -1 or isinstance(value, str)) if one_process else _is_refused(value)
    if not missing and not refused:
        return
    stops = missing or value == -1
    said = "is missing" if missing else f"is {'null' if value is None else value}"
    yield META.finding(
        view.key(_KEY),
        f"`num_processes` {said} and no `--num_processes` is passed: "
        + ("`accelerate launch` stops with a ValueError" if stops else "no process can be started"),
        hint="Write the number of processes of all machines together, or pass `--num_processes`",
        severity=view.severity(Severity.ERROR, Severity.INFO),
        pointer=_KEY if doc.has(_KEY) else "",
    )


def _is_refused(value: object) -> bool:
    """`-1` by accelerate; nothing, zero, fractions, switches and other words by torchrun."""
    if value is None or isinstance(value, (float, bool)):
        return True
    if isinstance(value, str):
        return not value.strip().isdigit() and value not in ("auto", "cpu", "gpu", "xpu")
    return isinstance(value, int) and value < 1
