"""**What.** `CUDA_VISIBLE_DEVICES` is set for `deepspeed` together with `--num_gpus`, `--include` or `--exclude`.

**Why it hurts.** DeepSpeed then prints `ignoring it`, deletes the variable, and takes the GPUs that its own options
name, counted from 0 on the whole machine: the run lands on GPUs that somebody else uses.

**Fix.** Say it once: `--include localhost:2,3`, or `CUDA_VISIBLE_DEVICES=2,3` without these options.

**When it stays quiet.** When the variable is empty or not known, with a hostfile, and with `--num_nodes 1` alone
(DSL323). Where the options take only GPUs that the variable shows, nothing goes wrong: that is an info.

**Evidence.** DeepSpeed 0.19.8 `runner.py::main`: with `CUDA_VISIBLE_DEVICES=2,3` and `--num_gpus 2` the processes get
devices 0 and 1. Reports: deepspeedai/DeepSpeed#662, deepspeedai/DeepSpeed#5818.
"""

from __future__ import annotations

from collections.abc import Iterator

from dslint.core.finding import Finding, Severity
from dslint.model.context import Context
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.devices import Visible, filters, local_slots, number, visible_devices
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.rendezvous import places
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL322",
    name="deepspeed-cvd-ignored",
    kind="launch",
    severity=Severity.WARNING,
    summary="deepspeed ignores CUDA_VISIBLE_DEVICES because its own options choose the GPUs",
    references=(
        "https://github.com/deepspeedai/DeepSpeed/issues/662",
        "https://github.com/deepspeedai/DeepSpeed/issues/5818",
    ),
    needs=("CUDA_VISIBLE_DEVICES",),
)

_SCRIPT = {"train.py": "print()\n"}

EXAMPLES = (
    bad(
        "GPUs 0 and 1 instead of 2 and 3",
        {"run.sh": "CUDA_VISIBLE_DEVICES=2,3 deepspeed --num_gpus 2 train.py\n", **_SCRIPT},
        "run.sh:1 warning",
    ),
    bad(
        "exported, and an include that is meant inside of it",
        {"run.sh": "export CUDA_VISIBLE_DEVICES=4,5\ndeepspeed --include localhost:0,1 train.py\n", **_SCRIPT},
        "run.sh:2 warning",
    ),
    bad(
        "the same GPU either way",
        {"run.sh": "export CUDA_VISIBLE_DEVICES=0\ndeepspeed --num_nodes 1 --num_gpus 1 train.py\n", **_SCRIPT},
        "run.sh:2 info",
    ),
    bad(
        "all but one, whatever is visible",
        {"run.sh": "CUDA_VISIBLE_DEVICES=0,1 deepspeed --exclude localhost:0 train.py\n", **_SCRIPT},
        "run.sh:1 warning",
    ),
    good("the variable alone", {"run.sh": "CUDA_VISIBLE_DEVICES=2,3 deepspeed train.py\n", **_SCRIPT}),
    good("the option alone", {"run.sh": "deepspeed --include localhost:2,3 train.py\n", **_SCRIPT}),
    good(
        "devices of another command, and devices that are not known",
        {
            "run.sh": "CUDA_VISIBLE_DEVICES=2 python eval.py\ndeepspeed --num_gpus 2 train.py\n"
            "CUDA_VISIBLE_DEVICES=$1 deepspeed --num_gpus 2 train.py\n",
            **_SCRIPT,
        },
    ),
)


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Devices that DeepSpeed does not look at."""
    del context
    for command in doc.commands:
        if command.launcher != "deepspeed" or command.launcher_flag("-H", "--hostfile") is not None:
            continue
        visible, count = visible_devices(command), number(command.launcher_flag("--num_gpus", "--num_accelerators"))
        include, exclude = filters(command, "-i", "--include"), filters(command, "-e", "--exclude")
        if visible is None or not (include or exclude or (count or 0) > 0):
            continue
        if (include or exclude) and count is not None:
            continue  # DeepSpeed stops: DSL324
        chosen = local_slots(include) if include else tuple(range(count)) if count and not exclude else None
        yield _finding(doc, command, visible, chosen)


def _finding(doc: LaunchDoc, command: LaunchCommand, visible: Visible, chosen: tuple[int, ...] | None) -> Finding:
    names = ("--num_gpus", "--num_accelerators", "-i", "--include", "-e", "--exclude")
    option = next(flag for flag in command.launcher_flags if flag.name in names)
    shown = f"`CUDA_VISIBLE_DEVICES={visible.text}`"
    numbers = visible.numbers
    harmless = chosen is not None and numbers is not None and set(chosen) <= set(numbers)
    where = f"GPUs {_listed(chosen)}" if chosen is not None else "GPUs counted on the whole machine"
    told = f"deepspeed ignores {shown} because of `{option.name}`"
    devices = _listed(visible.ids)
    return META.finding(
        option.location,
        f"{told}; harmless, since it takes {_listed(chosen or ())} anyway"
        if harmless
        else f"{told}: the run uses {where}, not {devices}",
        hint=f"Use `--include localhost:{visible.text}` without the variable, or the variable without `{option.name}`",
        related=(*visible.origins, *places(command, option.name)[1:]),
        severity=Severity.INFO if harmless or doc.in_docs else Severity.WARNING,
        facts={"visible": visible.text, "option": option.name, "chosen": _listed(chosen) if chosen else None},
    )


def _listed(ids: tuple[int, ...] | tuple[str, ...]) -> str:
    if len(ids) > 2 and ids == tuple(range(len(ids))):
        return f"0 to {len(ids) - 1}"
    return ", ".join(map(str, ids))
