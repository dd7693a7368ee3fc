"""**What.** Two launches run at the same time (`&` after the first, no `wait` before the second) on the same GPUs, or
with the same port.

**Why it hurts.** The second one stops with `EADDRINUSE: address already in use` when both take the same port (29500
where `deepspeed` is not told another), or both share the memory of the same GPUs until one of them runs out of it.

**Fix.** Give each its own `CUDA_VISIBLE_DEVICES` and `--master_port`, or `wait` in between.

**When it stays quiet.** When the devices differ or are not known, when one command runs on other hosts (`srun`, `ssh`),
for several nodes, across conditions and loops, and when the file waits, sleeps or kills in between.

**Evidence.** torch 2.13: the second `TCPStore` on a port raises `DistNetworkError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from dslint.core.finding import Finding, Severity
from dslint.core.source import Location
from dslint.model.context import Context
from dslint.model.launch.around import branches, in_background
from dslint.model.launch.command import LaunchCommand
from dslint.model.launch.document import LaunchDoc
from dslint.model.launch.ports import ports
from dslint.rules.base import RuleMeta, bad, good

META = RuleMeta(
    code="DSL350",
    name="concurrent-launch-same-gpus",
    kind="launch",
    severity=Severity.WARNING,
    summary="Two launches run at the same time on the same GPUs or with the same port",
    references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    needs=("/&/",),
)

_SCRIPT = {"train.py": "print()\n"}
_ONE = "CUDA_VISIBLE_DEVICES=0,1 deepspeed --master_port 29501 train.py --lr 1 &\n"
_TWO = "CUDA_VISIBLE_DEVICES=2,3 deepspeed --master_port 29502 train.py --lr 2 &\nwait\n"

EXAMPLES = (
    bad("the same GPUs", {"run.sh": _ONE + _TWO.replace("2,3", "1,2"), **_SCRIPT}, "run.sh:2"),
    bad("the same port", {"run.sh": _ONE + _TWO.replace("29502", "29501"), **_SCRIPT}, "run.sh:2"),
    bad("all GPUs and the port that deepspeed takes by itself", {
        "run.sh": "deepspeed train.py --lr 1 &\ndeepspeed train.py --lr 2\n", **_SCRIPT,
    }, "run.sh:2"),
    good("other GPUs, other ports", {"run.sh": _ONE + _TWO, **_SCRIPT}),
    good("one after the other", {"run.sh": _ONE + "wait\n" + _TWO.replace("2,3", "0,1"), **_SCRIPT}),
    good("devices that are not known", {
        "run.sh": _ONE.replace("0,1", "$A") + _TWO.replace("2,3", "$B"), **_SCRIPT,
    }),
    good("other hosts", {
        "run.sh": "ssh a 'torchrun --nproc_per_node 8 train.py' &\nssh b 'torchrun --nproc_per_node 8 train.py'\n",
        **_SCRIPT,
    }),
)  # fmt: skip

_LAUNCHERS = ("torchrun", "deepspeed", "accelerate")
_BETWEEN = re.compile(r"\b(?:wait|sleep|kill|pkill|killall|done|exit)\b")


def check(doc: LaunchDoc, context: Context) -> Iterator[Finding]:
    """Pairs of commands of which the first runs on while the second starts."""
    del context
    local = [c for c in doc.commands if c.launcher in _LAUNCHERS and _is_here(doc, c)]
    for first, second in pairwise(local):
        between = doc.source.text[first.location.span.end : second.location.span.start]
        if first.location.span.end > second.location.span.start or _BETWEEN.search(between):
            continue
        if not in_background(doc, first) or branches(doc, first) != branches(doc, second):
            continue
        found = _port(first, second) or _devices(first, second)
        if found is not None:
            what, place, other = found
            yield META.finding(
                second.location,
                f"this command starts while the one above runs, and both take {what}",
                hint="Give each its own `CUDA_VISIBLE_DEVICES` and `--master_port`, or `wait` in between",
                related=(first.location.labelled("runs in the background"), *other, *place),
                severity=Severity.INFO if doc.in_docs else None,
            )


def _is_here(doc: LaunchDoc, command: LaunchCommand) -> bool:
    """The command runs on this machine, and on no other."""
    away = command.outer or command.variable("").is_unknown or command.nodes.get_or(1) > 1
    return not away and command.location.path == doc.source.path and not command.conditions


_Numbered = tuple[int, tuple[Location, ...]]
_Found = tuple[str, tuple[Location, ...], tuple[Location, ...]]


def _port(first: LaunchCommand, second: LaunchCommand) -> _Found | None:
    ours: list[_Numbered] = [(port.number, (port.location,)) for port in ports(first) if port.number]
    theirs: list[_Numbered] = [(port.number, (port.location,)) for port in ports(second) if port.number]
    if first.launcher == second.launcher == "deepspeed":
        ours, theirs = ours or _default(first), theirs or _default(second)
    for number, place in ours:
        for other, there in theirs:
            if number == other:
                return f"port {number}", place, there
    return None


def _default(command: LaunchCommand) -> list[_Numbered]:
    given = command.launcher_flag("--master_port") is not None or command.may_hide_launcher_flags()
    return [] if given else [(29500, ())]


def _devices(first: LaunchCommand, second: LaunchCommand) -> _Found | None:
    one, two = first.variable("CUDA_VISIBLE_DEVICES"), second.variable("CUDA_VISIBLE_DEVICES")
    if any(c.launcher_flag("-i", "--include", "-e", "--exclude", "--gpu_ids") for c in (first, second)):
        return None
    if not one.is_known or not two.is_known:
        return None
    ids = {part.strip() for part in one.get().split(",")} & {part.strip() for part in two.get().split(",")}
    ids = {part for part in ids if part.isdecimal()}
    if not ids:
        return None
    named = f"GPU {', '.join(sorted(ids))}" if len(ids) == 1 else f"the GPUs {', '.join(sorted(ids))}"
    return named, one.origins[:1], two.origins[:1]
