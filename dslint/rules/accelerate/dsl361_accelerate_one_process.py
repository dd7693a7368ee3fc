"""A config of accelerate launch that starts one process where it, or its command, speaks of several.

**What.** `num_processes: 1` beside `gpu_ids: 0,1`, or beside `distributed_type: MULTI_GPU` in a command that sees
several GPUs; and `distributed_type: 'NO'` where `num_processes`, in the file or as a flag, is more than 1.

**Why it hurts.** One process trains on one GPU, silently, and the others idle: with `NO` the number of
processes is not even read.

**Fix.** `num_processes` as many as GPUs; `distributed_type: MULTI_GPU`.

**When it stays quiet.** Where a flag of the command replaces the number or the type (`--multi_gpu`), for CPUs, and
where a number is not known.

**Evidence.** accelerate 1.15, run: with `NO` and 2 processes, in the file and as a flag,
`Accelerator().num_processes` is 1 (`launch_command` takes `simple_launcher`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.accelerate.view import AccelerateView, view_of
from dslint.model.context import Context
from dslint.parse.data import DataDoc
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL361",
    name="accelerate-one-process",
    kind="accelerate",
    severity=Severity.WARNING,
    summary="An accelerate config starts one process where it or its command speaks of several",
    depends_on_run=True,
    no_experiment="which GPUs idle shows on a machine with several GPUs only; the number of processes was seen",
    references=("https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py",),
)

_FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
gpu_ids: %s
num_machines: 1
num_processes: %s
use_cpu: false
"""
_NO = _FILE.replace("MULTI_GPU", "'NO'")
_RUN = "accelerate launch --config_file acc.yaml %strain.py\n"
_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad("two GPUs are listed", {"acc.yaml": _FILE % ("0,1", 1)}, "acc.yaml:5 warning"),
    bad("and the command uses it", {"acc.yaml": _FILE % ("'2,3'", 1), "run.sh": _RUN % "", **_SCRIPT},
        "acc.yaml:5 warning"),
    bad("the command shows four", {
        "acc.yaml": _FILE % ("all", 1), "run.sh": "CUDA_VISIBLE_DEVICES=0,1,2,3 " + _RUN % "", **_SCRIPT,
    }, "acc.yaml:5 warning"),
    bad("`NO` reads no number", {"acc.yaml": _NO % ("all", 4), "run.sh": _RUN % "", **_SCRIPT}, "acc.yaml:5 warning"),
    bad("and no command uses the file", {"acc.yaml": _NO % ("all", 4)}, "acc.yaml:5 info"),
    bad("`NO` reads no flag", {
        "acc.yaml": _NO % ("all", 1), "run.sh": _RUN % "--num_processes 8 ", **_SCRIPT,
    }, "acc.yaml:2 warning"),
    bad("`NO` without quotes", {"acc.yaml": _NO.replace("'NO'", "NO") % ("all", 2)}, "acc.yaml:5 info"),
    good("as many as GPUs", {"acc.yaml": _FILE % ("0,1", 2), "run.sh": _RUN % "", **_SCRIPT}),
    good("the command says how many", {
        "acc.yaml": _FILE % ("0,1", 1), "run.sh": _RUN % "--num_processes 2 ", **_SCRIPT,
    }),
    good("the command says how", {
        "acc.yaml": _NO % ("all", 1), "run.sh": _RUN % "--multi_gpu --num_processes 8 ", **_SCRIPT,
    }),
    good("one GPU", {"acc.yaml": _NO % ("'0'", 1)}),
    good("one process with DeepSpeed", {
        "acc.yaml": (_FILE % ("all", 1)).replace("MULTI_GPU", "DEEPSPEED") + "deepspeed_config:\n  zero_stage: 2\n",
        "run.sh": "CUDA_VISIBLE_DEVICES=0 " + _RUN % "", **_SCRIPT,
    }),
    good("CPUs", {"acc.yaml": (_NO % ("all", 4)).replace("use_cpu: false", "use_cpu: true")}),
)  # fmt: skip


def check(doc: DataDoc, context: Context) -> Iterator[Finding]:
    """Compare what starts with what is meant."""
    view = view_of(doc, context)
    if not view.is_local or view.truth("use_cpu").get_or(False) or not view.kind.is_known:
        return
    kind, processes = view.kind.get(), view.count("num_processes", 1)
    if kind == "NO":
        yield from _without_type(view, processes.get_or(1), processes.origins)
    elif kind in ("MULTI_GPU", "FSDP") and processes.get_or(0) == 1 and view.stated("num_processes").is_known:
        yield from _of_several(view)


def _without_type(view: AccelerateView, count: int, origins: tuple[Location, ...]) -> Iterator[Finding]:
    """`NO` and a number of processes above 1, from the file or the command."""
    if count < 2 or not view.doc.has("/distributed_type") or view.count("num_machines", 1).get_or(1) > 1:
        return
    is_here = view.stated("num_processes").is_known
    pointer = "/num_processes" if is_here else "/distributed_type"
    yield META.finding(
        view.doc.value(pointer),
        f"with `distributed_type: NO` accelerate starts one process, not {count}: the number is not read",
        hint="Write `distributed_type: MULTI_GPU`",
        related=() if is_here else origins,
        severity=view.severity(Severity.WARNING, Severity.INFO),  # a file for one GPU may keep the number of another
        pointer=pointer,
    )


def _of_several(view: AccelerateView) -> Iterator[Finding]:
    """One process of a type for several, and several GPUs that somebody names."""
    ids, shown = view.fact("gpu_ids"), view.variable("CUDA_VISIBLE_DEVICES")
    text = str(ids.get_or("")) if ids.get_or("all") != "all" else str(shown.get_or(""))
    named = [part for part in text.split(",") if part.strip().isdigit()]
    if len(named) < 2 or view.count("num_machines", 1).get_or(1) > 1:
        return
    yield META.finding(
        view.doc.value("/num_processes"),
        f"`num_processes: 1` starts one process on one of the {len(named)} GPUs ({text}): the others stay idle",
        hint=f"Write `num_processes: {len(named)}`",
        related=ids.origins if ids.get_or("all") != "all" else shown.origins,
        severity=view.severity(Severity.WARNING),
        pointer="/num_processes",
    )
